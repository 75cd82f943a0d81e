"""Typed requests and replies of consumer groups. Knows no bytes and no broker."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupProtocol:
    """An assignment strategy that a member supports, and the member's metadata for it."""

    name: bytes | None
    metadata: bytes | None


@dataclass(frozen=True, slots=True)
class JoinGroupRequest:
    """Asks to join a group (key 11). Version 0 has no rebalance timeout of its own."""

    group: bytes | None
    session_timeout_ms: int
    member_id: bytes | None
    protocol_type: bytes | None
    protocols: Sequence[GroupProtocol]
    rebalance_timeout_ms: int = -1
    instance_id: bytes | None = None


@dataclass(slots=True)
class JoinedMember:
    """A member, as the leader sees it."""

    member_id: bytes
    instance_id: bytes | None = None
    metadata: bytes = b""


@dataclass(slots=True)
class JoinGroupReply:
    """Answers a JoinGroupRequest; only the leader gets the members."""

    error: int
    generation: int = -1
    protocol_name: bytes = b""
    leader: bytes = b""
    member_id: bytes = b""
    members: Sequence[JoinedMember] = ()


@dataclass(frozen=True, slots=True)
class Assigned:
    """What the leader assigns to one member."""

    member_id: bytes | None
    assignment: bytes | None


@dataclass(frozen=True, slots=True)
class SyncGroupRequest:
    """Asks for the member's assignment (key 14); the leader sends those of all members."""

    group: bytes | None
    generation: int
    member_id: bytes | None
    assignments: Sequence[Assigned]
    instance_id: bytes | None = None


@dataclass(slots=True)
class SyncGroupReply:
    """Answers a SyncGroupRequest."""

    error: int
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A member's heartbeat (key 12)."""

    group: bytes | None
    generation: int
    member_id: bytes | None
    instance_id: bytes | None = None


@dataclass(slots=True)
class HeartbeatReply:
    """Answers a HeartbeatRequest."""

    error: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """A member that leaves, by its id or its instance."""

    member_id: bytes | None
    instance_id: bytes | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroupRequest:
    """Ends memberships (key 13): one, or several in later versions."""

    group: bytes | None
    member_id: bytes | None = None
    members: Sequence[Leaving] | None = None


@dataclass(slots=True)
class Left:
    """The result for one member that leaves."""

    member_id: bytes | None
    instance_id: bytes | None = None
    error: int = 0


@dataclass(slots=True)
class LeaveGroupReply:
    """Answers a LeaveGroupRequest."""

    error: int
    members: Sequence[Left] = ()


@dataclass(frozen=True, slots=True)
class DescribeGroupsRequest:
    """Asks for groups with their members (key 15)."""

    groups: Sequence[bytes | None]


@dataclass(slots=True)
class DescribedMember:
    """A member, as admin tools see it."""

    member_id: bytes
    instance_id: bytes | None = None
    client_id: bytes = b""
    client_host: bytes = b""
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(slots=True)
class DescribedGroup:
    """A group, as admin tools see it."""

    error: int
    group: bytes | None
    state: bytes = b"Dead"
    protocol_type: bytes = b""
    protocol_name: bytes = b""
    members: Sequence[DescribedMember] = ()


@dataclass(slots=True)
class DescribeGroupsReply:
    """Answers a DescribeGroupsRequest."""

    groups: Sequence[DescribedGroup]


@dataclass(frozen=True, slots=True)
class ListGroupsRequest:
    """Asks for the names of all groups (key 16)."""


@dataclass(slots=True)
class ListedGroup:
    """One group; the type is empty if it has only positions."""

    group: bytes
    protocol_type: bytes


@dataclass(slots=True)
class ListGroupsReply:
    """Answers a ListGroupsRequest."""

    error: int
    groups: Sequence[ListedGroup]


@dataclass(frozen=True, slots=True)
class DeleteGroupsRequest:
    """Asks for groups and their positions to be deleted (key 42)."""

    groups: Sequence[bytes | None]


@dataclass(slots=True)
class DeletedGroup:
    """The result for one group."""

    group: bytes | None
    error: int


@dataclass(slots=True)
class DeleteGroupsReply:
    """Answers a DeleteGroupsRequest."""

    groups: Sequence[DeletedGroup]


GroupRequest = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | DescribeGroupsRequest
    | ListGroupsRequest
    | DeleteGroupsRequest
)
GroupReply = (
    JoinGroupReply
    | SyncGroupReply
    | HeartbeatReply
    | LeaveGroupReply
    | DescribeGroupsReply
    | ListGroupsReply
    | DeleteGroupsReply
)
