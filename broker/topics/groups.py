"""The named groups of a topic, which Iggy's clients create. A group's position is stored in the
subscription of the same name. Knows no member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import LimitExceeded
from braidlog.broker.limits import STATE_LIMITS, StateLimits
from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.storage.metadata.catalogue_records import GroupMeta

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic


SEARCHED_MAX: Final = 16  # A topic with more groups has an index.
INDEXES_MAX: Final = 100  # Of recently used topics, up to 2 MB each.


class GroupIndex:
    """The groups of a topic by name and by number."""

    def __init__(self) -> None:
        self._groups: Sequence[GroupMeta] = ()
        self._count = 0  # Groups in the index.
        self._by_name: dict[str | int, GroupMeta] = {}

    def find(self, groups: Sequence[GroupMeta], name: str | int) -> GroupMeta | None:
        """Return the group of that name or number; `groups` are those of now: the list that was
        given before with more groups at its end, or another list.
        """
        if groups is not self._groups or len(groups) < self._count:
            self._groups, self._count = groups, 0
            self._by_name.clear()
        for meta in groups[self._count :]:
            self._by_name[meta.name] = self._by_name[meta.group_id] = meta
        self._count = len(groups)
        return self._by_name.get(name)


class NamedGroups:
    """The named groups of all topics."""

    def __init__(self, catalogue: LocalCatalogue, limits: StateLimits = STATE_LIMITS) -> None:
        self._catalogue = catalogue
        self._groups_max = limits.topic_groups
        self._indexes: dict[int, GroupIndex] = {}  # By topic number, the oldest first.
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

    def find(self, topic: Topic, name: str | int) -> GroupMeta | None:
        """Return a topic's group by name or number. Raises NotOwner."""
        groups = self.list(topic)
        if len(groups) <= SEARCHED_MAX:
            return next((meta for meta in groups if name in (meta.group_id, meta.name)), None)
        index = self._indexes.get(topic.meta.topic_id)
        if index is None:
            if len(self._indexes) >= INDEXES_MAX:
                del self._indexes[next(iter(self._indexes))]
            index = self._indexes[topic.meta.topic_id] = GroupIndex()
        return index.find(groups, name)

    def count(self, topic: Topic) -> int:
        """Return the number of groups that this broker knows: 0 if another broker owns
        the topic.
        """
        return 0 if topic.deleted else len(topic.meta.groups)

    def create(self, topic: Topic, name: str, number: int | None = None) -> int:
        """Create a group with a free name, and a free number if a number is given; return the
        ticket.

        Raises NotOwner, LimitExceeded, StorageFull, StorageFailed.
        """
        topic.check_here()
        if len(topic.meta.groups) >= self._groups_max:
            raise LimitExceeded(f"limit of {self._groups_max} groups of a topic reached")
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
