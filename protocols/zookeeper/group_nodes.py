"""Nodes of groups: `/consumers` and the positions below. Knows no session's timeout and no watch.

A position is that of the group's subscription, which all protocols share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.positions.cursor_moves import OFFSET_MAX
from braidlog.broker.positions.subscriptions import KafkaCommit
from braidlog.protocols.zookeeper.errors import NodeError, ZkCode
from braidlog.protocols.zookeeper.namespace import NamespaceNode, SharedNodes
from braidlog.protocols.zookeeper.topic_nodes import is_index
from braidlog.protocols.zookeeper.virtual import Change, VirtualNode

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.zookeeper.callers import Caller

PROTOCOL: Final = "zookeeper"
NO_EPOCH: Final = -1  # Of a commit: Kafka 0.8 knows no epochs of leaders.
# A consumer of named topics; others have a topic filter.
STATIC: Final = re.compile(rb'"pattern"\s*:\s*"static"')
NUMBER: Final = re.compile(rb"-?[0-9]{1,19}")


class GroupsNode(NamespaceNode):
    """`/consumers`: every group with a subscription, whichever protocol made it."""

    is_union = True

    def names(self, caller: Caller | None) -> Iterable[str]:
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

    def __init__(self, names: SharedNodes, group: str) -> None:
        self._names, self._group = names, group.encode(errors="surrogateescape")

    def rights(self) -> Resource:
        return Resource.of_group_within(self._group, self._names.tenant, self._names.namespace)

    def exists(self) -> bool:
        return any(
            self._names.positions(topic, self._group) is not None
            for topic in self._names.topics(None)
        )

    def names(self, caller: Caller | None) -> Iterable[str]:
        return ("offsets",) if self._has_position() else ()

    def _has_position(self) -> bool:
        return any(self._positions(topic) for topic in self._names.topics(None))

    def _positions(self, topic: Topic) -> Mapping[int, int]:
        """Return the group's positions on a topic, by partition."""
        return self._names.positions(topic, self._group) or {}


class OffsetsNode(GroupNode):
    """`/consumers/G/offsets`: the topics where the group has a position."""

    def exists(self) -> bool:
        return self._has_position()

    def names(self, caller: Caller | None) -> Iterable[str]:
        topics = self._names.topics(caller)
        return [topic.name.topic for topic in topics if self._positions(topic)]


class OffsetTopicNode(GroupNode):
    """`/consumers/G/offsets/T`: the partitions where the group has a position."""

    def __init__(self, names: SharedNodes, group: str, topic: str) -> None:
        super().__init__(names, group)
        self._topic = names.topic(topic)

    def exists(self) -> bool:
        return self._topic is not None and bool(self._positions(self._topic))

    def names(self, caller: Caller | None) -> Iterable[str]:
        return [] if self._topic is None else map(str, self._positions(self._topic))

    def hides(self, name: str) -> bool:
        """See `VirtualNode`: the position replaces a node stored before the topic existed."""
        return self._topic is not None and is_index(name, len(self._topic.partitions))


