"""ConsumerGroupHeartbeat: members of the consumer protocol (KIP-848), to which the broker assigns.

A member says everything in its heartbeats: that it joins, its topics, the partitions that it has,
that it leaves. No request waits. Texts of refusals are Kafka's.
"""

from __future__ import annotations

import zlib
from collections.abc import Coroutine
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import trio

from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.assignors import ASSIGNORS, NOWHERE, Places, by_topic
from braidlog.protocols.kafka.classic_group import MemberRefused, new_member_id
from braidlog.protocols.kafka.classic_groups import REBALANCE_MS_MAX, checked_name
from braidlog.protocols.kafka.consumer_group import ConsumerGroup
from braidlog.protocols.kafka.consumer_member import (
    AWAY_EPOCH,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerMember,
    MemberWishes,
)
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_configs import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_HEARTBEAT,
    CONSUMER_SESSION,
    settings_of,
)
from braidlog.protocols.kafka.group_topics import may_name, topics_of
from braidlog.protocols.kafka.names import visible
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OWN_ID_VERSION = 1  # From here on a member chooses its id before it joins.
SOON_S = 1.0  # Between heartbeats while the group moves to a new assignment.
PATTERN_LOOK_S = 10.0  # Between two looks at which topics match a pattern; Kafka 10 min.
PATTERN_BYTES_MAX = 1000
PATTERN_INSTRUCTIONS_MAX = 1000  # Of a compiled pattern: a name takes some 0.2 ms at most.
TOPICS_PER_TURN = 200

PATTERNS_ARE_SERVED = find_spec("re2") is not None


def consumer_group_heartbeat(
    context: KafkaContext, request: ConsumerGroupHeartbeatRequest
) -> KafkaAnswer | Coroutine[Any, Any, KafkaAnswer]:
    """Note that a member is alive; tell it which partitions it may have now."""
    try:
        group, member = _admitted(context, request)
        if member is None:  # It has left.
            return KafkaAnswer(_left(request))
        now = trio.current_time()
        if member.pattern and now >= member.matched_at + PATTERN_LOOK_S:
            return _beat_with_pattern(context, request, group, member)
        return KafkaAnswer(_answered(context, request, group, member))
    except MemberRefused as error:
        return _refused(error)


async def _beat_with_pattern(
    context: KafkaContext,
    request: ConsumerGroupHeartbeatRequest,
    group: ConsumerGroup,
    member: ConsumerMember,
) -> KafkaAnswer:
    """Look which topics match, with turns for others; then go on."""
    matches = _pattern(member.pattern)
    names = context.names
    matching: set[bytes] = set()
    topics = list(context.broker.topics.list(names.tenant, names.namespace))
    async for topic in in_turns(topics, TOPICS_PER_TURN):
        if matches(topic.name.topic) and visible(topic.name) and context.may_see(topic):
            matching.add(topic.name.topic.encode())
    group.match(member, frozenset(matching), trio.current_time())
    if group.members.get(member.member_id) is not member:
        return _refused(MemberRefused(Code.UNKNOWN_MEMBER_ID))
    return KafkaAnswer(_answered(context, request, group, member))


def _refused(error: MemberRefused) -> KafkaAnswer:
    reason = error.reason.encode() or None
    return KafkaAnswer(ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=reason))


def _left(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )


