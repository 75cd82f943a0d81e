"""ShareGroupHeartbeat: the members of share groups (KIP-932).

Texts of refusals are Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.errors import InvalidName
from braidlog.protocols.kafka.assignors import by_topic
from braidlog.protocols.kafka.classic_group import MemberRefused
from braidlog.protocols.kafka.classic_groups import checked_name
from braidlog.protocols.kafka.consumer_groups import first_interval_s
from braidlog.protocols.kafka.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerMember,
    MemberWishes,
)
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_configs import SHARE_ASSIGNMENT, settings_of
from braidlog.protocols.kafka.group_topics import may_name, topics_of
from braidlog.protocols.kafka.wire.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.kafka.share_group import ShareGroup


def share_group_heartbeat(
    context: KafkaContext, request: ShareGroupHeartbeatRequest
) -> KafkaAnswer:
    """Note that a member is alive; tell the member its partitions."""
    try:
        _check(request)
        return KafkaAnswer(_beat(context, request, checked_name(context, request.group_id)))
    except MemberRefused as error:
        reason = error.reason.encode() or None
        return KafkaAnswer(ShareGroupHeartbeatResponse(error_code=error.code, error_message=reason))


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Check the fields of a request, in Kafka's order. Raises MemberRefused."""
    epoch, topics = request.member_epoch, request.subscribed_topic_names
    refusals = (
        (not request.member_id, "MemberId can't be empty."),
        (not request.group_id, "GroupId can't be empty."),
        (request.rack_id == b"", "RackId can't be empty."),
        (epoch == JOIN_EPOCH and not topics, "SubscribedTopicNames must be set in first request."),
        (epoch < LEAVE_EPOCH, "MemberEpoch is invalid."),
    )
    for is_wrong, reason in refusals:
        if is_wrong:
            raise MemberRefused(Code.INVALID_REQUEST, reason)


def _beat(
    context: KafkaContext, request: ShareGroupHeartbeatRequest, name: bytes
) -> ShareGroupHeartbeatResponse:
    groups, now, member_id = context.groups, trio.current_time(), request.member_id or b""
    if request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names or request.rack_id:
        texts = (member_id, request.rack_id, context.client_id)
        groups.check_member(name, texts, request.subscribed_topic_names or ())
    wanted = _wishes(context, request)
    if request.member_epoch == JOIN_EPOCH:
        _check_others(context, name, wanted.topics or frozenset())
        group = groups.get_share(name)
        member = group.join(member_id, None, context.client, wanted, now)
        group.restart(member, now)
    else:
        group = known_group(context, name)
        member = _known(group, member_id)
        if request.member_epoch == LEAVE_EPOCH:
            group.remove(member, now)
            groups.weigh(group)
            return ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVE_EPOCH)
        group.check_epoch(member, request.member_epoch, None)
        group.subscribe(member, wanted)
    groups.weigh(group)
    settings = settings_of(context, name)
    session_s = settings.seconds("share.session.timeout.ms")
    group.set_times(session_s, settings.own_seconds(SHARE_ASSIGNMENT))
    if group.wants_topics(now):
        group.assign(topics_of(context, group.names()), now)
    has_changed = group.reconcile(member, None, now)
    is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
    is_told = has_changed or is_full
    interval_s = settings.seconds("share.heartbeat.interval.ms")
    if is_told:
        interval_s = first_interval_s(member, interval_s)
    return ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=int(interval_s * 1000),
        assignment=_assignment(member) if is_told else None,
    )


def known_group(context: KafkaContext, name: bytes) -> ShareGroup:
    """Return a share group that has or had members. Raises MemberRefused.

    Members are kept in memory: after a restart of the broker a member finds no group. With Kafka's
    code for a missing group clients end; this code makes them join again.
    """
    group = context.groups.find_share(name)
    if group is None or not group.exists(trio.current_time()):
        shown = name.decode(errors="replace")
        raise MemberRefused(Code.UNKNOWN_MEMBER_ID, f"Share group {shown} not found.")
    return group


def _known(group: ShareGroup, member_id: bytes) -> ConsumerMember:
    try:
        return group.find(member_id)
    except MemberRefused as error:
        shown, name = (text.decode(errors="replace") for text in (member_id, group.name))
        reason = f"Member {shown} is not a member of group {name}."
        raise MemberRefused(error.code, reason) from None


def _wishes(context: KafkaContext, request: ShareGroupHeartbeatRequest) -> MemberWishes:
    """Return the subscription of a heartbeat. Raises MemberRefused."""
    topics = request.subscribed_topic_names
    names = None if topics is None else frozenset(name for name in topics if name is not None)
    for name in names or ():
        if not may_name(context, name):
            raise MemberRefused(Code.TOPIC_AUTHORIZATION_FAILED)
    return MemberWishes(names, rack_id=request.rack_id)


def _check_others(context: KafkaContext, group: bytes, names: frozenset[bytes]) -> None:
    """Check that no consumer of another kind of subscription reads these topics under the group's
    name. Raises MemberRefused.
    """
    for name in names:
        topic = _topic(context, name)
        for partition in () if topic is None else topic.partitions:
            dispatcher = context.broker.dispatchers.find(partition, group)
            is_other = dispatcher is not None and dispatcher.kind is not SubscriptionKind.SHARED
            if is_other and dispatcher is not None and dispatcher.consumers:
                shown = group.decode(errors="replace")
                reason = f"{shown} has consumers of type {dispatcher.kind.value}."
                raise MemberRefused(Code.GROUP_ID_NOT_FOUND, reason)


def _topic(context: KafkaContext, name: bytes) -> Topic | None:
    try:
        return context.broker.topics.find(context.names.topic_name(name))
    except InvalidName:
        return None


def _assignment(member: ConsumerMember) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(member.assigned).items()
        ]
    )
