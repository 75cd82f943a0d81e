"""The last changes of namespaces, topics and users, for protocols whose clients follow them."""

from __future__ import annotations

from collections.abc import Iterator

from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.storage.metadata.catalogue_records import NamespaceMeta, TopicMeta
from braidlog.storage.metadata.history import PastChange, PastGroup
from braidlog.storage.metadata.user_records import TokenMeta

# Protocols import these records from here.
__all__ = ["NamespaceMeta", "PastChange", "PastChanges", "PastGroup", "TokenMeta", "TopicMeta"]

FIRST = 1  # Numbers of changes count from 1, places in the journal from 0.


class PastChanges:
    """The changes since this broker started, as far as they are remembered, by their numbers
    (`Broker.last_change`).
    """

    def __init__(self, catalogue: LocalCatalogue) -> None:
        """Take the catalogue whose changes are shown."""
        self._catalogue = catalogue.state

    @property
    def begin_after(self) -> tuple[int, int]:
        """Number and time of the last change that is not remembered: all later changes are."""
        history = self._catalogue.history
        return history.begins_after + FIRST, history.begins_after_us

    def after(self, number: int) -> Iterator[tuple[int, PastChange]]:
        """Yield the changes after a number, with their numbers. Atomic: no change may be made
        meanwhile.
        """
        for past in self._catalogue.history.after(number - FIRST):
            yield past.place + FIRST, past

    def namespace_number(self, meta: NamespaceMeta) -> int:
        """Return the number by which Iggy's clients knew a namespace."""
        return self._catalogue.stream_id(meta)

    def topic_number(self, meta: TopicMeta) -> int:
        """Return the number by which Iggy's clients knew a topic."""
        return self._catalogue.topic_id(meta)

    @property
    def ticket(self) -> int:
        """After this ticket every change so far is on disk."""
        return self._catalogue.ticket
