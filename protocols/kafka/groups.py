"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the members of a group share its partitions.

The leader assigns the partitions, in bytes that these handlers pass on unread. A member waits in
its handler until the group wakes it with an answer. One task for each group removes dead
members when their time is up; it runs on some member's connection, and moves on when that ends.
"""

from __future__ import annotations

import math

import trio

from braidlog.broker.errors import BrokerError
from braidlog.protocols.kafka.consumer_group import ConsumerGroup
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.membership import (
    MEMBER_BYTES_MAX,
    GroupState,
    KafkaGroup,
    MemberRefused,
)
from braidlog.protocols.kafka.roster import KafkaMember
from braidlog.protocols.kafka.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest, JoinGroupResponse
from braidlog.protocols.kafka.wire.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest, SyncGroupResponse

# Sessions: Kafka's own range begins at 6 s; shorter sessions are accepted for quick tests.
SESSION_MS_MIN = 1000
SESSION_MS_MAX = 1_800_000
REBALANCE_MS_MAX = 24 * 3_600_000  # Nobody waits longer for members that do not come.
MEMBER_EPOCHS_VERSION = 9  # From here on an OffsetCommit has the epoch of a consumer's protocol.
LEAVES_VERSION = 3  # From here on a LeaveGroup names several members.
SKIP_VERSION = 9  # from here on a leader can be told that the assignments stand
PROMISE_VERSION = 4  # from here on a member is given an id before it joins
MOVED_LOOK_S = 1.0  # Between two checks whether a group has moved to another broker.


async def join_group(context: KafkaContext, request: JoinGroupRequest) -> KafkaAnswer:
    """Join a group: answered once all former members have joined, or the time for it is up."""
    try:
        return KafkaAnswer(await _join(context, request))
    except MemberRefused as error:
        member_id = request.member_id or b""
        return KafkaAnswer(JoinGroupResponse(error_code=error.code, member_id=member_id))


async def _join(context: KafkaContext, request: JoinGroupRequest) -> JoinGroupResponse:
    name = checked_name(context, request.group_id)
    if not SESSION_MS_MIN <= request.session_timeout_ms <= SESSION_MS_MAX:
        raise MemberRefused(Code.INVALID_SESSION_TIMEOUT)
    if request.rebalance_timeout_ms > REBALANCE_MS_MAX:
        raise MemberRefused(Code.INVALID_REQUEST)
    groups = context.groups
    groups.check_room(
        len(name) + sum(len(protocol.metadata or b"") for protocol in request.protocols)
    )
    group = groups.get(name)
    client_id = context.client_id or b""
    now = trio.current_time()
    anew = not request.member_id and request.group_instance_id is None
    if anew and context.version >= PROMISE_VERSION:
        promised = group.promise(client_id, now, request.session_timeout_ms / 1000)
        groups.weigh(group)
        return JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id=promised)
    member = group.admit(request, context.client, now)
    groups.settle(group)
    context.presence.heard(group, member)
    group.park(member)
    is_answered = False
    try:
        while group.state is GroupState.PREPARING and group.roster.has(member):
            await _wait(context, group, member)
        is_answered = True
    finally:
        group.unpark(member, trio.current_time(), is_answered=is_answered)
    _check_in(group, member)
    return group.joined_reply(member.member_id, may_skip=context.version >= SKIP_VERSION)


async def _wait(context: KafkaContext, group: KafkaGroup, member: KafkaMember) -> None:
    """Return when the group has something for the member.

    Raises MemberRefused if another broker coordinates the group now: the other members learn that
    with their next request, and do not join here.
    """
    is_alone = not context.broker.placement.others()
    await context.groups.wait(member, math.inf if is_alone else MOVED_LOOK_S)
    if not context.coordinates(group.name):
        raise MemberRefused(Code.NOT_COORDINATOR)


def _check_in(group: KafkaGroup, member: KafkaMember) -> None:
    """Check that it is still a member. Raises MemberRefused. A static member that was replaced is
    fenced: if it rejoined, the two would replace each other for ever.
    """
    if group.roster.has(member):
        return
    instance = member.instance_id
    other = None if instance is None else group.roster.instance(instance)
    is_fenced = other is not None and other.member_id != member.member_id
    raise MemberRefused(Code.FENCED_INSTANCE_ID if is_fenced else Code.UNKNOWN_MEMBER_ID)


async def sync_group(context: KafkaContext, request: SyncGroupRequest) -> KafkaAnswer:
    """Give a member its assignment: the leader is answered at once, the others wait for it."""
    try:
        group, assignment = await _sync(context, request)
    except MemberRefused as error:
        return KafkaAnswer(SyncGroupResponse(error_code=error.code))
    reply = SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )
    return KafkaAnswer(reply)


async def _sync(context: KafkaContext, request: SyncGroupRequest) -> tuple[KafkaGroup, bytes]:
    group, member = _member(context, request)
    named, known = request.protocol_name, group.protocol_name
    if request.protocol_type not in (None, group.protocol_type) or named not in (None, known):
        raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is GroupState.COMPLETING and member.member_id == group.leader:
        assignments = {
            assignment.member_id: assignment.assignment or b""
            for assignment in request.assignments
            if assignment.member_id is not None
        }
        if any(len(assignment) > MEMBER_BYTES_MAX for assignment in assignments.values()):
            raise MemberRefused(Code.INVALID_REQUEST)
        context.groups.check_room(sum(map(len, assignments.values())))
        context.groups.changing(group, lambda now: group.assign(assignments, now))
    member.due = trio.current_time() + max(member.rebalance_s, member.session_s)
    while (
        group.state is GroupState.COMPLETING
        and group.generation == request.generation_id
        and group.roster.has(member)
    ):
        await _wait(context, group, member)
    _check_in(group, member)
    member.heard(trio.current_time())
    if group.state is not GroupState.STABLE or group.generation != request.generation_id:
        raise MemberRefused(Code.REBALANCE_IN_PROGRESS)
    return group, member.assignment


def heartbeat(context: KafkaContext, request: HeartbeatRequest) -> KafkaAnswer:
    """Note that a member is alive; the answer says whether it has to rejoin."""
    try:
        group, _ = _member(context, request)
    except MemberRefused as error:
        return KafkaAnswer(HeartbeatResponse(error_code=error.code))
    code = Code.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else Code.NONE
    return KafkaAnswer(HeartbeatResponse(error_code=code))


def leave_group(context: KafkaContext, request: LeaveGroupRequest) -> KafkaAnswer:
    """End memberships; the remaining members rebalance."""
    try:
        group = context.groups.find(checked_name(context, request.group_id))
    except MemberRefused as error:
        return KafkaAnswer(LeaveGroupResponse(error_code=error.code))
    if context.version < LEAVES_VERSION:
        code = _leave(context, group, request.member_id, None)
        return KafkaAnswer(LeaveGroupResponse(error_code=code))
    left = [
        MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=_leave(context, group, member.member_id, member.group_instance_id),
        )
        for member in request.members
    ]
    return KafkaAnswer(LeaveGroupResponse(members=left))


def _leave(
    context: KafkaContext,
    group: KafkaGroup | None,
    member_id: bytes | None,
    instance_id: bytes | None,
) -> Code:
    if group is None:
        return Code.UNKNOWN_MEMBER_ID
    code = group.leave(member_id, instance_id, trio.current_time())
    context.groups.settle(group)
    return code


def check_commit(
    context: KafkaContext,
    group: bytes,
    generation: int,
    member_id: bytes | None,
    instance_id: bytes | None,
) -> Code:
    """Return the code of a member's commit; a commit that names no member is always allowed."""
    if generation < 0 and not member_id and instance_id is None:
        return Code.NONE
    try:
        name = checked_name(context, group)
        modern = context.groups.find_modern(name)
        if modern is not None and modern.members:
            check_member_epoch(context, modern, generation, member_id, instance_id)
            return Code.NONE
        group_found = context.groups.find(name)
        if generation < 0 and (group_found is None or not group_found.members):
            return Code.NONE  # A consumer that joins no group: its name decides nothing.
        if group_found is None:
            return Code.UNKNOWN_MEMBER_ID
        member = group_found.check(member_id, instance_id, generation)
    except MemberRefused as error:
        return error.code
    context.presence.heard(group_found, member)
    return Code.REBALANCE_IN_PROGRESS if group_found.state is GroupState.COMPLETING else Code.NONE


