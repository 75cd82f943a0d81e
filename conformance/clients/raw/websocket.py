"""A WebSocket client on a blocking socket, for dialogues frame by frame."""

from __future__ import annotations

import http.client
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import h11
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError

RECEIVE_BYTES = 1 << 16
TIMEOUT_S = 10.0


class UpgradeRefused(Exception):
    """The answer of a server that does not change the protocol."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body


class Closed(Exception):
    """The close frame of the peer; 1006 without a frame."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class WebSocketClient:
    """A connection after the handshake. Answers pings, and joins fragments."""

    def __init__(self, url: str, target: str, headers: dict[str, str] | None = None) -> None:
        """Connect and shake hands. Raises UpgradeRefused."""
        place = urlsplit(url)
        self.sock = socket.create_connection((place.hostname, place.port), TIMEOUT_S)
        self.machine = WSConnection(ConnectionType.CLIENT)
        self._events: list[object] = []
        self._text: list[str] = []  # Fragments of the next message, kept over a timeout.
        self._data: list[bytes] = []
        extra = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._send(Request(host=place.netloc, target=target, extra_headers=extra))
        answer = self._next()
        if isinstance(answer, RejectConnection):
            body = b""
            while answer.has_body:
                part = self._next()
                assert isinstance(part, RejectData)
                body += part.data
                if part.body_finished:
                    break
            self.sock.close()
            raise UpgradeRefused(answer.status_code, body.decode())
        assert isinstance(answer, AcceptConnection), answer

    def _send(self, event: object) -> None:
        self.sock.sendall(self.machine.send(event))

    def send(self, data: str | bytes) -> None:
        """Send a text or binary message."""
        self._send(TextMessage(data) if isinstance(data, str) else BytesMessage(data))

    def send_raw(self, data: bytes) -> None:
        """Send bytes outside the rules of the protocol."""
        self.sock.sendall(data)

    def ping(self, payload: bytes) -> bytes:
        """Send a ping; return the pong's payload."""
        self._send(Ping(payload))
        event = self._next()
        assert isinstance(event, Pong), event
        return bytes(event.payload)

    def receive(self, timeout_s: float = TIMEOUT_S) -> str | bytes:
        """Return the next message. Raises Closed, TimeoutError."""
        self.sock.settimeout(timeout_s)
        text, data = self._text, self._data
        while True:
            event = self._next()
            if isinstance(event, Ping):
                self._send(event.response())
            elif isinstance(event, CloseConnection):
                self.close()
                raise Closed(event.code, event.reason or "")
            elif isinstance(event, Message):
                (text if isinstance(event, TextMessage) else data).append(event.data)
                if event.message_finished:
                    self._text, self._data = [], []
                    return "".join(text) if text or not data else b"".join(data)

    def _next(self) -> object:
        while not self._events:
            received = self.sock.recv(RECEIVE_BYTES)
            try:
                self.machine.receive_data(received or None)
            except h11.RemoteProtocolError as error:
                raise UpgradeRefused(0, str(error)) from error
            self._events = list(self.machine.events())
            if not received and not self._events:
                raise Closed(1006, "")
        return self._events.pop(0)

    def close(self) -> None:
        """End the connection, with a close frame if none was sent."""
        with suppress(OSError, LocalProtocolError):  # The peer is gone, or both have closed.
            self._send(CloseConnection(1000))
        self.sock.close()


def call(url: str, method: str, path: str, body: str = "") -> int:
    """Make an HTTP call; return the status."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request(method, path, body or None, {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    return status
