"""A WebSocket connection (RFC 6455) over an HTTP connection; wsproto parses the frames.

The application receives whole messages. Pings are answered here, and a silent client is pinged.
Extensions are declined: a few compressed bytes could become any number. Knows no route.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import h11
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from braidlog.broker.runtime.error_groups import forget_frames

Message = Mapping[str, Any]
Headers = Sequence[tuple[bytes, bytes]]

WEBSOCKET_BYTES_MAX: Final = (
    1 << 20
)  # Of a received message, unless the application says otherwise.
# A client that sends nothing for this time gets a ping. Each client answers, if it lives.
PING_S: Final = 30.0
SILENT_S: Final = 300.0  # Apache's idle limit (webSocketSessionIdleTimeoutMillis).
# Time for the client to answer a close frame, and to take the frames before it.
CLOSE_S: Final = 2.0
# Frames handled between two checkpoints: a client may send ten thousand empty frames at once.
FRAMES_PER_TURN: Final = 100

# Close codes (RFC 6455, section 7.4.1).
NORMAL, GOING_AWAY, ABNORMAL, TOO_LARGE = 1000, 1001, 1006, 1009
UPGRADE: Final = b"websocket"


class Duplex(Protocol):
    """The connection below."""

    async def read(self) -> bytes:
        """Return the next bytes; b"" if the client has closed its side or is gone."""

    async def write(self, data: bytes, *, at_once: bool = False) -> bool:
        """Send data; return False if the client is gone."""


def asks_for_websocket(request: h11.Request) -> bool:
    """Return True if a request asks to change to the WebSocket protocol."""
    return any(
        name == b"upgrade" and value.strip().lower() == UPGRADE for name, value in request.headers
    )


def open_machine(request: h11.Request) -> WSConnection:
    """Return the state of a new connection, whose handshake is not accepted yet.

    Raises RemoteProtocolError for a faulty request.
    """
    if request.method != b"GET":
        raise RemoteProtocolError("Request method must be GET")
    machine = WSConnection(ConnectionType.SERVER)
    try:
        machine.initiate_upgrade_connection(list(request.headers), request.target)
    except UnicodeError as error:  # Headers as text: wsproto reads the host by IDNA.
        raise RemoteProtocolError(f"Headers must be readable text: {error}") from None
    for _ in machine.events():  # The opening request, which is known.
        pass
    return machine


class WebSocket:
    """An accepted connection. A single task receives; any task may send.

    Invariants: frames leave in the order of the calls, each whole. Nothing is sent after a close.
    """

    def __init__(
        self,
        stream: Duplex,
        machine: WSConnection,
        received: bytes,
        message_bytes_max: int = WEBSOCKET_BYTES_MAX,
    ) -> None:
        """Take the bytes that were `received` after the opening request."""
        self.has_left = False  # No frame can be sent any more.
        self._stream = stream
        self._machine = machine
        self._received = received
        self._message_bytes_max = message_bytes_max
        self._sending = trio.Lock()
        self._events: Iterator[Event] = iter(())
        self._frames = 0  # Since the last checkpoint.
        self._text = io.StringIO()
        self._data = io.BytesIO()
        self._message_bytes = 0
        self._end: Message | None = None

    async def accept(self, headers: Headers) -> None:
        """Complete the handshake. Call this before every other method."""
        await self._send(AcceptConnection(extra_headers=list(headers)))
        self._machine.receive_data(self._received)
        self._received = b""
        self._events = self._machine.events()

    async def receive(self) -> Message:
        """Return the next message of ASGI: `websocket.receive` or, at the end and from then on,
        `websocket.disconnect`. The answer to a ping is `websocket.pong`, which ASGI does not know.
        """
        while self._end is None:
            message = await self._next()
            if message is not None:
                return message
        return self._end

    async def send(self, data: str) -> None:
        """Send a text message; do nothing if the client is gone or the connection is closed."""
        await self._send(TextMessage(data))

    async def ping(self) -> None:
        """Send a ping: the answer shows that the client lives."""
        await self._send(Ping())

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Send a close frame, if none was sent."""
        await self._send(CloseConnection(code, reason))

    async def finish(self) -> None:
        """Wait a moment until the client has answered the close frame, so that the client receives
        all frames before the connection ends.
        """
        await self.close(GOING_AWAY)
        with trio.move_on_after(CLOSE_S):
            while not self.has_left and self._machine.state is ConnectionState.LOCAL_CLOSING:
                await self._read()
                for _ in self._machine.events():
                    pass

    async def _next(self) -> Message | None:
        """Handle the next frame, or read. Return a message if one is complete now."""
        event = next(self._events, None)
        if event is None:
            await self._await_bytes()
            return None
        self._frames += 1
        if self._frames >= FRAMES_PER_TURN:
            self._frames = 0
            await trio.lowlevel.checkpoint()
        if isinstance(event, Ping):
            await self._send(event.response())
        elif isinstance(event, Pong):
            return {"type": "websocket.pong"}
        elif isinstance(event, CloseConnection):
            await self._closed_by_client(event)
        elif isinstance(event, TextMessage):
            if await self._fits(len(event.data.encode())):
                self._text.write(event.data)
                return self._complete() if event.message_finished else None
        elif isinstance(event, BytesMessage) and await self._fits(len(event.data)):
            self._data.write(event.data)
            return self._complete() if event.message_finished else None
        return None

    async def _fits(self, size: int) -> bool:
        """Count the bytes of a part of a message. Close the connection above the limit."""
        self._message_bytes += size
        limit = self._message_bytes_max
        if self._message_bytes <= limit:
            return True
        reason = f"Message too large: more than {limit} bytes"
        await self.close(TOO_LARGE, reason)
        self._ended(TOO_LARGE, reason)
        return False

    def _complete(self) -> Message:
        text, content = self._text.getvalue(), self._data.getvalue()
        self._text, self._data, self._message_bytes = io.StringIO(), io.BytesIO(), 0
        if content:
            return {"type": "websocket.receive", "bytes": content}
        return {"type": "websocket.receive", "text": text}

    async def _closed_by_client(self, event: CloseConnection) -> None:
        """Answer a close frame; or frames that break the rules, with the code of the fault."""
        code = int(event.code)
        if self._machine.state is ConnectionState.OPEN:  # A fault, found by wsproto.
            await self.close(code, event.reason or "")
        elif self._machine.state is ConnectionState.REMOTE_CLOSING:
            await self._send(event.response())
        self._ended(code, event.reason or "")

    async def _await_bytes(self) -> None:
        """Read, and ping a silent client. A client that stays silent is disconnected."""
        silent_since = trio.current_time()
        while True:
            with trio.move_on_after(PING_S):
                await self._read()
                self._events = self._machine.events()
                return
            if trio.current_time() - silent_since >= SILENT_S:
                await self.close(GOING_AWAY, "Idle Timeout")
                self._ended(GOING_AWAY, "Idle Timeout")
                return
            await self.ping()

    async def _read(self) -> None:
        received = await self._stream.read()
        if not received:
            self.has_left = True
            self._ended(ABNORMAL, "")
        elif self._machine.state is not ConnectionState.CLOSED:
            self._machine.receive_data(received)

    def _ended(self, code: int, reason: str) -> None:
        if self._end is None:
            self._end = {"type": "websocket.disconnect", "code": code, "reason": reason}

    async def _send(self, event: Event) -> None:
        async with self._sending:
            if self.has_left:
                return
            try:
                data = self._machine.send(event)
            except LocalProtocolError as error:  # The connection is closed.
                forget_frames([error])
                return
            if not await self._stream.write(data, at_once=True):
                self.has_left = True