def check_member_epoch(
    context: KafkaContext,
    group: ConsumerGroup,
    epoch: int,
    member_id: bytes | None,
    instance_id: bytes | None,
) -> None:
    """Check the member of the consumer protocol that commits. Raises MemberRefused."""
    member = group.find(member_id or b"", instance_id)
    if context.version < MEMBER_EPOCHS_VERSION:  # Such a client has no word for a stale epoch.
        raise MemberRefused(Code.UNSUPPORTED_VERSION)
    if epoch != member.epoch:
        raise MemberRefused(Code.STALE_MEMBER_EPOCH)


def _member(
    context: KafkaContext, request: SyncGroupRequest | HeartbeatRequest
) -> tuple[KafkaGroup, KafkaMember]:
    """The member that sent a request. Raises MemberRefused."""
    group = context.groups.find(checked_name(context, request.group_id))
    if group is None:
        raise MemberRefused(Code.UNKNOWN_MEMBER_ID)
    member = group.check(request.member_id, request.group_instance_id, request.generation_id)
    context.presence.heard(group, member)
    return group, member


def checked_name(context: KafkaContext, name: bytes | None) -> bytes:
    """Return the name of a group that this broker coordinates. Raises MemberRefused."""
    if not name:
        raise MemberRefused(Code.INVALID_GROUP_ID)
    if not context.coordinates(name):
        raise MemberRefused(Code.NOT_COORDINATOR)
    try:
        context.check_group(name)
    except BrokerError as error:
        context.refused(error)
        raise MemberRefused(Code.GROUP_AUTHORIZATION_FAILED) from error
    return name
