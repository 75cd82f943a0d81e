"""The groups that clients have joined, by topic: also those without a position, which no list of
subscriptions has, and those that other brokers coordinate. Knows no route.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from braidlog.broker.positions.members import LiveGroup, SubscriptionMember, merged
from braidlog.broker.runtime.turns import in_turns
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic

GROUPS_PER_TURN: Final = 20  # Joined groups: some microseconds each, a large group a millisecond.
ENTRIES_PER_TURN: Final = 500
EMPTY, STABLE = "Empty", "Stable"


@dataclass(slots=True)
class GroupStanding:
    """A group's members now: `kind` and `member_protocol` as in `LiveGroup`, None if no member of
    the group tells them.
    """

    members: int
    state: str
    kind: str | None = None
    member_protocol: str | None = None


@dataclass(slots=True)
class LiveGroups:
    """Groups that clients have joined at any broker.

    `by_topic` has the groups that read each existing topic, by the topic's full name;
    `without_topic` the others. `silent_brokers` did not tell their groups in time.
    """

    by_topic: dict[str, dict[bytes, list[LiveGroup]]] = field(default_factory=dict)
    without_topic: list[LiveGroup] = field(default_factory=list)
    silent_brokers: Sequence[int] = ()

    def names(self, topic: Topic) -> Sequence[bytes]:
        """Return the groups that read a topic."""
        return tuple(self.by_topic.get(topic.name.full, ()))

    def members(self, topic: Topic) -> dict[str, int]:
        """Return the number of members of each group that reads a topic, by the group's name."""
        return {
            name.decode(errors="backslashreplace"): sum(
                group.topics[topic.name.topic] for group in joined
            )
            for name, joined in self.by_topic.get(topic.name.full, {}).items()
        }

    def standing(self, broker: Broker, topic: Topic, name: bytes) -> GroupStanding:
        """Return the members of a group that read a topic."""
        joined = self.by_topic.get(topic.name.full, {}).get(name, [])
        count = sum(group.topics[topic.name.topic] for group in joined)
        known = {group.protocol for group in joined}
        consumers = broker.dispatchers.members(topic, name)
        count += sum(consumer.protocol not in known for consumer in consumers)
        first = min(joined, key=lambda group: group.state == EMPTY, default=None)
        state = STABLE if consumers else EMPTY
        if first is None:
            return GroupStanding(count, state)
        state = state if first.state == EMPTY else first.state
        return GroupStanding(count, state, first.kind, first.member_protocol)


async def joined_groups(broker: Broker, name: bytes | None = None) -> LiveGroups:
    """Return the groups that clients have joined at all brokers, or only those of a name."""
    elsewhere, silent = await broker.peers.joined_groups(name)
    return await _by_topic(broker, [*await _joined_here(broker, name), *elsewhere], silent)


async def joined_here(broker: Broker) -> LiveGroups:
    """Return the groups that clients have joined at this broker."""
    return await _by_topic(broker, await _joined_here(broker), ())


async def _joined_here(broker: Broker, name: bytes | None = None) -> list[LiveGroup]:
    return [group async for group in in_turns(broker.members.joined(name), GROUPS_PER_TURN)]


async def _by_topic(
    broker: Broker, groups: Sequence[LiveGroup], silent: Sequence[int]
) -> LiveGroups:
    result = LiveGroups(silent_brokers=silent)
    async for group in in_turns(groups, ENTRIES_PER_TURN):
        is_placed = False
        async for topic in in_turns(group.topics, ENTRIES_PER_TURN):
            full_name = TopicName(group.tenant, group.namespace, topic)
            if broker.topics.find(full_name) is None:
                continue
            is_placed = True
            places = result.by_topic.setdefault(full_name.full, {})
            places.setdefault(group.name, []).append(group)
        if not is_placed:
            result.without_topic.append(group)
    return result


async def members_of(
    broker: Broker, topic: Topic, name: bytes
) -> tuple[list[SubscriptionMember], Sequence[int]]:
    """Return the members of a group that read a topic, as all brokers know them, and the brokers
    that did not answer in time.
    """
    elsewhere, silent = await broker.peers.group_members(topic.name, name)
    return merged((broker.members.of(topic, name), *elsewhere)), silent
