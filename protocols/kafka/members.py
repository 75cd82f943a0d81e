"""Members of Kafka groups as tools of all protocols see them, and the other way round. Knows no
request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.subscriptions.members import Member
from protocols.kafka.consumer_protocol import (
    PROTOCOL_TYPE,
    assigned_partitions,
    assignment_of,
    subscription_of,
    wanted_topics,
)
from protocols.kafka.group_messages import DescribedMember
from protocols.kafka.names import PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker.topics.topic import Topic
    from protocols.kafka.membership import Group


class KafkaMembers:
    """The members of one namespace's Kafka groups."""

    def __init__(self, find: Callable[[bytes], Group | None], namespace: str) -> None:
        """`find` gives a group that has members; `namespace` is `tenant/namespace`."""
        self._find = find
        self._namespace = namespace

    def of(self, topic: Topic, name: bytes) -> Iterator[Member]:
        """Those who want the topic, or have partitions of it."""
        if f"{topic.name.tenant}/{topic.name.namespace}" != self._namespace:
            return
        group = self._find(name)
        if group is None or group.protocol_type != PROTOCOL_TYPE:
            return
        wanted = topic.name.topic.encode()
        for one in group.described():
            partitions = assigned_partitions(one.assignment).get(wanted)
            if partitions is not None or wanted in wanted_topics(one.metadata):
                name_text = one.member_id.decode(errors="backslashreplace")
                address = one.client_host.decode(errors="backslashreplace")
                yield Member(PROTOCOL, name_text, address, partitions or ())


def described_others(found: Iterable[tuple[Topic, Member]]) -> list[DescribedMember]:
    """Members of other protocols, as Kafka's tools are told of them: the client is the protocol."""
    topics: dict[tuple[str, str, str], dict[bytes, Sequence[int]]] = {}
    for topic, one in found:
        key = (one.protocol, one.name, one.address)
        topics.setdefault(key, {})[topic.name.topic.encode()] = one.partitions
    return [
        DescribedMember(
            name.encode(),
            None,
            protocol.encode(),
            address.encode(),
            subscription_of(partitions),
            assignment_of(partitions),
        )
        for (protocol, name, address), partitions in topics.items()
    ]
