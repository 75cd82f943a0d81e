"""A consumer group's members, leader and generation. Knows no clock, no broker.

Positions are not here: they belong to the subscription of the group's name. Nothing here outlives
the broker: after a restart members are unknown and rejoin. Rules: Kafka protocol guide, "Group
Membership API", and kafka/coordinator/group of apache/kafka 3.9.
"""

from __future__ import annotations

import enum
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from braidlog.protocols.kafka.consumer_protocol import PROTOCOL_TYPE
from braidlog.protocols.kafka.deadlines import Deadlines
from braidlog.protocols.kafka.errors import Code, CodeRefused
from braidlog.protocols.kafka.kept_bytes import ENTRY_BYTES, MEMBER_BYTES_MAX
from braidlog.protocols.kafka.roster import Client, KafkaMember, Roster
from braidlog.protocols.kafka.wire.describe_groups import DescribedGroupMember
from braidlog.protocols.kafka.wire.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

GROUP_MEMBERS_MAX = 1000  # The leader's answer lists all members.
# How long a group without members and positions exists: Kafka removes such groups every 10 minutes
# (offsets.retention.check.interval.ms).
EMPTY_KEPT_S = 600.0
# Members are called again for a deadline that is sooner by this: a process with a thousand members
# may end, and each end of a connection makes the next deadline a little sooner.
CALL_AGAIN_S = 0.5


class GroupState(enum.Enum):
    """The state of a group; the values are what tools show."""

    EMPTY = b"Empty"
    PREPARING = b"PreparingRebalance"  # Members must rejoin.
    COMPLETING = b"CompletingRebalance"  # The leader must send the assignments.
    STABLE = b"Stable"


class MemberRefused(CodeRefused):
    """A member's request was refused with this code."""


