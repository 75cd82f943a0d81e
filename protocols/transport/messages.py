"""HTTP/1.1 requests and responses between h11 and ASGI. Knows no socket and no route."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import unquote

import h11

# A body of at most this size is sent with the response head; copying a larger body would cost more
# than a second send.
TOGETHER_BYTES = 64 * 1024

# Key of a request's scope: the body, if the whole body arrived with the head.
WHOLE_BODY: Final = "braidlog.body"
# Key of a scope's extensions for a request to change to WebSocket: the fault of the opening
# request, "" for a valid request.
WEBSOCKET: Final = "braidlog.websocket"

ASGI = {"spec_version": "2.1", "version": "3.0"}
WITHOUT_BODY = frozenset((204, 304))
Message = Mapping[str, Any]  # An ASGI message.


def request_scope(
    request: h11.Request,
    *,
    scheme: str,
    client: tuple[str, int] | None,
    server: tuple[str, int] | None,
) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    path, _, query = request.target.partition(b"?")
    return {
        "type": "http",
        "http_version": request.http_version.decode(),
        "asgi": ASGI,
        "method": request.method.decode(),
        "scheme": scheme,
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": list(request.headers),
        "client": client,
        "server": server,
        "state": {},
        "extensions": {},
    }


def body_size(request: h11.Request) -> int | None:
    """Return the body's size that the head announces; None for a chunked body."""
    size = 0
    for name, value in request.headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            size = int(value)  # h11 has checked the number.
    return size


class DateHeader:
    """The Date header (RFC 9110, section 6.6.1), formatted once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._value = b""

    def now(self) -> tuple[bytes, bytes]:
        """Return the header for the current second."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._value = formatdate(second, usegmt=True).encode()
        return b"date", self._value


class Response:
    """The response to a request: ASGI messages in, bytes out.

    The head waits for the first piece of the body, so that a short response leaves in one send. An
    endless response (no content-length) sends the head at once.
    """

    def __init__(self, connection: h11.Connection, method: bytes, date: DateHeader) -> None:
        self.is_started = False
        self.is_complete = False
        self._connection = connection
        self._date = date
        self._is_head_request = method == b"HEAD"
        self._has_body = True
        self._head = b""

    def write(self, message: Message) -> list[bytes]:
        """Return the bytes to send for an ASGI message, in pieces.

        Raises:
            h11.LocalProtocolError: HTTP does not allow the message, or the message is out of order.
        """
        if message["type"] == "http.response.start":
            return self._start(message["status"], message["headers"])
        if not self.is_started or self.is_complete:
            raise h11.LocalProtocolError(f"{message['type']} is out of order")
        return self._continue(message.get("body", b""), not message.get("more_body", False))

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        self.is_started = True
        fields = [*headers, self._date.now()]
        head = self._send(h11.Response(status_code=status, headers=fields))
        self._has_body = not self._is_head_request and status not in WITHOUT_BODY
        if self._has_body and not any(name == b"content-length" for name, _ in fields):
            return [head]
        self._head = head
        return []

    def _continue(self, body: bytes, is_last: bool) -> list[bytes]:
        data = self._send(h11.Data(data=body)) if self._has_body and body else b""
        if is_last:
            data += self._send(h11.EndOfMessage())
            self.is_complete = True
        head, self._head = self._head, b""
        pieces = [head + data] if len(data) <= TOGETHER_BYTES else [head, data]
        return [piece for piece in pieces if piece]

    def _send(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> bytes:
        return self._connection.send(event) or b""
