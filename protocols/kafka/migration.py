"""Online migration of a group with members between the classic and the consumer protocol (KIP-848).

The first member of the consumer protocol turns a classic group into a consumer group. Its other
members go on with the classic protocol (`classic_members.py`), until each is restarted with the
consumer protocol. When the last member of the consumer protocol has gone and classic members are
left, the group is a classic group again. Members keep their ids, partitions and epochs on the way,
and positions belong to the group's name: nothing is read again.

Rules: `convertToConsumerGroup` and `convertToClassicGroup` of apache/kafka 4.3.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka.classic_group import GROUP_MEMBERS_MAX, KafkaGroup, MemberRefused
from braidlog.protocols.kafka.consumer_group import ConsumerGroup
from braidlog.protocols.kafka.consumer_member import ClassicSide, ConsumerMember, GroupTopics
from braidlog.protocols.kafka.consumer_protocol import (
    PROTOCOL_TYPE,
    MemberSubscription,
    assignment_of,
    parse_assignment,
    parse_subscription,
)
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.roster import KafkaMember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from braidlog.protocols.kafka.assignors import Place, Places

# Metadata and assignments of a group that changes its protocol are parsed in a single turn: some
# 50 ms. A thousand members of one topic have 0.3 MB.
UPGRADE_BYTES_MAX: Final = 4 * 1024 * 1024


class MigrationPolicy(enum.StrEnum):
    """Kafka's `group.consumer.migration.policy`."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Return True if a classic group with members may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """Return True if a consumer group with members may become a classic group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


def upgraded(
    group: KafkaGroup,
    policy: MigrationPolicy,
    topics_of: Callable[[Iterable[bytes]], GroupTopics],
    now: float,
) -> ConsumerGroup:
    """Return a consumer group with the members of a classic group, which stays as it is. Raises
    MemberRefused.
    """
    if not policy.upgrades:
        raise _refused(group, "online upgrade is disabled")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _refused(group, "the group does not use the consumer embedded protocol")
    if len(group.members) >= GROUP_MEMBERS_MAX:
        raise MemberRefused(Code.GROUP_MAX_SIZE_REACHED)
    if group.size > UPGRADE_BYTES_MAX:
        raise _refused(group, f"its members' metadata exceeds {UPGRADE_BYTES_MAX} bytes")
    try:
        known = [
            (member, parse_subscription(_metadata(member))) for member in group.members.values()
        ]
        topics = topics_of(frozenset().union(*(subscription.topics for _, subscription in known)))
        members = [_upgraded_member(member, wanted, topics) for member, wanted in known]
    except ProtocolError:
        raise _refused(group, "the embedded consumer protocol is malformed") from None
    modern = ConsumerGroup(group.name, may_downgrade=policy.downgrades)
    modern.adopt(members, group.generation, topics, now)
    return modern


def _refused(group: KafkaGroup, reason: str) -> MemberRefused:
    name = group.name.decode(errors="replace")
    text = f"Cannot upgrade classic group {name} to consumer group because {reason}."
    return MemberRefused(Code.GROUP_ID_NOT_FOUND, text)


def _metadata(member: KafkaMember) -> bytes:
    """Return a member's subscription: all its protocols have the same topics."""
    return next(iter(member.protocols.values()))


def _upgraded_member(
    member: KafkaMember, wanted: MemberSubscription, topics: GroupTopics
) -> ConsumerMember:
    assigned: Places = frozenset()
    if member.assignment:
        assigned = frozenset(_places(parse_assignment(member.assignment), topics))
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        member.client,
        rebalance_s=member.rebalance_s,
        topics=frozenset(wanted.topics),
        assigned=assigned,
        classic=ClassicSide(member.session_s, member.protocols, wanted.version),
    )


def _places(partitions: dict[bytes, list[int]], topics: GroupTopics) -> Iterator[Place]:
    """The partitions that exist: a leader is a client, and may assign others."""
    for name, indexes in partitions.items():
        topic_id = topics.ids.get(name)
        if topic_id is not None:
            count = topics.counts[topic_id]
            yield from ((topic_id, index) for index in indexes if 0 <= index < count)


def downgrade(modern: ConsumerGroup, group: KafkaGroup, now: float) -> None:
    """Move the members of a consumer group, all of the classic protocol, to a new classic group.

    They join again with their ids, unless a static member has just replaced the last member of the
    consumer protocol: then the assignments stand.
    """
    members = []
    for member in modern.members.values():
        assert member.classic is not None
        members.append(
            KafkaMember(
                member.member_id,
                member.instance_id,
                member.client,
                member.classic.session_s,
                member.rebalance_s,
                member.classic.protocols,
                now + member.classic.session_s,
                assignment=assignment_of(
                    named_partitions(modern.topics, member.target), member.classic.version
                ),
            )
        )
    group.adopt(members, modern.epoch, now, rebalances=not modern.stands)


def named_partitions(topics: GroupTopics, places: Places) -> dict[bytes, list[int]]:
    """Return partitions by the names of topics; those of deleted topics are left out."""
    names = {topic_id: name for name, topic_id in topics.ids.items()}
    partitions: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        if topic_id in names:
            partitions.setdefault(names[topic_id], []).append(index)
    return partitions
