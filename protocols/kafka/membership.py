"""A consumer group's members, leader and generation. Knows no clock, no broker.

Positions are not here: they belong to the subscription of the group's name. Nothing here outlives
the broker: after a restart members are unknown and rejoin. Rules: Kafka protocol guide, "Group
Membership API", and kafka/coordinator/group of apache/kafka 3.9.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.describe_groups import DescribedGroupMember
from braidlog.protocols.kafka.wire.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

GROUP_MEMBERS_MAX = 1000  # The leader's answer lists all members.
MEMBER_BYTES_MAX = 1024 * 1024  # A member's metadata and assignment.
# A living member sends a request within this share of its session timeout. Clients send a heartbeat
# every 0.07 (Java) to 0.3 (kafka-python) of the timeout by default; Kafka's documentation advises a
# third at most.
HEARD_SHARE = 0.3
RECONNECT_S = 0.5  # Minimum time for a member to reconnect.


class GroupState(enum.Enum):
    """The state of a group; the values are what tools show."""

    EMPTY = b"Empty"
    PREPARING = b"PreparingRebalance"  # Members must rejoin.
    COMPLETING = b"CompletingRebalance"  # The leader must send the assignments.
    STABLE = b"Stable"


class MemberRefused(Exception):
    """A member's request was refused with this code."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


Client = tuple[bytes, bytes]
"""Client id and host."""


@dataclass(slots=True)
class KafkaMember:
    """A member of a group; times are in seconds of the caller's clock."""

    member_id: bytes
    instance_id: bytes | None
    client: Client
    session_s: float
    rebalance_s: float
    protocols: Mapping[bytes, bytes]
    due: float  # time at which the member counts as dead
    joined: bool = False  # the member waits for the rebalance in preparation
    parked: bool = False  # the member's JoinGroup is not answered yet
    assignment: bytes = b""
    speaks_over: object = None  # the member's last connection, while open

    @property
    def size(self) -> int:
        """Bytes kept for the member: protocols with their metadata, assignment, names."""
        own_bytes = sum(map(len, self.protocols.values())) + sum(map(len, self.protocols))
        names = len(self.member_id) + len(self.instance_id or b"") + len(self.client[0])
        return own_bytes + len(self.assignment) + names

    def heard(self, now: float) -> None:
        """Note a sign of life."""
        self.due = now + self.session_s

    def lost(self, now: float) -> None:
        """Note that the member's connection has ended. A static member may stay away for its
        session timeout.
        """
        if self.instance_id is None:
            heard = min(self.due - self.session_s, now)
            again = max(heard + self.session_s * HEARD_SHARE, now + RECONNECT_S)
            self.due = min(self.due, again)


