"""Answers the calls of other brokers about groups: the catalogue's owner shows all groups of a
cluster as a tree, and moves positions for consumers that keep their positions there; the
coordinator of a share group shows and moves the group's positions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from braidlog.broker import errors
from braidlog.broker.access.rights import Action, Principal, Resource
from braidlog.broker.positions.subscriptions import KafkaCommit
from braidlog.broker.runtime.turns import in_turns
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.cluster.cluster_peers import Call
    from braidlog.broker.positions.members import LiveGroup
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.topic import Topic

TURN_TOPICS: Final = 200  # Topics between two checkpoints: a millisecond or two.
TURN_GROUPS: Final = 20  # Joined groups: some microseconds each, a large group a millisecond.


class GroupAnswers:
    """Answers calls about the groups of this broker's topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.by_name: dict[str, Callable[[Call], Awaitable[object]]] = {
            "groups": self._groups,
            "group_positions": self._group_positions,
            "topic_positions": self._topic_positions,
            "commit_forward": self._commit_forward,
            "end_position": self._end_position,
            "seek": self._seek,
            "standing": self._standing,
            "joined_groups": self._joined_groups,
            "group_members": self._group_members,
        }

    async def _topics(self, tenant: str, namespace: str, expected: int) -> list[Topic]:
        """Return this broker's topics. Raises NotOwner for another number than expected: a topic is
        moving.
        """
        broker = self._broker
        topics = [
            topic
            async for topic in in_turns(broker.topics.list(tenant, namespace), TURN_TOPICS)
            if broker.placement.is_here(topic.name)
        ]
        if len(topics) != expected:
            text = f"broker {broker.placement.node_id} owns {len(topics)} topics of {namespace}"
            raise errors.NotOwner(f"{text}, not {expected}")
        return topics

    async def _groups(self, call: Call) -> dict[str, list[bytes]]:
        """Return only topics with subscriptions."""
        groups: dict[str, list[bytes]] = {}
        for topic in await self._topics(*call.arguments):
            if names := self._broker.subscriptions.names(topic):
                groups[topic.name.full] = list(names)
        return groups

    async def _group_positions(self, call: Call) -> list[tuple[str, list[tuple[int, int]]]]:
        """Return a topic without positions too if the group has a subscription there."""
        tenant, namespace, expected, group = call.arguments
        positions = []
        for topic in await self._topics(tenant, namespace, expected):
            offsets = self._offsets(topic, group)
            if offsets is not None:
                positions.append((topic.name.full, offsets))
        await self._flush_lazy()
        return positions

    async def _topic_positions(self, call: Call) -> list[tuple[int, int]] | None:
        group, full = call.arguments
        name = TopicName(*full.split("/", 2))
        self._broker.placement.check(name)
        offsets = self._offsets(self._broker.topics.get(name), group)
        await self._flush_lazy()
        return offsets

    async def _flush_lazy(self) -> None:
        """Wait until a crash takes back no position that is visible now."""
        await self._broker.durability.reached(self._broker.subscriptions.flush_lazy())

    def _offsets(self, topic: Topic, group: bytes) -> list[tuple[int, int]] | None:
        """Return partitions and offsets; None without a subscription. Raises NotOwner."""
        subscription = self._broker.subscriptions.find(topic, group)
        if subscription is None:
            return None
        commits = ((index, subscription.committed(index)) for index in range(len(topic.partitions)))
        return [(index, commit.offset) for index, commit in commits if commit is not None]

    async def _commit_forward(self, call: Call) -> bool:
        group, (full, index, *arguments) = call.arguments
        name = self._checked(call, Action.CONSUME, group, full)
        broker = self._broker
        subscription = self._opened(group, name, index)
        commit = KafkaCommit(*arguments)
        position = subscription.position(index)
        if position is not None and commit.offset < position:
            return False
        await broker.durability.reached(subscription.commit(index, commit.offset, kafka=commit))
        return True

    async def _end_position(self, call: Call) -> None:
        group, full, index, protocol = call.arguments
        name = self._checked(call, Action.DELETE, group, full)
        broker = self._broker
        topic = broker.topics.get(name)
        subscription = broker.subscriptions.find(topic, group)
        if subscription is None or subscription.position(index) is None:
            raise errors.SubscriptionNotFound(f"the group has no position on {name}")
        if broker.members.others(topic, group, protocol):
            raise errors.SubscriptionBusy("a member of another protocol reads the topic")
        await broker.durability.reached(subscription.delete_cursor(index))

    async def _seek(self, call: Call) -> None:
        group, full, index, offset = call.arguments
        name = self._checked(call, Action.CONSUME, group, full)
        subscription = self._opened(group, name, index)
        await self._broker.durability.reached(subscription.seek(index, offset))

    async def _standing(self, call: Call) -> tuple[int, int] | None:
        group, full, index = call.arguments
        name = self._checked(call, Action.DESCRIBE, group, full)
        broker = self._broker
        topic = broker.topics.get(name)
        topic.partition(index)
        subscription = broker.subscriptions.find(topic, group)
        position = None if subscription is None else subscription.position(index)
        if subscription is None or position is None:
            return None
        standing = position, subscription.backlog(index)
        await self._flush_lazy()
        return standing

    async def _joined_groups(self, call: Call) -> list[LiveGroup]:
        (name,) = call.arguments
        joined = self._broker.members.joined(name)
        return [group async for group in in_turns(joined, TURN_GROUPS)]

    async def _group_members(self, call: Call) -> list[tuple[object, ...]]:
        """Return the members that this broker knows, also of another broker's topic."""
        full, group = call.arguments
        topic = self._broker.topics.find(TopicName(*full.split("/", 2)))
        members = [] if topic is None else self._broker.members.of(topic, group)
        return [
            (member.protocol, member.name, member.address, list(member.partitions))
            for member in members
        ]

    def _opened(self, group: bytes, name: TopicName, index: int) -> Subscription:
        """Return the group's subscription to a topic; create a missing subscription. Raises
        PartitionNotFound first: otherwise a subscription without positions would stay.
        """
        topic = self._broker.topics.get(name)
        topic.partition(index)
        return self._broker.subscriptions.open(topic, group)

    def _checked(self, call: Call, action: Action, group: bytes, full: str) -> TopicName:
        """Return the topic's name. Raises NotAuthorized, NotOwner."""
        name = TopicName(*full.split("/", 2))
        principal = principal_of(call)
        resources = [Resource.of_group(group, name)]
        resources += [Resource.of_topic(name)] if action is Action.CONSUME else []
        for resource in resources:
            self._broker.access.check(principal, action, resource, call.at)
        self._broker.placement.check(name)
        return name


def principal_of(call: Call) -> Principal:
    """Return the client for which the other broker calls."""
    name, roles, is_anonymous = call.principal
    return Principal(name, frozenset(roles), is_anonymous)
