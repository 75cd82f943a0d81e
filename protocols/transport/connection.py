"""An HTTP/1.1 connection: h11 parses the requests, an ASGI application answers them.

An application may accept a request to change to WebSocket (`websocket.py`): it sends
`websocket.accept` instead of a response.

A single task serves the requests of a connection in turn. While a request runs, the connection
reads only for the application: the rest of the body, then the client's disconnect. Knows no route
and no listener.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import h11
import trio
from wsproto import WSConnection
from wsproto.utilities import RemoteProtocolError

from braidlog.broker.runtime.error_groups import forget_frames
from braidlog.protocols.transport.messages import (
    WEBSOCKET,
    WHOLE_BODY,
    DateHeader,
    Response,
    body_size,
    request_scope,
)
from braidlog.protocols.transport.websocket import (
    NORMAL,
    WEBSOCKET_BYTES_MAX,
    WebSocket,
    asks_for_websocket,
    open_machine,
)

Scope = dict[str, Any]
Message = Mapping[str, Any]
Application = Callable[
    [Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]
]
Refusal = Callable[[int], Sequence[h11.Event]]
Stream = trio.SSLStream[trio.SocketStream] | trio.SocketStream

RECEIVE_BYTES = 1 << 16
# Limits of the rest of a body that the application did not read: larger than the largest body that
# the HTTP listener accepts by default. A client reads the response only after the whole request.
UNREAD_BYTES_MAX = 16 * 1024 * 1024
UNREAD_S = 2.0
# Interval of checks for a client that has sent its next request and closed its side, while a
# request of this client runs: nobody may be left to read an endless response.
HALF_CLOSED_S = 10.0
# States of a socket whose peer has closed its side, or was reset (tcp(7), TCP_INFO).
TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8
ENDED = (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError)
HEAD = b"HEAD"
BAD_REQUEST = 400
DATE = DateHeader()  # Shared by all connections.
LEFT: dict[str, Any] = {"type": "http.disconnect"}


@dataclass(slots=True)
class Settings:
    """Settings that all connections of a listener share, and the state of the listener."""

    app: Application
    refusal: Refusal  # The response to bytes that are no request, from h11's status hint.
    head_bytes_max: int
    keep_alive_s: float
    is_stopping: bool = field(default=False)


class HttpConnection:
    """Serves a stream until the client, the idle timeout or the listener ends the connection.

    Implements `Duplex`.
    """

    def __init__(self, settings: Settings, stream: Stream, extra: Scope | None = None) -> None:
        """Create the connection; `extra` is added to the scope of each request."""
        self._settings = settings
        self._stream = stream
        self._extra = extra or {}
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=settings.head_bytes_max)
        self._receiving: trio.CancelScope | None = None
        self._idle_until = math.inf  # In trio's seconds; infinite while a request runs.
        self._is_encrypted = isinstance(stream, trio.SSLStream)
        self._socket = _socket_of(stream)
        self._scheme = "https" if self._is_encrypted else "http"
        self._client = _address(self._socket.getpeername())
        self._server = _address(self._socket.getsockname())

    async def run(self) -> None:
        """Serve the connection to its end, and close the stream. Raises any bug's error."""
        try:
            while await self._serve_request():
                self._http.start_next_cycle()
                if self._http.trailing_data[0]:
                    await trio.lowlevel.checkpoint()  # Many requests may have arrived together.
        finally:
            await self._close()

    def stop(self) -> None:
        """End the connection if no request runs: the listener stops."""
        if self._idle_until < math.inf:
            self._set_deadline(-math.inf)

    async def _serve_request(self) -> bool:
        """Serve the next request. Return whether the connection can serve another request."""
        self._be_idle()
        try:
            head = await self._next_event()
            if not isinstance(head, h11.Request):
                return False  # The client or the idle timeout ended the connection.
            if head.method != HEAD and head.method.upper() == HEAD:
                # Methods are case-sensitive (RFC 9110, section 9.1); a proxy may not know.
                await self._refuse(BAD_REQUEST)
                return False
            self._set_deadline(math.inf)
            request = RunningRequest(self, self._http, head)
            request.take_received()
        except h11.RemoteProtocolError as error:
            forget_frames([error])
            await self._refuse(error.error_status_hint)
            return False
        scope = request_scope(head, scheme=self._scheme, client=self._client, server=self._server)
        if request.is_received:
            scope[WHOLE_BODY] = request.body
        scope.update(self._extra)
        if asks_for_websocket(head):
            scope["extensions"][WEBSOCKET] = request.offer_websocket(head)
        await self._settings.app(scope, request.receive, request.send)
        if request.websocket is not None:
            await request.websocket.finish()
            return False
        if not request.response.is_complete or request.has_left:
            return False
        return not self._settings.is_stopping and await self._finish(request)

    async def _finish(self, request: RunningRequest) -> bool:
        """Drop the rest of an unread body. Return whether both sides are ready to go on."""
        http = self._http
        if http.their_state is h11.SEND_BODY:  # A client reads the response after its request.
            if http.they_are_waiting_for_100_continue or (request.unread or 0) > UNREAD_BYTES_MAX:
                return False
            self._set_deadline(trio.current_time() + UNREAD_S)
            await self._drop_body()
        return http.our_state is h11.DONE and http.their_state is h11.DONE

    async def _drop_body(self) -> None:
        dropped = 0
        while dropped <= UNREAD_BYTES_MAX and not self._settings.is_stopping:
            try:
                event = await self._next_event()
            except h11.RemoteProtocolError as error:
                forget_frames([error])
                return
            if not isinstance(event, h11.Data):
                return
            dropped += len(event.data)

    async def _next_event(self) -> object:
        """Return the next event of h11; None if the idle timeout or an error ended the wait.

        Raises:
            h11.RemoteProtocolError: the received bytes break the rules of HTTP.
        """
        while (event := self._http.next_event()) is h11.NEED_DATA:
            with trio.CancelScope(deadline=self._idle_until) as self._receiving:
                received = await self.read()
            if self._receiving.cancelled_caught:
                self._receiving = None
                return None
            self._receiving = None
            self._http.receive_data(received)
        return event

    async def read(self) -> bytes:
        try:
            while not self._is_encrypted:
                if self._socket.fileno() < 0:
                    return b""
                await trio.lowlevel.wait_readable(self._socket)  # Data is rarely here already.
                try:
                    return os.read(self._socket.fileno(), RECEIVE_BYTES)
                except BlockingIOError:
                    continue
            return bytes(await self._stream.receive_some(RECEIVE_BYTES))
        except (OSError, *ENDED):
            return b""

    async def peer_leaves(self) -> None:
        """Wait until the client has closed its side of a connection that is not read now."""
        while True:
            await trio.sleep(HALF_CLOSED_S)
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            if info[0] in (TCP_CLOSE, TCP_CLOSE_WAIT):
                return

    async def write(self, data: bytes, *, at_once: bool = False) -> bool:
        """Send data; return False if the client is gone. Cancellation never cuts a send: the kernel
        ends the send if the client takes nothing.

        `at_once` tries a non-blocking send first: at most for the first piece of a response, so
        that a long response gives way to other clients.
        """
        try:
            if at_once and not self._is_encrypted:
                data = data[self._write_now(data) :]
            if data:
                with trio.CancelScope(shield=True):
                    await self._stream.send_all(data)
        except ENDED:
            return False
        return True

    def _write_now(self, data: bytes) -> int:
        try:
            return os.write(self._socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def _refuse(self, status: int) -> None:
        """Answer bytes that are no request, and let the connection end."""
        self._set_deadline(math.inf)
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            data = b"".join(
                self._http.send(event) or b"" for event in self._settings.refusal(status)
            )
            await self.write(data)

    def _be_idle(self) -> None:
        """Set the deadline for the whole head of the next request."""
        pause_s = -math.inf if self._settings.is_stopping else self._settings.keep_alive_s
        self._set_deadline(trio.current_time() + pause_s)

    def _set_deadline(self, deadline: float) -> None:
        self._idle_until = deadline
        if self._receiving is not None:
            self._receiving.deadline = deadline

    async def _close(self) -> None:
        if not isinstance(self._stream, trio.SSLStream):
            await _if_open(self._stream.send_eof)
        await _if_open(self._stream.aclose)


class RunningRequest:
    """A request that the application serves now: ASGI's `receive` and `send`.

    `body` is the part of the body that has arrived and that the application has not read.
    """

    def __init__(self, connection: HttpConnection, http: h11.Connection, head: h11.Request) -> None:
        self.body = b""
        self.has_left = False  # The client is gone.
        self.is_received = False  # The whole request has arrived.
        self.response = Response(http, head.method, DATE)
        self._connection = connection
        self._http = http
        self._size = body_size(head)
        self._received = 0
        self._is_first_piece = True
        self._is_read = False  # The application has received the end of the body.
        self.websocket: WebSocket | None = None  # After the application accepted the change.
        self._offered: WSConnection | None = None

    @property
    def unread(self) -> int | None:
        """Number of bytes of the body that have not arrived; None if the client did not say."""
        return None if self._size is None else self._size - self._received

    def take_received(self) -> None:
        """Move the part of the body that has arrived from h11 into `body`.

        Raises:
            h11.RemoteProtocolError: the body breaks the rules of HTTP.
        """
        pieces = [self.body] if self.body else []
        while not self.is_received:
            event = self._http.next_event()
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
                self._received += len(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self.is_received = True
            else:
                break
        self.body = b"".join(pieces)

    async def receive(self) -> Message:
        """Return the next piece of the body; after the body, wait for the client's disconnect. On a
        WebSocket, return the next message.
        """
        if self.websocket is not None:
            return await self.websocket.receive()
        try:
            while not self._is_read and not self.has_left:
                if self.body or self.is_received:
                    body, self.body = self.body, b""
                    self._is_read = self.is_received
                    return {
                        "type": "http.request",
                        "body": body,
                        "more_body": not self.is_received,
                    }
                await self._read_more()
        except h11.RemoteProtocolError as error:
            forget_frames([error])
            self.has_left = True
        await self._wait_for_disconnect()
        return LEFT

    async def _read_more(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            proceed = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            await self._connection.write(self._http.send(proceed) or b"")
        received = await self._connection.read()
        self.has_left = not received
        if received:
            self._http.receive_data(received)
            self.take_received()

    async def _wait_for_disconnect(self) -> None:
        """Return when the client has left. At most one receive of the next requests is read."""
        while not self.has_left:
            if self._http.trailing_data[0]:
                await self._connection.peer_leaves()
                self.has_left = True
                return
            received = await self._connection.read()
            self.has_left = not received
            if received:
                self._http.receive_data(received)

    def offer_websocket(self, head: h11.Request) -> str:
        """Let the application accept the change to WebSocket. Return the fault of the opening
        request; "" if the request is valid.
        """
        try:
            self._offered = open_machine(head)
        except RemoteProtocolError as error:
            forget_frames([error])
            return str(error)
        return ""

    async def _send_frame(self, message: Message) -> None:
        """Send one of ASGI's messages for a WebSocket."""
        if message["type"] == "websocket.accept":
            assert self._offered is not None, "the client asked for no WebSocket"
            limit = message.get("message_bytes_max", WEBSOCKET_BYTES_MAX)
            rest = self._http.trailing_data[0]
            self.websocket = WebSocket(self._connection, self._offered, rest, limit)
            await self.websocket.accept([*message.get("headers", ()), DATE.now()])
            return
        assert self.websocket is not None, f"{message['type']} before websocket.accept"
        if message["type"] == "websocket.send":
            await self.websocket.send(message["text"])
        elif message["type"] == "websocket.ping":
            await self.websocket.ping()
        else:
            await self.websocket.close(message.get("code", NORMAL), message.get("reason", ""))

    async def send(self, message: Message) -> None:
        """Send an ASGI message; do nothing if the client is gone."""
        if message["type"].startswith("websocket."):
            await self._send_frame(message)
            return
        for piece in self.response.write(message):
            if not self.has_left:
                is_first, self._is_first_piece = self._is_first_piece, False
                self.has_left = not await self._connection.write(piece, at_once=is_first)


def _socket_of(stream: Stream) -> trio.socket.SocketType:
    inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    return inner.socket


def _address(name: object) -> tuple[str, int] | None:
    """Return host and port of a socket's address; None for a socket without them."""
    return (name[0], name[1]) if isinstance(name, tuple) else None


async def _if_open(step: Callable[[], Awaitable[None]]) -> None:
    """Do a closing step, unless the client has closed the connection before."""
    try:
        await step()
    except ENDED as error:
        forget_frames([error])  # In Python 3.13 the frames form a cycle that holds the connection.