@dataclass(slots=True)
class KafkaGroup:
    """A group with its members in order of arrival."""

    name: bytes
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: bytes = b""
    protocol_name: bytes = b""
    leader: bytes = b""
    members: dict[bytes, KafkaMember] = field(default_factory=dict)
    # issued member ids -> deadline for joining
    promised: dict[bytes, float] = field(default_factory=dict)
    join_due: float = 0.0  # deadline after which a rebalance continues without missing members
    # delay between the first member's arrival and the first generation
    initial_delay_s: float = 0.0
    begin_due: float = 0.0  # earliest start of a first generation
    changes: int = 0  # number of changes that waiting tasks may care about
    watched: bool = False  # a task wakes at the next member's deadline
    call: Callable[[Client], None] = lambda client: None  # asks a client to rejoin

    # Joining.

    def admit(self, request: JoinGroupRequest, client: Client, now: float) -> KafkaMember:
        """Add or update a member, which then counts as joined. Raises MemberRefused."""
        protocols = _protocols(request.protocols)
        self._check_protocols(request, protocols)
        member_id = request.member_id or b""
        known = self.members.get(member_id)
        instance = request.group_instance_id
        if known is None and instance is not None:
            known = self.find_instance(instance)
            if known is not None and member_id:
                raise MemberRefused(Code.FENCED_INSTANCE_ID)
        elif known is not None and instance != known.instance_id:
            raise MemberRefused(Code.FENCED_INSTANCE_ID)
        if known is None and member_id and self.promised.pop(member_id, None) is None:
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
        self.promised[member_id] = now + session_s
        return member_id

    def forget_promises(self, now: float) -> None:
        """Drop issued ids whose clients did not join in time."""
        self.promised = {member_id: due for member_id, due in self.promised.items() if due > now}

    def _enter(self, member: KafkaMember, known: KafkaMember | None, now: float) -> None:
        if known is not None and known.member_id != member.member_id:
            del self.members[known.member_id]  # A static member with a new id.
            if self.leader == known.member_id:
                self.leader = member.member_id
            known = None
        unchanged = known is not None and dict(known.protocols) == dict(member.protocols)
        if known is not None:
            member.assignment = known.assignment
        self.members[member.member_id] = member
        member.joined = True
        leads = member.member_id == self.leader
        if self.state is GroupState.COMPLETING and unchanged:
            return
        if self.state is GroupState.STABLE and unchanged and not leads:
            return
        if self.state is not GroupState.PREPARING:
            self._prepare(now, {member.member_id})
        self.advance(now)

    def _check_protocols(self, request: JoinGroupRequest, protocols: Mapping[bytes, bytes]) -> None:
        if not protocols or not request.protocol_type:
            raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
        others = [
            member for member in self.members.values() if member.member_id != request.member_id
        ]
        if not others:
            return
        if request.protocol_type != self.protocol_type:
            raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
        if not set(protocols).intersection(*(other.protocols for other in others)):
            raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)

    def _prepare(self, now: float, joined: set[bytes]) -> None:
        """Make all members rejoin, except members whose JoinGroup is not answered yet: their
        generation may have begun and ended before the answer.
        """
        if self.state is GroupState.EMPTY:
            self.begin_due = now + self.initial_delay_s
        self.state = GroupState.PREPARING
        for member in self.members.values():
            member.joined = member.parked or member.member_id in joined
            if not member.joined:
                self.call(member.client)
        self.join_due = now + max(member.rebalance_s for member in self.members.values())
        self.changes += 1

    def advance(self, now: float) -> None:
        """Remove dead members; complete a rebalance once all have joined or the time is up."""
        dead = [other for other in self.members.values() if self._is_dead(other, now)]
        for member in dead:
            self._remove(member, now)
        if self.state is not GroupState.PREPARING:
            return
        late = [other for other in self.members.values() if not other.joined]
        if now < (self.join_due if late else self.begin_due):
            return
        for member in late:
            del self.members[member.member_id]
        self._complete(now)

    def _is_dead(self, member: KafkaMember, now: float) -> bool:
        waits = self.state is GroupState.PREPARING and member.joined
        return now >= member.due and not waits

    def _complete(self, now: float) -> None:
        self.generation += 1
        self.changes += 1
        if not self.members:
            self.state, self.leader, self.protocol_name = GroupState.EMPTY, b"", b""
            return
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        shared = set.intersection(*(set(other.protocols) for other in self.members.values()))
        self.protocol_name = next(
            name for name in self.members[self.leader].protocols if name in shared
        )
        self.state = GroupState.COMPLETING
        for member in self.members.values():
            member.assignment = b""
            member.heard(now)

    def joined_reply(self, member_id: bytes) -> JoinGroupResponse:
        """Return a member's JoinGroup answer after the generation's start. Raises MemberRefused."""
        if member_id not in self.members:
            raise MemberRefused(Code.UNKNOWN_MEMBER_ID)
        members: list[JoinGroupResponseMember] = []
        if member_id == self.leader:
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
            protocol_name=self.protocol_name,
            leader=self.leader,
            member_id=member_id,
            members=members,
        )

    @property
    def size(self) -> int:
        """Bytes kept for the group's clients."""
        members_size = sum(other.size for other in self.members.values())
        return len(self.name) + sum(map(len, self.promised)) + members_size

    # Membership.

    def find_instance(self, instance_id: bytes) -> KafkaMember | None:
        """Return the static member of that name."""
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member
        return None

    def check(
        self, member_id: bytes | None, instance_id: bytes | None, generation: int
    ) -> KafkaMember:
        """Return the member that sent a request in this generation. Raises MemberRefused."""
        member = self.members.get(member_id or b"")
        if member is None:
            if instance_id is not None and self.find_instance(instance_id) is not None:
                raise MemberRefused(Code.FENCED_INSTANCE_ID)
            raise MemberRefused(Code.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            raise MemberRefused(Code.ILLEGAL_GENERATION)
        return member

    def assign(self, assignments: Mapping[bytes, bytes], now: float) -> None:
        """Store the leader's assignments; the generation is then stable."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            member.heard(now)
        self.state = GroupState.STABLE
        self.changes += 1

    def leave(self, member_id: bytes | None, instance_id: bytes | None, now: float) -> Code:
        """End a membership."""
        if self.promised.pop(member_id or b"", None) is not None:
            return Code.NONE
        member = self.members.get(member_id or b"")
        if member is None and instance_id is not None:
            member = self.find_instance(instance_id)
            if member is not None and member_id:
                return Code.FENCED_INSTANCE_ID
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        self._remove(member, now)
        self.advance(now)
        return Code.NONE

    def _remove(self, member: KafkaMember, now: float) -> None:
        del self.members[member.member_id]
        self.changes += 1
        if self.state is GroupState.PREPARING:
            return
        if self.members:
            self._prepare(now, set())
        else:
            self._complete(now)

    def next_due(self) -> float:
        """Return the time at which `advance` must run next if nothing else happens."""
        dues = [other.due for other in self.members.values() if not self._waits(other)]
        if self.state is GroupState.PREPARING:
            is_late = any(not other.joined for other in self.members.values())
            dues.append(self.join_due if is_late else self.begin_due)
        return min(dues, default=float("inf"))

    def _waits(self, member: KafkaMember) -> bool:
        return self.state is GroupState.PREPARING and member.joined

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


def _protocols(entries: Sequence[JoinGroupRequestProtocol]) -> dict[bytes, bytes]:
    """Return metadata by protocol name, in the member's order. Raises MemberRefused."""
    protocols = {entry.name: entry.metadata or b"" for entry in entries if entry.name is not None}
    if sum(map(len, protocols.values())) > MEMBER_BYTES_MAX:
        raise MemberRefused(Code.INVALID_REQUEST)
    return protocols