def _admitted(
    context: KafkaContext, request: ConsumerGroupHeartbeatRequest
) -> tuple[ConsumerGroup, ConsumerMember | None]:
    """Return the group and the member, None if it leaves. Raises MemberRefused."""
    _check(context, request)
    name = checked_name(context, request.group_id)
    _check_room(context, request, name)
    now, epoch = trio.current_time(), request.member_epoch
    member_id = request.member_id or b""
    if epoch == JOIN_EPOCH:
        return _joined(context, request, name, now)
    text = name.decode(errors="replace")
    group = context.groups.find_modern(name)
    if group is None or not group.exists(now):
        if epoch > JOIN_EPOCH:  # A member from before a restart: after this code it joins again.
            reason = f"Member {member_id.decode(errors='replace')} is not a member of group {text}."
            raise MemberRefused(Code.UNKNOWN_MEMBER_ID, reason)
        raise MemberRefused(Code.GROUP_ID_NOT_FOUND, f"Consumer group {text} not found.")
    try:
        member = group.find(member_id, request.instance_id)
    except MemberRefused as error:
        shown = member_id.decode(errors="replace")
        raise MemberRefused(error.code, _why(error.code, shown, text, request)) from None
    if epoch == LEAVE_EPOCH:
        group.remove(member, now)
        context.groups.note_modern_change(group)
        return group, None
    if epoch == AWAY_EPOCH:
        group.go_away(member)
        return group, None
    group.check_epoch(member, epoch, _owned(request))
    wanted = _subscription(context, request)
    group.speak(member, None)
    group.subscribe(member, wanted)
    context.groups.weigh(group)
    return group, member


def _check_room(context: KafkaContext, request: ConsumerGroupHeartbeatRequest, name: bytes) -> None:
    """Check that what a heartbeat says can be kept. Raises MemberRefused."""
    topics, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    if request.member_epoch != JOIN_EPOCH and not topics and not pattern and not request.rack_id:
        return  # Nothing new.
    texts = (request.member_id, request.instance_id, request.rack_id, pattern, context.client_id)
    context.groups.check_member(name, texts, topics or ())


def _why(code: Code, member_id: str, group: str, request: ConsumerGroupHeartbeatRequest) -> str:
    """Return Kafka's text for a member that is not found."""
    instance = (request.instance_id or b"").decode(errors="replace")
    if code == Code.FENCED_INSTANCE_ID:
        return (
            f"Static member {member_id} with instance id {instance} was fenced by another member."
        )
    if instance:
        return f"Instance id {instance} is unknown, or member {member_id} is not in group {group}."
    return f"Member {member_id} is not a member of group {group}."


def _joined(
    context: KafkaContext, request: ConsumerGroupHeartbeatRequest, name: bytes, now: float
) -> tuple[ConsumerGroup, ConsumerMember]:
    wanted = _subscription(context, request)
    member_id = request.member_id or new_member_id(context.client_id or b"")
    groups = context.groups
    group = groups.upgrade(name, partial(topics_of, context)) or groups.get_modern(name)
    try:
        member = group.join(member_id, request.instance_id, context.client, wanted, now)
    finally:
        groups.note_modern_change(group)
    group.restart(member, now)
    return group, member


def _answered(
    context: KafkaContext,
    request: ConsumerGroupHeartbeatRequest,
    group: ConsumerGroup,
    member: ConsumerMember,
) -> ConsumerGroupHeartbeatResponse:
    now, settings = trio.current_time(), settings_of(context, group.name)
    group.set_times(settings.seconds(CONSUMER_SESSION), settings.own_seconds(CONSUMER_ASSIGNMENT))
    if group.wants_topics(now):
        group.assign(topics_of(context, group.names()), now)
    owned = NOWHERE if request.member_epoch == JOIN_EPOCH else _owned(request)
    has_changed = group.reconcile(member, owned, now)
    is_told = has_changed or _is_full(request)
    interval_s = SOON_S
    if group.has_its_share(member):
        interval_s = settings.seconds(CONSUMER_HEARTBEAT)
        if is_told:
            interval_s = first_interval_s(member, interval_s)
    return ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=int(interval_s * 1000),
        assignment=_assignment(member) if is_told else None,
    )


