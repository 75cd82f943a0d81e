"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the members of a group share its partitions.

The leader assigns the partitions, in bytes that these handlers pass on unread. A member waits in
its handler until the group wakes it with an answer. One task for each group removes dead
members when their time is up; it runs on some member's connection, and moves on when that ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import trio

from braidlog.broker.errors import BrokerError
from braidlog.protocols.kafka import classic_members
from braidlog.protocols.kafka.assignors import Place
from braidlog.protocols.kafka.classic_group import (
    GroupState,
    KafkaGroup,
    MemberRefused,
)
from braidlog.protocols.kafka.classic_members import PROMISE_VERSION
from braidlog.protocols.kafka.consumer_group import ConsumerGroup
from braidlog.protocols.kafka.consumer_member import ConsumerMember
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.kept_bytes import MEMBER_BYTES_MAX
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
NO_PROTOCOL_VERSION = 7  # From here on a refused JoinGroup names no protocol.
PROTOCOL_NAMED_VERSION = 5  # From here on a SyncGroup names the protocol.
SESSION_MS_MIN = 1000
SESSION_MS_MAX = 1_800_000
REBALANCE_MS_MAX = 24 * 3_600_000  # Nobody waits longer for members that do not come.
MEMBER_EPOCHS_VERSION = 9  # From here on an OffsetCommit has the epoch of a consumer's protocol.
LEAVES_VERSION = 3  # From here on a LeaveGroup names several members.
SKIP_VERSION = 9  # from here on a leader can be told that the assignments stand
MOVED_LOOK_S = 1.0  # Between two checks whether a group has moved to another broker.


async def join_group(context: KafkaContext, request: JoinGroupRequest) -> KafkaAnswer:
    """Join a group: answered once all former members have joined, or the time for it is up."""
    try:
        return KafkaAnswer(await _join(context, request))
    except MemberRefused as error:
        member_id = request.member_id or b""
        return KafkaAnswer(_not_joined(context, error.code, member_id))


def _not_joined(context: KafkaContext, code: Code, member_id: bytes) -> JoinGroupResponse:
    protocol = None if context.version >= NO_PROTOCOL_VERSION else b""
    return JoinGroupResponse(error_code=code, protocol_name=protocol, member_id=member_id)


async def _join(context: KafkaContext, request: JoinGroupRequest) -> JoinGroupResponse:
    name = checked_name(context, request.group_id)
    if not SESSION_MS_MIN <= request.session_timeout_ms <= SESSION_MS_MAX:
        raise MemberRefused(Code.INVALID_SESSION_TIMEOUT)
    if request.rebalance_timeout_ms > REBALANCE_MS_MAX:
        raise MemberRefused(Code.INVALID_REQUEST)
    groups = context.groups
    texts = (request.member_id, request.group_instance_id, request.protocol_type, context.client_id)
    metadata = (protocol.metadata for protocol in request.protocols)
    groups.check_member(
        name, (*texts, *metadata), [protocol.name for protocol in request.protocols]
    )
    modern = groups.find_modern(name)
    if modern is not None and modern.members:
        return classic_members.join(context, modern, request)
    group = groups.get(name)
    client_id = context.client_id or b""
    now = trio.current_time()
    anew = not request.member_id and request.group_instance_id is None
    if anew and not (request.protocols and request.protocol_type):
        raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
    if anew and context.version >= PROMISE_VERSION:
        promised = group.promise(client_id, now, request.session_timeout_ms / 1000)
        groups.weigh(group)
        return _not_joined(context, Code.MEMBER_ID_REQUIRED, promised)
    member = group.admit(request, context.client, now)
    groups.note_change(group)
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
    if group.is_replaced:
        raise MemberRefused(Code.REBALANCE_IN_PROGRESS)
    instance = member.instance_id
    other = None if instance is None else group.roster.instance(instance)
    is_fenced = other is not None and other.member_id != member.member_id
    raise MemberRefused(Code.FENCED_INSTANCE_ID if is_fenced else Code.UNKNOWN_MEMBER_ID)


async def sync_group(context: KafkaContext, request: SyncGroupRequest) -> KafkaAnswer:
    """Give a member its assignment: the leader is answered at once, the others wait for it."""
    try:
        return KafkaAnswer(await _sync(context, request))
    except MemberRefused as error:
        return KafkaAnswer(SyncGroupResponse(error_code=error.code))


