"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members in a consumer group (KIP-848).

The broker assigns the partitions. No request waits: a classic member learns by the error
REBALANCE_IN_PROGRESS that it has to join again. Its subscription says which partitions it still
has, its generation is the member's epoch, and SyncGroup returns its partitions.

Rules: `classicGroupJoinToConsumerGroup` and its neighbours in GroupMetadataManager of apache/kafka
4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka.classic_group import (
    GROUP_MEMBERS_MAX,
    MemberRefused,
    new_member_id,
    protocols_of,
)
from braidlog.protocols.kafka.consumer_member import ClassicSide, ConsumerMember, MemberWishes
from braidlog.protocols.kafka.consumer_protocol import (
    PROTOCOL_TYPE,
    MemberSubscription,
    assignment_of,
    parse_subscription,
)
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_topics import may_name, topics_of
from braidlog.protocols.kafka.migration import named_partitions
from braidlog.protocols.kafka.wire.join_group import JoinGroupResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braidlog.protocols.kafka.assignors import Places
    from braidlog.protocols.kafka.consumer_group import ConsumerGroup
    from braidlog.protocols.kafka.context import KafkaContext
    from braidlog.protocols.kafka.wire.heartbeat import HeartbeatRequest
    from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest
    from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest

PROMISE_VERSION = 4  # From here on a member is given an id before it joins.


def join(
    context: KafkaContext, group: ConsumerGroup, request: JoinGroupRequest
) -> JoinGroupResponse:
    """Add a member, or bring a member nearer to its target. Raises MemberRefused."""
    protocols = protocols_of(request.protocols)
    member_id, instance_id = request.member_id or b"", request.group_instance_id
    if member_id not in group.members and len(group.members) >= GROUP_MEMBERS_MAX:
        raise MemberRefused(Code.GROUP_MAX_SIZE_REACHED)
    is_served = request.protocol_type == PROTOCOL_TYPE and protocols
    if not is_served or not group.supports(protocols, member_id):
        raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
    has_id = bool(member_id)
    member_id = member_id or new_member_id(context.client_id or b"")
    if not has_id and instance_id is None and context.version >= PROMISE_VERSION:
        return JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id=member_id)
    if has_id and instance_id is not None:
        group.find(member_id, instance_id)
    subscription = _subscription(protocols)
    session_s, rebalance_ms = request.session_timeout_ms / 1000, request.rebalance_timeout_ms
    wanted = MemberWishes(
        # A member gets no partitions of topics that its client may not see.
        frozenset(name for name in subscription.topics if may_name(context, name)),
        pattern=b"",
        rebalance_s=rebalance_ms / 1000 if rebalance_ms > 0 else session_s,
    )
    classic = ClassicSide(session_s, protocols, subscription.version)
    now = trio.current_time()
    member = group.join(member_id, instance_id, context.client, wanted, now, classic=classic)
    _assign(context, group, now)
    group.reconcile(member, _owned(group, subscription), now)
    group.await_step(member, now)  # It has to send a SyncGroup.
    reply = JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=classic.protocol_name,
        member_id=member_id,
    )
    context.groups.note_modern_change(group)
    return reply


def _subscription(protocols: Mapping[bytes, bytes]) -> MemberSubscription:
    """Return the topics and the owned partitions, which all protocols of a member share."""
    try:
        return parse_subscription(next(iter(protocols.values())))
    except ProtocolError:
        raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL) from None


def _owned(group: ConsumerGroup, subscription: MemberSubscription) -> Places:
    ids = group.topics.ids
    return frozenset(
        (ids[name], index)
        for name, indexes in subscription.owned.items()
        if name in ids
        for index in indexes
    )


def _assign(context: KafkaContext, group: ConsumerGroup, now: float) -> None:
    if group.wants_topics(now):
        group.assign(topics_of(context, group.names()), now)


def sync(group: ConsumerGroup, request: SyncGroupRequest) -> bytes:
    """Return a member's partitions. Raises MemberRefused."""
    member, classic = _member(group, request)
    has_type = request.protocol_type in (None, PROTOCOL_TYPE)
    if not has_type or request.protocol_name not in (None, classic.protocol_name):
        raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
    now = trio.current_time()
    if member.epoch < group.target_epoch and not member.revoking:
        group.await_step(member, now)
        raise MemberRefused(Code.REBALANCE_IN_PROGRESS)
    group.end_step(member, now)
    return assignment_of(named_partitions(group.topics, member.assigned), classic.version)


def heartbeat(context: KafkaContext, group: ConsumerGroup, request: HeartbeatRequest) -> Code:
    """Note that a member is alive. Return whether it has to join again. Raises MemberRefused."""
    member, _ = _member(group, request)
    now = trio.current_time()
    group.heard(member, now)
    _assign(context, group, now)
    if not group.must_rejoin(member):
        return Code.NONE
    group.await_step(member, now)
    return Code.REBALANCE_IN_PROGRESS


def leave(
    context: KafkaContext, group: ConsumerGroup, member_id: bytes | None, instance_id: bytes | None
) -> Code:
    """End the membership of a member of either protocol; the others share its partitions."""
    try:
        member = group.find_leaving(member_id or b"", instance_id)
    except MemberRefused as error:
        return error.code
    group.remove(member, trio.current_time())
    context.groups.note_modern_change(group)
    return Code.NONE


def _member(
    group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest
) -> tuple[ConsumerMember, ClassicSide]:
    """Return the member that sent a request. Raises MemberRefused."""
    member = group.find(request.member_id or b"", request.group_instance_id)
    if member.classic is None:
        raise MemberRefused(Code.UNKNOWN_MEMBER_ID)
    if request.generation_id != member.epoch:
        raise MemberRefused(Code.ILLEGAL_GENERATION)
    return member, member.classic