class OffsetNode(OffsetTopicNode):
    """`/consumers/G/offsets/T/P` of an existing partition: the group's position."""

    is_union = False

    def __init__(self, names: SharedNodes, group: str, topic: str, index: str) -> None:
        super().__init__(names, group, topic)
        self._owner_path = f"/consumers/{group}/owners/{topic}/{index}"
        self._members_path = f"/consumers/{group}/ids"
        is_partition = self._topic is not None and is_index(index, len(self._topic.partitions))
        self._index = int(index) if is_partition else -1

    @property
    def topic(self) -> Topic:
        """The topic, which exists."""
        assert self._topic is not None, "the node applies"
        return self._topic

    def rights(self) -> Resource:
        return Resource.of_group(self._group, self.topic.name)

    def applies(self) -> bool:
        return self._index >= 0

    def exists(self) -> bool:
        return self._offset() is not None

    def names(self, caller: Caller | None) -> Iterable[str]:
        return ()

    def data(self, caller: Caller | None) -> bytes | None:
        offset = self._offset()
        return None if offset is None else b"%d" % offset

    def ticket(self) -> int:
        return self._names.broker.subscriptions.flush_lazy()

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
        broker = self._names.broker
        if not broker.placement.is_here(self.topic.name):
            return self._delete_elsewhere(caller)
        subscription = broker.subscriptions.find(self.topic, self._group)
        if subscription is None or subscription.position(self._index) is None:
            raise NodeError(ZkCode.NO_NODE)
        if broker.members.others(self.topic, self._group, PROTOCOL):
            raise NodeError(ZkCode.NOT_EMPTY, "a member of another protocol reads the topic")
        return subscription.delete_cursor(self._index)

    async def _delete_elsewhere(self, caller: Caller) -> int:
        broker, topic = self._names.broker, self.topic
        node, place = self._node(), (topic.name.full, self._index)
        await broker.peers.end_position(node, caller.asker, self._group, place, PROTOCOL)
        await self._names.remote.refresh(self._group, topic.name.topic)
        return 0

    def _node(self) -> int:
        """Return the other broker that owns the topic."""
        owner = self._names.broker.placement.owner(self.topic.name)
        return 0 if owner is None else owner.node_id

    def _offset(self) -> int | None:
        if self._names.broker.placement.is_here(self.topic.name):
            subscription = self._names.broker.subscriptions.find(self.topic, self._group)
            commit = None if subscription is None else subscription.committed(self._index)
            return None if commit is None else commit.offset
        return self._positions(self.topic).get(self._index)

    def _check_commit(self, caller: Caller) -> None:
        caller.check(Action.CONSUME, self.topic.resource)
        caller.check(Action.CONSUME, self.rights())

    def _store(self, caller: Caller, data: bytes | None) -> Change:
        """Commit by the rules that all protocols share; a member that lost the partition moves
        nothing.
        """
        offset = _number(data)
        broker = self._names.broker
        if not broker.placement.is_here(self.topic.name):
            return self._store_elsewhere(caller, offset)
        subscription = broker.subscriptions.open(self.topic, self._group)
        position = subscription.position(self._index)
        if position is not None and offset < position and self._is_of_others(caller):
            self._names.stale_commits.inc()
            return 0
        commit = KafkaCommit(offset, b"", broker.now_us())
        return subscription.commit(self._index, offset, kafka=commit)

    async def _store_elsewhere(self, caller: Caller, offset: int) -> int:
        """Commit at the broker that owns the topic."""
        names, topic = self._names, self.topic
        peers, node = names.broker.peers, self._node()
        commit = (topic.name.full, self._index, offset, b"", names.broker.now_us(), NO_EPOCH)
        if self._is_of_others(caller):
            if not await peers.commit_forward(node, caller.asker, self._group, commit):
                names.stale_commits.inc()
        else:
            (error,) = await peers.commit(caller.asker, self._group, [(node, commit)])
            if error is not None:
                raise error
        await names.remote.refresh(self._group, topic.name.topic)
        return 0

    def _is_of_others(self, caller: Caller) -> bool:
        """Return True if another live session owns the partition.

        While consumers share out the partitions, nobody owns this partition. Then it is the
        group's other consumers' too: a thawed consumer commits old numbers at such a time.
        """
        nodes = self._names.nodes
        owner = nodes.find(self._owner_path)
        if owner is not None and owner.owner in nodes.sessions:
            return owner.owner != caller.session_id
        return any(
            self._is_other_reader(f"{self._members_path}/{name}", caller)
            for name in nodes.children(self._members_path)
        )

    def _is_other_reader(self, path: str, caller: Caller) -> bool:
        """Return True for the node of another live session's consumer that may read the topic."""
        member = self._names.nodes.find(path)
        if member is None or member.owner == caller.session_id:
            return False
        data = member.data or b""
        names_topic = f'"{self.topic.name.topic}"'.encode() in data
        return member.owner in self._names.nodes.sessions and (
            names_topic or not STATIC.search(data)
        )


def subscribed_topics(data: bytes) -> Iterable[str]:
    """Return the topics that a consumer's node names; none for a topic filter, or other data."""
    try:
        consumer = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    subscription = consumer.get("subscription") if isinstance(consumer, dict) else None
    is_named = STATIC.search(data) is not None and isinstance(subscription, dict)
    return list(subscription) if is_named and subscription else ()


def _number(data: bytes | None) -> int:
    """Return a position in decimal. Raises NodeError."""
    if data is None or not NUMBER.fullmatch(data) or abs(int(data)) > OFFSET_MAX:
        raise NodeError(ZkCode.BAD_ARGUMENTS, f"{(data or b'')[:40]!r} is not a position")
    return int(data)