class KafkaGroup:
    """A group with its members in order of arrival.

    The owner looks again at `next_due`, and after each change of that time.
    """

    def __init__(
        self,
        name: bytes,
        *,
        call: Callable[[Client], None] = lambda client: None,
        initial_delay_s: float = 0.0,
    ) -> None:
        """Start without members. `call` asks a client to rejoin; a first generation waits
        `initial_delay_s` for more members.
        """
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = b""
        self.protocol_name = b""
        self.leader = b""
        self.roster = Roster()
        self.members: Mapping[bytes, KafkaMember] = self.roster.members
        self.promised: dict[bytes, float] = {}  # issued member ids -> deadline for joining
        self.join_due = 0.0  # deadline after which a rebalance continues without missing members
        self.begin_due = 0.0  # earliest start of a first generation
        self.emptied_at = -math.inf  # when the last member left
        self.watched = False  # a task wakes at the next member's deadline
        self.called_for = math.inf  # not watched: the deadline for which the members are called
        self.is_replaced = False  # The members are in a consumer group of this name now.
        self._call = call
        self._initial_delay_s = initial_delay_s
        self._promised_size = 0
        self._promise_dues: Deadlines[bytes] = Deadlines(self.promised.__contains__)

    # Joining.

    def admit(self, request: JoinGroupRequest, client: Client, now: float) -> KafkaMember:
        """Add or update a member, which then counts as joined. Raises MemberRefused."""
        protocols = protocols_of(request.protocols)
        self._check_protocols(request, protocols)
        member_id = request.member_id or b""
        known = self.members.get(member_id)
        instance = request.group_instance_id
        if instance is not None:
            if member_id:
                self._check_instance(member_id, instance)
            known = self.roster.instance(instance)
        elif known is not None:
            instance = known.instance_id
        if known is None and member_id and not self._take_promise(member_id):
            raise MemberRefused(Code.UNKNOWN_MEMBER_ID)
        if known is None and len(self.members) >= GROUP_MEMBERS_MAX:
            raise MemberRefused(Code.GROUP_MAX_SIZE_REACHED)
        session_s = request.session_timeout_ms / 1000
        rebalance_ms = request.rebalance_timeout_ms
        member = KafkaMember(
            member_id or new_member_id(client[0]),
            instance,
            client,
            session_s,
            rebalance_ms / 1000 if rebalance_ms > 0 else session_s,
            protocols,
            now + session_s,
        )
        self.protocol_type = request.protocol_type or b""
        self._enter(member, known, now)
        return member

    def promise(self, client_id: bytes, now: float, session_s: float) -> bytes:
        """Return a new member id with which a client then joins. Raises MemberRefused."""
        self.forget_promises(now)
        if len(self.promised) >= GROUP_MEMBERS_MAX:
            raise MemberRefused(Code.GROUP_MAX_SIZE_REACHED)
        member_id = new_member_id(client_id)
        self.promised[member_id] = due = now + session_s
        self._promised_size += ENTRY_BYTES + len(member_id)
        self._promise_dues.add(due, member_id, len(self.promised))
        return member_id

    def forget_promises(self, now: float) -> None:
        """Drop issued ids whose clients did not join in time."""
        for member_id in self._promise_dues.take_due(now):
            self._take_promise(member_id)

    def _take_promise(self, member_id: bytes) -> bool:
        """Drop an issued id; return False if it is none."""
        if self.promised.pop(member_id, None) is None:
            return False
        self._promised_size -= ENTRY_BYTES + len(member_id)
        return True

    def _enter(self, member: KafkaMember, known: KafkaMember | None, now: float) -> None:
        is_back = known is not None and known.member_id != member.member_id
        unchanged = known is not None and dict(known.protocols) == dict(member.protocols)
        leads = known is not None and known.member_id == self.leader
        if known is not None:
            member.assignment = known.assignment
        if is_back:  # A static member with a new id.
            assert known is not None
            self.roster.remove(known)
            if leads:
                self.leader, member.led_as = member.member_id, known.member_id
        self.roster.add(member)
        if self.state is GroupState.STABLE and is_back and self._choice() == self.protocol_name:
            return  # The assignments stand (KIP-345).
        if self.state is GroupState.COMPLETING and unchanged and not is_back:
            return
        if self.state is GroupState.STABLE and unchanged and not leads and not is_back:
            return
        if self.state is not GroupState.PREPARING:
            self._prepare(now, {member.member_id})
        self.advance(now)

    def _check_protocols(self, request: JoinGroupRequest, protocols: Mapping[bytes, bytes]) -> None:
        if not protocols or not request.protocol_type:
            raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or b""
        if len(self.members) == (member_id in self.members):
            return
        if request.protocol_type != self.protocol_type:
            raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
        if not self.roster.fits(protocols, member_id):
            raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)

    def _prepare(self, now: float, joined: set[bytes]) -> None:
        """Make all members rejoin, except members whose JoinGroup is not answered yet: their
        generation may have begun and ended before the answer.
        """
        if self.state is GroupState.EMPTY:
            self.begin_due = now + self._initial_delay_s
        self.state = GroupState.PREPARING
        for member in self.members.values():
            if not member.parked and member.member_id not in joined:
                self.roster.absent.add(member.member_id)
                self._call(member.client)
            member.wake()  # A SyncGroup that waits is refused.
        self.join_due = now + max(member.rebalance_s for member in self.members.values())

    def park(self, member: KafkaMember) -> None:
        """Note that a member's JoinGroup waits for the generation."""
        member.parked = True

    def unpark(self, member: KafkaMember, now: float, *, is_answered: bool) -> None:
        """Note that a member's JoinGroup waits no longer. Unanswered, its client went away: the
        member has not joined, and is dead when its session ends.
        """
        member.parked = False
        member.heard(now)
        if not is_answered and self.state is GroupState.PREPARING and self.roster.has(member):
            self.roster.absent.add(member.member_id)

    def advance(self, now: float) -> None:
        """Remove dead members; complete a rebalance once all have joined or the time is up."""
        if now < self.next_due():
            return
        for member in self.roster.take_dead(now, self._waits):
            self._remove(member, now)
        if self.state is not GroupState.PREPARING:
            return
        late = self.roster.absent
        if now < (self.join_due if late else self.begin_due):
            return
        for member_id in list(late):
            self.roster.remove(self.members[member_id])
        self._complete(now)

    def _waits(self, member: KafkaMember) -> bool:
        """Return True if the member waits for a rebalance: it lives as long as that."""
        is_absent = member.member_id in self.roster.absent
        return self.state is GroupState.PREPARING and not is_absent

    def _choice(self) -> bytes:
        """Return the protocol that the leader prefers among those that all members support."""
        return next(iter(self.roster.shared(self.members[self.leader].protocols)))

    def _complete(self, now: float) -> None:
        self.generation += 1
        self.roster.absent.clear()
        if not self.members:
            self.state, self.leader, self.protocol_name = GroupState.EMPTY, b"", b""
            self.emptied_at = now
            return
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.protocol_name = self._choice()
        self.state = GroupState.COMPLETING
        for member in self.members.values():
            member.led_as = b""
            self.roster.assign(member, b"")
            member.heard(now)
            member.wake()

    def joined_reply(self, member_id: bytes, *, may_skip: bool = True) -> JoinGroupResponse:
        """Return a member's JoinGroup answer after the generation's start. Raises MemberRefused.

        A static leader that has come back does not assign again. A client that can be told to skip
        the assignment leads; another client is shown its former id as the leader's (KIP-814).
        """
        member = self.members.get(member_id)
        if member is None:
            raise MemberRefused(Code.UNKNOWN_MEMBER_ID)
        leader = (not may_skip and member.led_as) or self.leader
        members: list[JoinGroupResponseMember] = []
        if member_id == leader:
            name = self.protocol_name
            members = [
                JoinGroupResponseMember(
                    member_id=other.member_id,
                    group_instance_id=other.instance_id,
                    metadata=other.protocols[name],
                )
                for other in self.members.values()
            ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader,
            skip_assignment=bool(member.led_as and may_skip),
            member_id=member_id,
            members=members,
        )

    @property
    def size(self) -> int:
        """Bytes kept for the group's clients."""
        names = len(self.name) + len(self.protocol_type)
        return names + self._promised_size + self.roster.size

    # Membership.

    def check(
        self, member_id: bytes | None, instance_id: bytes | None, generation: int
    ) -> KafkaMember:
        """Return the member that sent a request in this generation. Raises MemberRefused."""
        if instance_id is not None:
            self._check_instance(member_id, instance_id)
        member = self.members.get(member_id or b"")
        if member is None:
            raise MemberRefused(Code.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            raise MemberRefused(Code.ILLEGAL_GENERATION)
        return member

    def _check_instance(self, member_id: bytes | None, instance_id: bytes) -> None:
        """Check that a member is the latest of its instance. Raises MemberRefused."""
        static = self.roster.instance(instance_id)
        if static is None:
            raise MemberRefused(Code.UNKNOWN_MEMBER_ID)
        if static.member_id != member_id:
            raise MemberRefused(Code.FENCED_INSTANCE_ID)

    def assign(self, assignments: Mapping[bytes, bytes], now: float) -> None:
        """Store the leader's assignments; the generation is then stable."""
        self.state = GroupState.STABLE
        for member in self.members.values():
            self.roster.assign(member, assignments.get(member.member_id, b""))
            member.heard(now)
            member.wake()

    def leave(self, member_id: bytes | None, instance_id: bytes | None, now: float) -> Code:
        """End a membership."""
        if self._take_promise(member_id or b""):
            return Code.NONE
        try:
            if member_id and instance_id is not None:
                self._check_instance(member_id, instance_id)
        except MemberRefused as error:
            return error.code
        member = self.members.get(member_id or b"")
        if not member_id and instance_id is not None:
            member = self.roster.instance(instance_id)
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        self._remove(member, now)
        self.advance(now)
        return Code.NONE

    def exists(self, now: float) -> bool:
        """Return True if the group has members, or its last member left a short time ago."""
        return bool(self.members) or now < self.emptied_at + EMPTY_KEPT_S

    def watch_begins(self) -> None:
        """Note that a task removes dead members at their deadlines."""
        self.watched, self.called_for = True, math.inf

    def watch_ends(self) -> None:
        """Note that this task has ended."""
        self.watched = False

    def calls_for(self, due: float, now: float) -> bool:
        """Return True if the members have to be called for this deadline, as no task watches the
        group; then they count as called for it.
        """
        if now <= self.called_for < due + CALL_AGAIN_S:
            return False
        self.called_for = due
        return True

    def adopt(
        self, members: Iterable[KafkaMember], generation: int, now: float, *, rebalances: bool
    ) -> None:
        """Take over the members of a consumer group, all of the classic protocol."""
        for member in members:
            self.roster.add(member)
        self.protocol_type, self.generation = PROTOCOL_TYPE, generation
        self.leader = next(iter(self.members))
        self.protocol_name = self._choice()
        self.state = GroupState.STABLE
        if rebalances:
            self._prepare(now, set())

    def give_up(self) -> None:
        """Let the members go on in a consumer group; requests that wait are refused."""
        self.is_replaced = True
        for member in list(self.members.values()):
            self.roster.remove(member)

    def lost(self, member: KafkaMember, now: float) -> None:
        """Note that the connection of a member has ended."""
        self.roster.lost(member, now)

    def _remove(self, member: KafkaMember, now: float) -> None:
        self.roster.remove(member)
        if self.state is GroupState.PREPARING:
            return
        if self.members:
            self._prepare(now, set())
        else:
            self._complete(now)

    def next_due(self) -> float:
        """Return the time at which `advance` must run next if nothing else happens."""
        due = self.roster.next_due()
        if self.state is GroupState.PREPARING:
            return min(due, self.join_due if self.roster.absent else self.begin_due)
        return due

    def described(self, members: Iterable[KafkaMember] | None = None) -> list[DescribedGroupMember]:
        """Return all members, or these, in the form that tools show."""
        name = self.protocol_name
        return [
            DescribedGroupMember(
                member_id=other.member_id,
                group_instance_id=other.instance_id,
                client_id=other.client[0],
                client_host=other.client[1],
                member_metadata=other.protocols.get(name, b""),
                member_assignment=other.assignment,
            )
            for other in (self.members.values() if members is None else members)
        ]


def new_member_id(client_id: bytes) -> bytes:
    """Return an id that no member has had."""
    return client_id + b"-" + str(uuid.uuid4()).encode()


def protocols_of(entries: Sequence[JoinGroupRequestProtocol]) -> dict[bytes, bytes]:
    """Return metadata by protocol name, in the member's order. Raises MemberRefused."""
    protocols = {entry.name: entry.metadata or b"" for entry in entries if entry.name is not None}
    if sum(map(len, protocols)) + sum(map(len, protocols.values())) > MEMBER_BYTES_MAX:
        raise MemberRefused(Code.INVALID_REQUEST)
    return protocols