async def _sync(context: KafkaContext, request: SyncGroupRequest) -> SyncGroupResponse:
    named = request.protocol_name
    has_no_name = request.protocol_type is None or named is None
    if has_no_name and context.version >= PROTOCOL_NAMED_VERSION:
        raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
    modern = _modern(context, request.group_id)
    if modern is not None:
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=named,
            assignment=classic_members.sync(modern, request),
        )
    group, member = _member(context, request)
    known = group.protocol_name
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
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _modern(context: KafkaContext, group: bytes | None) -> ConsumerGroup | None:
    """Return a group of the consumer protocol with members, which has classic members, too. Raises
    MemberRefused.
    """
    modern = context.groups.find_modern(checked_name(context, group))
    return modern if modern is not None and modern.members else None


def heartbeat(context: KafkaContext, request: HeartbeatRequest) -> KafkaAnswer:
    """Note that a member is alive; the answer says whether it has to rejoin."""
    try:
        modern = _modern(context, request.group_id)
        if modern is not None:
            code = classic_members.heartbeat(context, modern, request)
            return KafkaAnswer(HeartbeatResponse(error_code=code))
        group, _ = _member(context, request)
    except MemberRefused as error:
        return KafkaAnswer(HeartbeatResponse(error_code=error.code))
    code = Code.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else Code.NONE
    return KafkaAnswer(HeartbeatResponse(error_code=code))


def leave_group(context: KafkaContext, request: LeaveGroupRequest) -> KafkaAnswer:
    """End memberships; the remaining members rebalance."""
    try:
        name = checked_name(context, request.group_id)
    except MemberRefused as error:
        return KafkaAnswer(LeaveGroupResponse(error_code=error.code))
    if context.version < LEAVES_VERSION:
        code = _leave(context, name, request.member_id, None)
        return KafkaAnswer(LeaveGroupResponse(error_code=code))
    left = [
        MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=_leave(context, name, member.member_id, member.group_instance_id),
        )
        for member in request.members
    ]
    return KafkaAnswer(LeaveGroupResponse(members=left))


def _leave(
    context: KafkaContext, name: bytes, member_id: bytes | None, instance_id: bytes | None
) -> Code:
    modern = context.groups.find_modern(name)
    if modern is not None and modern.members:
        return classic_members.leave(context, modern, member_id, instance_id)
    group = context.groups.find(name)
    if group is None:
        return Code.UNKNOWN_MEMBER_ID
    code = group.leave(member_id, instance_id, trio.current_time())
    context.groups.note_change(group)
    return code


def check_commit(
    context: KafkaContext,
    group: bytes,
    generation: int,
    member_id: bytes | None,
    instance_id: bytes | None,
    places: Iterable[tuple[bytes | None, int]] = (),
) -> Code:
    """Return the code of a member's commit for partitions of topics by name, or by id from
    TOPIC_IDS_VERSION on; a commit that names no member is always allowed, but for a share group
    with members, as in Kafka.
    """
    share = context.groups.find_share(group)
    if share is not None and share.members:
        return Code.GROUP_ID_NOT_FOUND
    if generation < 0 and not member_id and instance_id is None:
        return Code.NONE
    try:
        name = checked_name(context, group)
        modern = context.groups.find_modern(name)
        if modern is not None and modern.members:
            ids = modern.topics.ids
            known = ((ids.get(name or b"", name or b""), index) for name, index in places)
            committer = modern.find(member_id or b"", instance_id)
            check_member_epoch(context, committer, generation, known)
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
    context: KafkaContext, member: ConsumerMember, epoch: int, places: Iterable[Place] = ()
) -> None:
    """Check the epoch of a member of a consumer group that commits. Raises MemberRefused."""
    if member.classic is not None:
        if not member.may_commit(epoch, places):
            raise MemberRefused(Code.ILLEGAL_GENERATION)
        return
    if context.version < MEMBER_EPOCHS_VERSION:  # Such a client has no word for a stale epoch.
        raise MemberRefused(Code.UNSUPPORTED_VERSION)
    if not member.may_commit(epoch, places):
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


def checked_name(
    context: KafkaContext, name: bytes | None, *, is_coordinator: bool = True
) -> bytes:
    """Return the name of a group that the client may use, and that this broker coordinates unless
    that does not matter. Raises MemberRefused.
    """
    if not name:
        raise MemberRefused(Code.INVALID_GROUP_ID)
    if is_coordinator and not context.coordinates(name):
        raise MemberRefused(Code.NOT_COORDINATOR)
    try:
        context.check_group(name)
    except BrokerError as error:
        context.refused(error)
        raise MemberRefused(Code.GROUP_AUTHORIZATION_FAILED) from error
    return name
