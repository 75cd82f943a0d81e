"""Forwards requests about topics of another broker to that broker, and returns the answers.

A request goes over the brokers' own port, as a single message on a connection of its own. The
message has the client's identity, which the first broker has checked, in place of the token: only
the broker of the login knows a token. The owner checks the rights. While a topic moves, its
requests wait at the first broker.
"""

from __future__ import annotations

import struct
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
import trio

from braidlog.broker.access.rights import Principal
from braidlog.broker.cluster.placement import NOBODY
from braidlog.broker.errors import NotOwner
from braidlog.broker.server.written_topics import WrittenTopics
from braidlog.protocols.iggy.command_forwarding import receive
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.http.caller import PROTOCOL
from braidlog.protocols.iggy.http.options import MIB
from braidlog.protocols.iggy.http.routes import Answer, ApiRow, HttpCall
from braidlog.protocols.iggy.machine import SEND_BYTES_MAX

LENGTH: Final = struct.Struct(">I")
# A request with the largest body that a listener can take, and 64 KiB for all other fields.
REQUEST_BYTES_MAX: Final = 64 * MIB + 64 * 1024
# A poll's answer has 4 MiB of messages in Base64 and JSON, or a single larger message.
ANSWER_BYTES_MAX: Final = 2 * SEND_BYTES_MAX
LOST: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)
OUTCOME_UNKNOWN: Final = "the topic's owner was lost during the request, which may have been done"

T = TypeVar("T")


class ForwardedRequest(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A request and its client. `client_id` is the number of the client's connection."""

    name: str
    roles: list[str]
    is_anonymous: bool
    user_id: int | None
    client_id: int
    peer: str
    is_encrypted: bool
    method: str
    path: str
    query: dict[str, str]
    body: bytes

    @property
    def principal(self) -> Principal:
        """The client's principal."""
        return Principal(self.name, frozenset(self.roles), self.is_anonymous)


class ForwardedAnswer(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An answer and its further headers; `is_moved`: nothing was done, another broker is the
    owner.
    """

    is_moved: bool
    status: int = 0
    body: bytes = b""
    content_type: str = ""
    headers: list[tuple[str, str]] = []


@dataclass(slots=True)
class DistantClient:
    """The client of a forwarded request; see `protocols.transport.clients.HttpClient`."""

    id: int
    peer: str
    is_encrypted: bool
    local: tuple[str, int]
    written_topics: WrittenTopics = field(default_factory=WrittenTopics)


async def serve_or_forward(
    call: HttpCall, row: ApiRow, target: str, client: tuple[int, str, bool]
) -> Answer:
    """Serve a request here, or at the owner of its topic, once there is an owner.

    `client` has the connection's number, address and encryption. Raises NotOwner if no owner was
    found in time, and the errors of the handler.
    """
    broker, shared = call.context.broker, call.context.shared
    tries = broker.peers.tries(shared.limits.find_s)
    while True:
        try:
            return await served(call, row)
        except NotOwner as error:
            moved = error
        if moved.node_id != NOBODY.node_id:
            try:
                request = _request_of(call, row, target, client)
                return await _forwarded(call, request, moved.node_id)
            except NotOwner as error:
                moved = error
        if not await tries.again(moved):
            raise moved


async def served(call: HttpCall, row: ApiRow) -> Answer:
    """Serve a request here; memory that the handler holds is released at once if that fails."""
    request_holds = call.held
    with ExitStack() as holds:
        call.held = holds
        try:
            answer = await row.handler(call)
        finally:
            call.held = request_holds
        request_holds.callback(holds.pop_all().close)
    return answer


def _request_of(
    call: HttpCall, row: ApiRow, target: str, client: tuple[int, str, bool]
) -> ForwardedRequest:
    principal = call.context.connection.principal
    return ForwardedRequest(
        principal.name,
        sorted(principal.roles),
        principal.is_anonymous,
        call.context.client.user_id,
        *client,
        row.method,
        target,
        dict(call.query),
        call.body,
    )


async def _forwarded(call: HttpCall, request: ForwardedRequest, node: int) -> Answer:
    """Return the answer of another broker.

    Raises NotOwner if that broker was not reached or is not the owner, or was lost during a request
    that changes nothing; Refusal.
    """
    context = call.context
    listeners = context.broker.listeners.values()
    name = next(listener.name for listener in listeners if listener.protocol == PROTOCOL)
    stream = await context.broker.peers.forward(node, name)
    try:
        with trio.fail_after(context.shared.limits.answer_s):
            await send_message(stream, request)
            size = await receive_size(stream, ANSWER_BYTES_MAX)
            room = call.held.enter_context(await context.broker.output.reserve(size))
            room.keep(size)
            answer = await receive_message(stream, size, ForwardedAnswer)
    except LOST as error:
        if request.method == "GET":
            raise NotOwner(f"the topic's owner was lost: {error}", 0) from error
        raise Refusal(ErrorCode.CONNECTION_CLOSED, OUTCOME_UNKNOWN) from error
    finally:
        await trio.aclose_forcefully(stream)
    if answer.is_moved:
        raise NotOwner(f"broker {node} does not own the topic any more", 0)
    return Answer(answer.status, answer.body, answer.content_type, answer.headers)


async def send_message(stream: trio.SocketStream, message: msgspec.Struct) -> None:
    """Send a message with its length."""
    data = msgspec.msgpack.encode(message)
    await stream.send_all(LENGTH.pack(len(data)))
    await stream.send_all(data)


async def receive_size(stream: trio.SocketStream, bytes_max: int) -> int:
    """Return the length of the next message. Raises trio.BrokenResourceError."""
    (size,) = LENGTH.unpack(await receive(stream, LENGTH.size))
    if size > bytes_max:
        raise trio.BrokenResourceError(f"a message of {size} bytes exceeds {bytes_max}")
    return int(size)


async def receive_message(stream: trio.SocketStream, size: int, kind: type[T]) -> T:
    """Return a message of that length. Raises trio.BrokenResourceError."""
    try:
        return msgspec.msgpack.decode(await receive(stream, size), type=kind)
    except msgspec.MsgspecError as error:
        raise trio.BrokenResourceError(str(error)) from error