def first_interval_s(member: ConsumerMember, interval_s: float) -> float:
    """Return the time to the heartbeat after a change, at most `interval_s`; the time differs by
    the member's random id.

    Members that joined together would else go on sending their heartbeats together, and the group
    would hear of the next change up to `interval_s` later.
    """
    return SOON_S + (interval_s - SOON_S) * zlib.crc32(member.member_id) / (1 << 32)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return True if a member says everything: it joins, or has lost an answer."""
    if request.member_epoch == JOIN_EPOCH:
        return True
    topics, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    has_topics = topics is not None or pattern is not None
    return has_topics and request.rebalance_timeout_ms >= 0 and request.topic_partitions is not None


def _assignment(member: ConsumerMember) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(member.assigned).items()
        ]
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Places | None:
    """Return what the member has now; None: as before."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        (topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions
    )


def _subscription(context: KafkaContext, request: ConsumerGroupHeartbeatRequest) -> MemberWishes:
    """Return what a heartbeat says of the subscription. Raises MemberRefused."""
    topics = request.subscribed_topic_names
    names = None if topics is None else frozenset(name for name in topics if name is not None)
    pattern = request.subscribed_topic_regex
    for name in names or ():
        if not may_name(context, name):
            raise MemberRefused(Code.TOPIC_AUTHORIZATION_FAILED)
    if pattern:
        _pattern(pattern)
    timeout_ms = request.rebalance_timeout_ms
    return MemberWishes(
        names,
        pattern,
        request.server_assignor,
        request.rack_id,
        timeout_ms / 1000 if timeout_ms >= 0 else None,
    )


def _pattern(text: bytes) -> Callable[[str], object]:
    """Return a function that tries a topic's name. Raises MemberRefused."""
    shown = text.decode(errors="replace")
    refusal = f"SubscribedTopicRegex `{shown}` is not a valid regular expression: "
    if not PATTERNS_ARE_SERVED:
        raise MemberRefused(Code.INVALID_REGULAR_EXPRESSION, refusal + "google-re2 is missing")
    import re2  # 2 MB, for clients with patterns alone.

    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    try:
        compiled = re2.compile(shown, options=options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise MemberRefused(Code.INVALID_REGULAR_EXPRESSION, refusal + reason) from None
    if len(text) > PATTERN_BYTES_MAX or compiled.programsize > PATTERN_INSTRUCTIONS_MAX:
        raise MemberRefused(Code.INVALID_REGULAR_EXPRESSION, refusal + "it is too long")
    matches: Callable[[str], object] = compiled.fullmatch
    return matches


def _check(context: KafkaContext, request: ConsumerGroupHeartbeatRequest) -> None:
    """Check the fields of a request, in Kafka's order. Raises MemberRefused."""
    epoch = request.member_epoch
    may_have_no_id = context.version < OWN_ID_VERSION and epoch == JOIN_EPOCH
    topics, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    joins, timeout_ms = epoch == JOIN_EPOCH, request.rebalance_timeout_ms
    refusals = (
        (not request.member_id and not may_have_no_id, "MemberId can't be empty."),
        (not request.group_id, "GroupId can't be empty."),
        (request.instance_id == b"", "InstanceId can't be empty."),
        (request.rack_id == b"", "RackId can't be empty."),
        (joins and timeout_ms < 0, "RebalanceTimeoutMs must be provided in first request."),
        (
            joins and (request.topic_partitions is None or len(request.topic_partitions) > 0),
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            joins and topics is None and pattern is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining.",
        ),
        (epoch == AWAY_EPOCH and request.instance_id is None, "InstanceId can't be null."),
        (epoch < AWAY_EPOCH, "MemberEpoch is invalid."),
        (timeout_ms > REBALANCE_MS_MAX, "RebalanceTimeoutMs is too long."),
    )
    for is_wrong, reason in refusals:
        if is_wrong:
            raise MemberRefused(Code.INVALID_REQUEST, reason)
    assignor = request.server_assignor
    if assignor is not None and assignor not in ASSIGNORS:
        supported = b", ".join(ASSIGNORS).decode()
        reason = f"ServerAssignor {assignor.decode(errors='replace')} is not supported."
        raise MemberRefused(
            Code.UNSUPPORTED_ASSIGNOR, f"{reason} Supported assignors: {supported}."
        )
