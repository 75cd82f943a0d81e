"""Forces a rebalance of a Kafka group, as a client that joins and leaves.

Layouts: Kafka protocol guide, JoinGroup, LeaveGroup and DescribeGroups.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import trio

from braidlog.protocols.kafka.codec import read, write
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.fields import FieldReader, Writer
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from braidlog.protocols.kafka.wire.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from braidlog.protocols.kafka.wire.leave_group import LeaveGroupRequest, LeaveGroupResponse
from braidlog.storage.formats.api import StoredPart

CLIENT_ID = b"braidlog.testing"
HEAD = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
SIZE = struct.Struct(">i")
DESCRIBE_VERSION, LEAVE_VERSION = 0, 0
JOIN_VERSION = 4  # A new member gets an id before the group waits for the member (KIP-394).
SESSION_TIMEOUT_MS = 30_000
STABLE, REBALANCING = b"Stable", b"PreparingRebalance"
LOOK_S = 0.01  # Interval of looks at the group's state.
Answer = TypeVar("Answer", bound=Struct)


class GroupNotStable(ValueError):
    """The group has no members, or is rebalancing already."""


async def force_rebalance(address: tuple[str, int], group: str) -> None:
    """Make all members of a group join again. Return when the group has begun to rebalance.

    Raises GroupNotStable, OSError.
    """
    name = group.encode()
    async with _Client(address) as asking, _Client(address) as joining:
        described = await asking.describe(name)
        if described.group_state != STABLE:
            raise GroupNotStable(f"group {group!r} is {described.group_state!r}, expected Stable")
        protocol = JoinGroupRequestProtocol(
            name=described.protocol_data, metadata=described.members[0].member_metadata
        )
        request = JoinGroupRequest(
            group_id=name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            protocol_type=described.protocol_type,
            protocols=[protocol],
        )
        answer = await joining.ask(request, JOIN_VERSION, JoinGroupResponse)
        if answer.error_code != Code.MEMBER_ID_REQUIRED:
            raise GroupNotStable(f"group {group!r} refuses a member: error {answer.error_code}")
        request.member_id = answer.member_id
        await joining.send(request, JOIN_VERSION)
        while (await asking.describe(name)).group_state == STABLE:
            await trio.sleep(LOOK_S)
        leave = LeaveGroupRequest(group_id=name, member_id=answer.member_id)
        await asking.ask(leave, LEAVE_VERSION, LeaveGroupResponse)


class _Client:
    """A connection of a Kafka client that has at most a request under way."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    async def __aenter__(self) -> _Client:
        self._stream = await trio.open_tcp_stream(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    async def describe(self, group: bytes) -> DescribedGroup:
        answer = await self.ask(
            DescribeGroupsRequest(groups=[group]), DESCRIBE_VERSION, DescribeGroupsResponse
        )
        return answer.groups[0]

    async def ask(self, request: Struct, version: int, answer: type[Answer]) -> Answer:
        await self.send(request, version)
        size = SIZE.unpack(await self._receive(SIZE.size))[0]
        frame = await self._receive(size)
        return read(answer, FieldReader(memoryview(frame), SIZE.size), version)

    async def send(self, request: Struct, version: int) -> None:
        out = Writer()
        write(out, request, version)
        head = HEAD.pack(request.KEY, version, 0, len(CLIENT_ID)) + CLIENT_ID
        body = head + b"".join(part for part in out.parts() if not isinstance(part, StoredPart))
        await self._stream.send_all(SIZE.pack(len(body)) + body)

    async def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            piece = await self._stream.receive_some(size - len(received))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            received += piece
        return received
