"""What the catalogue keeps of producers: numbers of their names, and the epochs of topics.

Knows no connection: who produces now is the protocol's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.topics.catalogue import LocalCatalogue

if TYPE_CHECKING:
    from broker.topics.topic import Topic


class ProducerNumbers:
    """Numbers and epochs of all producers."""

    def __init__(self, catalogue: LocalCatalogue) -> None:
        self._catalogue = catalogue

    @property
    def ticket(self) -> int:
        """After this ticket every number and epoch given so far is on disk."""
        return self._catalogue.ticket

    def number(self, name: bytes) -> tuple[int, int]:
        """The number, from 1 on, that stands for a name in batch headers, and the ticket that an
        answer to its producer waits for. Raises StorageFull, StorageFailed.
        """
        return self._catalogue.producer_number(name)

    def raise_epoch(self, topic: Topic) -> int:
        """Raise the epoch of the topic's exclusive producers by one; return the ticket.

        Raises StorageFull, StorageFailed.
        """
        return self._catalogue.raise_topic_epoch(topic.meta.topic_id)
