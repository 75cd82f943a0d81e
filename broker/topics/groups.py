"""The list of a topic's named groups, as Iggy's clients make them. A group's position is in the
subscription of its name. Knows no member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.storage.metadata.catalogue_records import GroupMeta

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic


class NamedGroups:
    """The named groups of all topics."""

    def __init__(self, catalogue: LocalCatalogue) -> None:
        self._catalogue = catalogue

    def list(self, topic: Topic) -> Sequence[GroupMeta]:
        """The groups of a topic, in the order they were made; none of a deleted one. Raises
        NotOwner.
        """
        if topic.deleted:
            return ()
        topic.check_here()
        return topic.meta.groups

    def count(self, topic: Topic) -> int:
        """How many groups a topic has, as far as this broker knows: 0 if another one owns it."""
        return 0 if topic.deleted else len(topic.meta.groups)

    def create(self, topic: Topic, name: str, number: int | None = None) -> int:
        """Make a group with a free name, and a free number if one is given; return the ticket.

        Raises StorageFull, StorageFailed.
        """
        return self._catalogue.create_group(topic.meta.topic_id, name, number)

    def delete(self, topic: Topic, number: int) -> int:
        """Remove a group that is there; return the ticket. Raises StorageFull, StorageFailed."""
        return self._catalogue.delete_group(topic.meta.topic_id, number)
