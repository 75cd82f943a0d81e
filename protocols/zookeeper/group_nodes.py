"""Nodes of groups: `/consumers` and the positions below. Knows no session's timeout and no watch.

A position is that of the group's subscription, which all protocols share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.positions.cursor_moves import OFFSET_MAX
from braidlog.broker.positions.subscriptions import KafkaCommit
from braidlog.protocols.zookeeper.errors import NodeError, ZkCode
from braidlog.protocols.zookeeper.namespace import Namespace
from braidlog.protocols.zookeeper.topic_nodes import is_index
from braidlog.protocols.zookeeper.virtual import Change, VirtualNode

if TYPE_CHECKING:
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.zookeeper.callers import Caller

PROTOCOL: Final = "zookeeper"
NUMBER: Final = re.compile(rb"-?[0-9]{1,19}")


class GroupsNode(VirtualNode):
    """`/consumers`: every group with a subscription, whichever protocol made it."""

    is_union = True

    def __init__(self, names: Namespace) -> None:
        self._names = names

    def rights(self) -> Resource:
        """See `VirtualNode`."""
        return self._names.resource

    def names(self, caller: Caller | None) -> Iterable[str]:
        """See `VirtualNode`."""
        groups = self._names.groups(self._names.topics(caller))
        if caller is None:
            return groups
        return [
            group
            for group, topic in groups.items()
            if caller.may_see(Resource.of_group(group.encode(), topic.name))
        ]


class GroupNode(VirtualNode):
    """`/consumers/G`: exists with the group's first position."""

    is_union = True

    def __init__(self, names: Namespace, group: str) -> None:
        self._names, self._group = names, group.encode(errors="surrogateescape")

    def rights(self) -> Resource:
        """See `VirtualNode`."""
        return Resource.of_group_within(self._group, self._names.tenant, self._names.namespace)

    def exists(self) -> bool:
        """See `VirtualNode`."""
        return any(self._subscription(topic) for topic in self._names.topics(None))

    def names(self, caller: Caller | None) -> Iterable[str]:
        """See `VirtualNode`."""
        return ("offsets",) if self._has_position() else ()

    def _subscription(self, topic: Topic) -> Subscription | None:
        return self._names.broker.subscriptions.find(topic, self._group)

    def _has_position(self) -> bool:
        return any(self._positions(topic) for topic in self._names.topics(None))

    def _positions(self, topic: Topic) -> list[int]:
        """Return the partitions of a topic where the group has a position."""
        subscription = self._subscription(topic)
        indexes = range(len(topic.partitions)) if subscription is not None else ()
        return [
            index for index in indexes if subscription and subscription.position(index) is not None
        ]


class OffsetsNode(GroupNode):
    """`/consumers/G/offsets`: the topics where the group has a position."""

    def exists(self) -> bool:
        """See `VirtualNode`."""
        return self._has_position()

    def names(self, caller: Caller | None) -> Iterable[str]:
        """See `VirtualNode`."""
        topics = self._names.topics(caller)
        return [topic.name.topic for topic in topics if self._positions(topic)]


class OffsetTopicNode(GroupNode):
    """`/consumers/G/offsets/T`: the partitions where the group has a position."""

    def __init__(self, names: Namespace, group: str, topic: str) -> None:
        super().__init__(names, group)
        self._topic = names.topic(topic)

    def exists(self) -> bool:
        """See `VirtualNode`."""
        return self._topic is not None and bool(self._positions(self._topic))

    def names(self, caller: Caller | None) -> Iterable[str]:
        """See `VirtualNode`."""
        return [] if self._topic is None else map(str, self._positions(self._topic))

    def hides(self, name: str) -> bool:
        """See `VirtualNode`: the position replaces a node stored before the topic existed."""
        return self._topic is not None and is_index(name, len(self._topic.partitions))


class OffsetNode(OffsetTopicNode):
    """`/consumers/G/offsets/T/P` of an existing partition: the group's position."""

    is_union = False

    def __init__(self, names: Namespace, group: str, topic: str, index: str) -> None:
        super().__init__(names, group, topic)
        self._owner_path = f"/consumers/{group}/owners/{topic}/{index}"
        is_partition = self._topic is not None and is_index(index, len(self._topic.partitions))
        self._index = int(index) if is_partition else -1

    @property
    def topic(self) -> Topic:
        """The topic, which exists."""
        assert self._topic is not None, "the node applies"
        return self._topic

    def rights(self) -> Resource:
        """See `VirtualNode`."""
        return Resource.of_group(self._group, self.topic.name)

    def applies(self) -> bool:
        """See `VirtualNode`."""
        return self._index >= 0

    def exists(self) -> bool:
        """See `VirtualNode`."""
        return self._commit() is not None

    def names(self, caller: Caller | None) -> Iterable[str]:
        """See `VirtualNode`."""
        return ()

    def data(self, caller: Caller | None) -> bytes | None:
        """See `VirtualNode`."""
        commit = self._commit()
        return None if commit is None else b"%d" % commit.offset

    def create(self, caller: Caller, data: bytes | None) -> Change:
        """Commit a first position. Raises NodeError, broker errors."""
        self._check_commit(caller)
        if self.exists():
            raise NodeError(ZkCode.NODE_EXISTS)
        return self._store(caller, data)

    def set_data(self, caller: Caller, data: bytes | None) -> Change:
        """Commit. Raises NodeError, broker errors."""
        self._check_commit(caller)
        if not self.exists():
            raise NodeError(ZkCode.NO_NODE)
        return self._store(caller, data)

    def delete(self, caller: Caller) -> Change:
        """End the cursor. Raises NodeError, broker errors."""
        caller.check(Action.DELETE, self.rights())
        subscription = self._subscription(self.topic)
        if subscription is None or subscription.position(self._index) is None:
            raise NodeError(ZkCode.NO_NODE)
        if self._names.broker.members.others(self.topic, self._group, PROTOCOL):
            raise NodeError(ZkCode.NOT_EMPTY, "a member of another protocol reads the topic")
        return subscription.delete_cursor(self._index)

    def _commit(self) -> KafkaCommit | None:
        subscription = self._subscription(self.topic)
        return None if subscription is None else subscription.committed(self._index)

    def _check_commit(self, caller: Caller) -> None:
        caller.check(Action.CONSUME, self.topic.resource)
        caller.check(Action.CONSUME, self.rights())

    def _store(self, caller: Caller, data: bytes | None) -> int:
        """Commit by the rules that all protocols share; a member that lost the partition moves
        nothing.
        """
        offset = _number(data)
        broker = self._names.broker
        subscription = broker.subscriptions.open(self.topic, self._group)
        position = subscription.position(self._index)
        if position is not None and offset < position and self._is_owned_elsewhere(caller):
            self._names.stale_commits.inc()
            return 0
        commit = KafkaCommit(offset, b"", broker.now_us())
        return subscription.commit(self._index, offset, kafka=commit)

    def _is_owned_elsewhere(self, caller: Caller) -> bool:
        """Return True if another live session owns the partition."""
        nodes = self._names.nodes
        node = nodes.find(self._owner_path)
        return node is not None and node.owner != caller.session_id and node.owner in nodes.sessions


def _number(data: bytes | None) -> int:
    """Return a position in decimal. Raises NodeError."""
    if data is None or not NUMBER.fullmatch(data) or abs(int(data)) > OFFSET_MAX:
        raise NodeError(ZkCode.BAD_ARGUMENTS, f"{(data or b'')[:40]!r} is not a position")
    return int(data)
