"""Shows the members of Kafka groups to tools of all protocols, and the members of other protocols
to Kafka's tools. Knows no request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from braidlog.broker.positions.members import LiveGroup, SubscriptionMember
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka.consumer_group import ConsumerGroup
from braidlog.protocols.kafka.consumer_protocol import (
    PROTOCOL_TYPE,
    VERSION_BYTES,
    assignment_of,
    given_partitions,
    listed_topics,
    subscription_of,
    wants,
)
from braidlog.protocols.kafka.names import PROTOCOL
from braidlog.protocols.kafka.share_group import ShareGroup
from braidlog.protocols.kafka.wire.describe_groups import DescribedGroupMember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.kafka.classic_group import KafkaGroup

STRING_BYTES_MAX = (1 << 15) - 1  # A Kafka string; names of other protocols may be longer.
# Names of topics read in the metadata of a group's members: some 20 ms. A member with the same
# topics as the member before is not read again.
NAMES_WALKED_MAX: Final = 10_000


class KafkaMembers:
    """The members of a namespace's Kafka groups."""

    def __init__(
        self,
        find: Callable[[bytes], KafkaGroup | ConsumerGroup | None],
        names: Callable[[], Iterable[bytes]],
        namespace: str,
        coordinates: Callable[[bytes], bool] = lambda name: True,
    ) -> None:
        """`find` gives a group of any type that has or had members, `names` gives their names;
        `namespace` is `tenant/namespace`. `coordinates` is False for a group that has moved to
        another broker, where its members join again.
        """
        self._find = find
        self._names = names
        self._namespace = namespace
        self._coordinates = coordinates

    def of(self, topic: Topic, name: bytes) -> Iterator[SubscriptionMember]:
        """The group's members that subscribe to the topic, or have partitions of it."""
        if f"{topic.name.tenant}/{topic.name.namespace}" != self._namespace:
            return
        group = self._find(name)
        if isinstance(group, ConsumerGroup):
            yield from _modern_members(topic, group)
            return
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

    def joined(self, name: bytes | None) -> Iterator[LiveGroup]:
        """The groups with members, or only the group of that name."""
        tenant, _, namespace = self._namespace.partition("/")
        for known in tuple(self._names()) if name is None else (name,):
            group = self._find(known)
            if group is None or not group.members or not self._coordinates(known):
                continue
            if isinstance(group, ConsumerGroup):
                kind = "share" if isinstance(group, ShareGroup) else "consumer"
                state, topics = group.state_name, _modern_topics(group)
            else:
                kind, state, topics = "classic", group.state.value, _classic_topics(group)
            yield LiveGroup(
                PROTOCOL,
                kind,
                group.protocol_type.decode(errors="backslashreplace"),
                state.decode(),
                tenant,
                namespace,
                known,
                len(group.members),
                {topic.decode(errors="backslashreplace"): topics[topic] for topic in topics},
                () if name is None else tuple(_clients(group)),
            )


def _clients(group: KafkaGroup | ConsumerGroup) -> Iterator[tuple[str, str]]:
    for member_id, member in group.members.items():
        address = member.client[1].decode(errors="backslashreplace")
        yield member_id.decode(errors="backslashreplace"), address


def _modern_topics(group: ConsumerGroup) -> Mapping[bytes, int]:
    counts: Counter[bytes] = Counter()
    for member in group.members.values():
        counts.update(group.names_of(member))
    return counts


def _classic_topics(group: KafkaGroup) -> Mapping[bytes, int]:
    """Return the number of members that subscribe to each topic. All protocols of a member have the
    same topics.
    """
    if group.protocol_type != PROTOCOL_TYPE:
        return {}
    counts: Counter[bytes] = Counter()
    encoded, names = b"", frozenset[bytes]()
    walked = 0
    for member in group.members.values():
        metadata = next(iter(member.protocols.values()), b"")
        if not encoded or not metadata.startswith(encoded, VERSION_BYTES):
            if walked >= NAMES_WALKED_MAX:
                continue
            try:
                encoded, names = listed_topics(metadata, NAMES_WALKED_MAX - walked)
            except ProtocolError:
                encoded, names = b"", frozenset()
            walked += len(names)
        counts.update(names)
    return counts


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
