"""A stream of bytes inside the binary messages of a WebSocket (RFC 6455), with a socket's methods:
the driver of framed connections serves it as any other socket. wsproto parses the frames.

Where a message ends has no meaning. Extensions are declined: a few compressed bytes could become
any number. Knows no protocol inside.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import h11
import trio
from wsproto import WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.broker.runtime.streams import HandshakeFailed, is_encrypted
from braidlog.protocols.transport.origins import host_of
from braidlog.protocols.transport.websocket import asks_for_websocket, open_machine

if TYPE_CHECKING:
    from braidlog.broker.runtime.tls_socket import TlsSocket
    from braidlog.storage.formats.api import Buffer

    Below = socket.socket | TlsSocket

# From the first byte to the last of the opening request; a client that takes longer holds a
# connection for nothing.
UPGRADE_S: Final = 10.0
HEAD_BYTES_MAX: Final = 16 * 1024  # Of the opening request, with all headers.
RECEIVE_BYTES: Final = 256 * 1024
# Parsed in a call: a client may send ten thousand empty frames in a receive.
FRAMES_PER_CALL: Final = 500
# Heads of binary messages of a single frame (RFC 6455, section 5.2).
BINARY: Final = 0x82
SHORT_HEAD, MIDDLE_HEAD, LONG_HEAD = (struct.Struct(f">B{size}") for size in ("B", "BH", "BQ"))
SHORT_SIZES, MIDDLE, MIDDLE_SIZES, LONG = 125, 126, 0xFFFF, 127

REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
}
NO_WEBSOCKET: Final = "this listener takes WebSocket connections only"


class UpgradeFailed(HandshakeFailed):
    """A client did not open a WebSocket."""

    event = "websocket_handshake_failed"

    def __init__(self, reason: str, status: int | None = None) -> None:
        """`status` answers a client that may read an answer."""
        super().__init__(reason)
        self.status = status


async def open_websocket(below: Below, origins: Sequence[str]) -> WebSocketStream:
    """Read the opening request of a new connection, and accept it. Browsers name the origin of the
    page: pages of other origins than `origins` may not connect (`*`: all may).

    Raises UpgradeFailed, OSError; the caller closes the socket.
    """
    with trio.move_on_after(UPGRADE_S):
        try:
            machine, rest = await _opening(below, origins)
        except UpgradeFailed as error:
            if error.status is not None:
                await _send(below, _refusal(error.status, str(error)))
            raise
        await _send(below, machine.send(AcceptConnection()))
        return WebSocketStream(below, machine, rest)
    raise UpgradeFailed(f"not done within {UPGRADE_S:.0f} s")


async def _opening(below: Below, origins: Sequence[str]) -> tuple[WSConnection, bytes]:
    """Return the state of a connection that can be accepted, and the bytes after the opening
    request. Raises UpgradeFailed, OSError.
    """
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    try:
        request = await _next_event(below, http)
        if not isinstance(request, h11.Request) or not asks_for_websocket(request):
            raise UpgradeFailed(NO_WEBSOCKET, 426)
        if not isinstance(await _next_event(below, http), h11.EndOfMessage):
            raise UpgradeFailed("the opening request has a body", 400)
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        if not _is_allowed(headers.get(b"origin"), headers.get(b"host", ""), origins):
            raise UpgradeFailed(f"pages of {headers[b'origin']} may not connect", 403)
        machine = open_machine(request)
    except h11.RemoteProtocolError as error:
        raise UpgradeFailed(str(error), error.error_status_hint) from None
    except RemoteProtocolError as error:
        raise UpgradeFailed(str(error), 400) from None
    return machine, http.trailing_data[0]


def _is_allowed(origin: str | None, host: str, origins: Sequence[str]) -> bool:
    if origin is None or "*" in origins or origin in origins:
        return True
    return host_of(origin) == host


async def _next_event(below: Below, http: h11.Connection) -> object:
    """Return the next event of HTTP. Raises UpgradeFailed, h11.RemoteProtocolError, OSError."""
    while (event := http.next_event()) is h11.NEED_DATA:
        try:
            received = below.recv(HEAD_BYTES_MAX)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(below.fileno())
            continue
        if not received:
            raise UpgradeFailed("the client left before its request was complete")
        http.receive_data(received)
    return event


async def _send(below: Below, data: bytes) -> None:
    """Send all bytes. Raises OSError."""
    left = memoryview(data)
    while left:
        try:
            left = left[below.send(left) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(below.fileno())


def _refusal(status: int, reason: str) -> bytes:
    """Return an HTTP response with that reason as its text."""
    body = reason.encode() + b"\n"
    head = [
        f"HTTP/1.1 {status} {REASONS.get(status, 'Bad Request')}",
        "content-type: text/plain; charset=utf-8",
        f"content-length: {len(body)}",
        "connection: close",
        *(["upgrade: websocket"] if status == 426 else []),
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class WebSocketStream:
    """The stream of an accepted WebSocket; see `braidlog.broker.runtime.streams.LayeredSocket`.

    Invariants: a frame leaves whole before the next begins. `recv_into` hands out each byte of the
    binary messages once, in order.
    """

    def __init__(self, below: Below, machine: WSConnection, received: bytes) -> None:
        """Take the bytes that were `received` after the opening request."""
        self._below = below
        self._machine = machine
        self._payload = memoryview(b"")  # Received, and not handed out.
        self._events: Iterator[Event] | None = None  # None: all received bytes are parsed.
        self._control = b""  # Unsent rest of a control frame, then of a data frame's head.
        self._pong = b""  # The answer to the newest ping; leaves between two frames.
        self._frame_left = 0  # Bytes of the current data frame that `send` has not sent.
        self._close: CloseConnection | None = None  # The frame that `shutdown` sends.
        self._is_over = False  # Nothing more is received.
        self._fault = ""  # Of the client, raised after the bytes before the fault.
        if received:
            self._parse_from(received)

    @property
    def is_encrypted(self) -> bool:
        return is_encrypted(self._below)

    @property
    def has_pending(self) -> bool:
        is_known = bool(self._payload) or self._events is not None or self._is_over
        return is_known or (not isinstance(self._below, socket.socket) and self._below.has_pending)

    def recv_into(self, buffer: memoryview) -> int:
        """Fill the buffer with bytes of messages; return 0 at the end of the stream.

        Raises BlockingIOError if there are none now, ProtocolError for frames that break the rules,
        OSError.
        """
        if not self._payload and not self._is_over:
            if self._events is None:
                # The payload of received frames has room in the buffer: nothing is kept.
                self._parse_from(self._below.recv(min(len(buffer), RECEIVE_BYTES)))
            self._parse()
        if not self._payload:
            if self._fault:
                raise ProtocolError(self._fault)
            if not self._is_over:
                raise BlockingIOError
        size = min(len(buffer), len(self._payload))
        buffer[:size] = self._payload[:size]
        self._payload = self._payload[size:]
        return size

    def _parse_from(self, received: bytes) -> None:
        if received:
            self._machine.receive_data(received)
            self._events = self._machine.events()
        else:
            self._events, self._is_over = iter(()), True

    def _parse(self) -> None:
        """Parse the next frames, a limited number. Raises OSError."""
        assert self._events is not None
        pieces = []
        for _ in range(FRAMES_PER_CALL):
            event = next(self._events, None)
            if event is None:
                self._events = None
                break
            if isinstance(event, BytesMessage):
                pieces.append(event.data)
            elif isinstance(event, Ping):
                self._pong = self._machine.send(event.response())
            elif isinstance(event, CloseConnection):
                is_fault = self._machine.state is ConnectionState.OPEN  # Found by wsproto.
                self._end(event if is_fault else event.response(), is_fault=is_fault)
                break
            elif isinstance(event, TextMessage):
                refusal = CloseConnection(CloseReason.UNSUPPORTED_DATA, "binary messages only")
                self._end(refusal, is_fault=True)
                break
        self._payload = memoryview(b"".join(pieces))
        if not self._frame_left:
            self._send_control()

    def _end(self, close: CloseConnection, *, is_fault: bool) -> None:
        """End the stream: the client closes it, or has broken the rules."""
        self._is_over, self._close = True, close
        if is_fault:
            self._fault = f"WebSocket: {close.reason}"

    def recv(self, size: int) -> bytes:
        """Return received bytes of the wire, unparsed, after the end of the conversation."""
        return self._below.recv(size)

    def send(self, data: Buffer) -> int:
        """Send bytes as a binary message; see `LayeredSocket`."""
        return self._send([data])

    def sendmsg(self, buffers: Iterable[Buffer]) -> int:
        """Send pieces together as a binary message; see `LayeredSocket`."""
        return self._send(list(buffers))

    def _send(self, pieces: list[Buffer]) -> int:
        """Send bytes of the current message, which begins here if none is unfinished. Raises
        BlockingIOError, OSError.
        """
        if not self._frame_left:
            self._send_control()
            if self._control:
                raise BlockingIOError
            self._frame_left = sum(map(len, pieces))
            self._control = _head_of(self._frame_left)
        head = len(self._control)
        sent = self._below.sendmsg([self._control, *_cut(pieces, self._frame_left)])
        self._control = self._control[sent:]
        sent -= head - len(self._control)
        self._frame_left -= sent
        if not sent:
            raise BlockingIOError
        if not self._frame_left:
            self._send_control()
        return sent

    def _send_control(self) -> None:
        """Send control frames as far as the socket takes them. Raises OSError."""
        while self._control or self._pong:
            if not self._control:
                self._control, self._pong = self._pong, b""
            try:
                self._control = self._control[self._below.send(self._control) :]
            except BlockingIOError:
                return

    def shutdown(self, how: int) -> None:
        """Send a close frame, as far as the socket takes it, and the end. Raises OSError."""
        if not self._frame_left and self._machine.state in (
            ConnectionState.OPEN,
            ConnectionState.REMOTE_CLOSING,
        ):
            close = self._close or CloseConnection(CloseReason.GOING_AWAY)
            self._control += self._machine.send(close)
            self._send_control()
        self._below.shutdown(how)

    def fileno(self) -> int:
        return self._below.fileno()

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self._below.getsockopt(level, option, size)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        self._below.setsockopt(level, option, value)

    def getpeername(self) -> tuple[str, int]:
        host, port = self._below.getpeername()[:2]
        return str(host), int(port)

    def getsockname(self) -> tuple[str, int]:
        host, port = self._below.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        self._below.close()

    def __enter__(self) -> WebSocketStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _head_of(size: int) -> bytes:
    """Return the head of a binary message of a single frame, without a mask."""
    if size <= SHORT_SIZES:
        return SHORT_HEAD.pack(BINARY, size)
    if size <= MIDDLE_SIZES:
        return MIDDLE_HEAD.pack(BINARY, MIDDLE, size)
    return LONG_HEAD.pack(BINARY, LONG, size)


def _cut(pieces: list[Buffer], size: int) -> list[Buffer]:
    """Return the first `size` bytes of the pieces."""
    cut: list[Buffer] = []
    for piece in pieces:
        if len(piece) > size:
            cut.append(memoryview(piece)[:size])
            return cut
        cut.append(piece)
        size -= len(piece)
        if not size:
            break
    return cut
