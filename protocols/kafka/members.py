"""Shows the members of Kafka groups to tools of all protocols, and the members of other protocols
to Kafka's tools. Knows no request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from braidlog.broker.positions.members import SubscriptionMember
from braidlog.protocols.kafka.consumer_protocol import (
    PROTOCOL_TYPE,
    assignment_of,
    given_partitions,
    subscription_of,
    wants,
)
from braidlog.protocols.kafka.names import PROTOCOL
from braidlog.protocols.kafka.wire.describe_groups import DescribedGroupMember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.kafka.classic_group import KafkaGroup
    from braidlog.protocols.kafka.consumer_group import ConsumerGroup


STRING_BYTES_MAX = (1 << 15) - 1  # A Kafka string; names of other protocols may be longer.


class KafkaMembers:
    """The members of a namespace's Kafka groups."""

    def __init__(
        self,
        find: Callable[[bytes], KafkaGroup | None],
        find_modern: Callable[[bytes], ConsumerGroup | None],
        namespace: str,
    ) -> None:
        """`find` and `find_modern` give a group that has members, of the classic and the consumer
        protocol; `namespace` is `tenant/namespace`.
        """
        self._find = find
        self._find_modern = find_modern
        self._namespace = namespace

    def of(self, topic: Topic, name: bytes) -> Iterator[SubscriptionMember]:
        """The group's members that subscribe to the topic, or have partitions of it."""
        if f"{topic.name.tenant}/{topic.name.namespace}" != self._namespace:
            return
        modern = self._find_modern(name)
        if modern is not None:
            yield from _modern_members(topic, modern)
            return
        group = self._find(name)
        if group is None or group.protocol_type != PROTOCOL_TYPE:
            return
        wanted, count = topic.name.topic.encode(), len(topic.partitions)
        left = count  # No partition belongs to two members.
        for described in group.described():
            assigned = given_partitions(described.member_assignment or b"", wanted, left)
            if assigned is not None or wants(described.member_metadata or b"", wanted):
                left -= len(assigned or ())
                name_text = (described.member_id or b"").decode(errors="backslashreplace")
                address = (described.client_host or b"").decode(errors="backslashreplace")
                # The leader is a client, and may assign partitions that do not exist.
                partitions = [index for index in sorted({*(assigned or ())}) if 0 <= index < count]
                yield SubscriptionMember(PROTOCOL, name_text, address, partitions)


def _modern_members(topic: Topic, group: ConsumerGroup) -> Iterator[SubscriptionMember]:
    name = topic.name.topic.encode()
    topic_id = group.topics.ids.get(name)
    for member in group.members.values():
        numbers = sorted(index for place, index in member.assigned if place == topic_id)
        if numbers or name in group.names_of(member):
            name_text = member.member_id.decode(errors="backslashreplace")
            address = member.client[1].decode(errors="backslashreplace")
            yield SubscriptionMember(PROTOCOL, name_text, address, numbers)


def described_others(
    others: Iterable[tuple[Topic, SubscriptionMember]],
) -> list[DescribedGroupMember]:
    """Members of other protocols as Kafka's tools see them: the client id names the protocol."""
    topics: dict[tuple[str, str, str], dict[bytes, Sequence[int]]] = {}
    for topic, member in others:
        key = (member.protocol, member.name, member.address)
        topics.setdefault(key, {})[topic.name.topic.encode()] = member.partitions
    return [
        DescribedGroupMember(
            member_id=name.encode()[:STRING_BYTES_MAX],
            client_id=protocol.encode(),
            client_host=address.encode()[:STRING_BYTES_MAX],
            member_metadata=subscription_of(partitions),
            member_assignment=assignment_of(partitions),
        )
        for (protocol, name, address), partitions in topics.items()
    ]
