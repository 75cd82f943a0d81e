"""The named groups of a topic, which Iggy's clients create. A group's position is stored in the
subscription of the same name. Knows no member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.storage.metadata.catalogue_records import GroupMeta

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic


class NamedGroups:
    """The named groups of all topics."""

    def __init__(self, catalogue: LocalCatalogue) -> None:
        self._catalogue = catalogue
        # Called with the topic's number and the name of each group that is deleted here.
        self.listeners: list[Callable[[int, str], None]] = []

    def list(self, topic: Topic) -> Sequence[GroupMeta]:
        """Return a topic's groups in the order of creation; none for a deleted topic. Raises
        NotOwner.
        """
        if topic.deleted:
            return ()
        topic.check_here()
        return topic.meta.groups

    def count(self, topic: Topic) -> int:
        """Return the number of groups that this broker knows: 0 if another broker owns
        the topic.
        """
        return 0 if topic.deleted else len(topic.meta.groups)

    def create(self, topic: Topic, name: str, number: int | None = None) -> int:
        """Create a group with a free name, and a free number if a number is given; return the
        ticket.

        Raises NotOwner, StorageFull, StorageFailed.
        """
        topic.check_here()
        create = self._catalogue.state.create_group
        return self._catalogue.change(create, topic.meta.topic_id, name, number)

    def delete(self, topic: Topic, number: int) -> int:
        """Remove an existing group; return the ticket. Raises NotOwner, StorageFull,
        StorageFailed.
        """
        topic.check_here()
        topic_id = topic.meta.topic_id
        names = [meta.name for meta in topic.meta.groups if meta.group_id == number]
        ticket = self._catalogue.change(self._catalogue.state.delete_group, topic_id, number)
        for name in names:
            for group_deleted in self.listeners:
                group_deleted(topic_id, name)
        return ticket
