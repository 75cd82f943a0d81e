"""Ordinary requests of HTTP/1.1 (RFC 9112) and their answers, as bytes. Knows no socket.

h11 parses any request. Most have one plain form, which a few checks recognise. Whatever is not
certainly of that form is left to h11, which also reports what is wrong with it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Final

HEAD_BYTES_MAX = 8 * 1024  # Usual heads are shorter; h11 has its own, larger limit.
# A body up to this size is sent with its head; copying a larger one would cost more than a send.
TOGETHER_BYTES = 64 * 1024

# The request line and header lines of visible ASCII, spaces and tabs, up to the empty line.
HEAD = re.compile(
    rb"(GET|HEAD|POST|PUT|PATCH|DELETE) (/[\x21-\x7e]*) HTTP/1\.1"
    rb"((?:\r\n[\t\x20-\x7e]+)*)"
)
FIELD_NAME = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")  # RFC 9110, section 5.1: a token.
BODY_SIZE = re.compile(rb"[0-9]{1,18}")
# These change how the connection or the body goes on.
NOT_ORDINARY = frozenset((b"transfer-encoding", b"upgrade", b"expect", b"http2-settings"))

# In the scope of a request: its body, if all of it came with the head.
WHOLE_BODY: Final = "braidlog.body"

CLOSE = b"connection: close\r\n"
WITHOUT_BODY = frozenset((204, 304))
Headers = list[tuple[bytes, bytes]]
Message = Mapping[str, Any]  # Of ASGI.


@dataclass(slots=True)
class Head:
    """The head of an ordinary request. `size` is its own, `body_bytes` that of the body after."""

    method: str
    path: bytes
    query: bytes
    headers: Headers  # names in lower case
    size: int
    body_bytes: int
    closes: bool = False  # The client wants the connection to end after the answer.


def read_head(received: bytes) -> Head | None:
    """The head of the ordinary request that the bytes begin with; None if h11 has to parse it."""
    end = received.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
    if end < 0:
        return None
    found = HEAD.fullmatch(received, 0, end)
    if found is None:
        return None
    method, target, lines = found.groups()
    headers: Headers = []
    hosts, size, closes = 0, b"", False
    for line in lines.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if not colon or FIELD_NAME.fullmatch(name) is None:
            return None
        name, value = name.lower(), value.strip(b" \t")
        if name in NOT_ORDINARY:
            return None
        if name == b"host":
            hosts += 1
        elif name == b"connection":
            closes = closes or value.lower() == b"close"
            if not closes and value.lower() != b"keep-alive":
                return None
        elif name == b"content-length":
            if size or BODY_SIZE.fullmatch(value) is None:
                return None
            size = value
        headers.append((name, value))
    if hosts != 1:
        return None
    path, _, query = target.partition(b"?")
    return Head(method.decode(), path, query, headers, end + 4, int(size or b"0"), closes)


class Dates:
    """The Date header (RFC 9110, section 6.6.1), made once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        """The header's line, as of now."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
        return self._line


class Answer:
    """The answer to one ordinary request: ASGI's messages in, bytes out."""

    def __init__(self, method: str, dates: Dates, *, closes: bool = False) -> None:
        """`closes`: the answer says that the connection ends."""
        self.is_begun = False
        self.is_whole = False  # All of it has been written.
        self.closes = closes
        self._is_head = method == "HEAD"
        self._dates = dates
        self._sends_body = True
        self._is_chunked = False
        self._left = 0  # Bytes still to come of a body whose size is in the head.
        self._head = b""  # Kept until the body, which follows at once.

    def write(self, message: Message) -> list[bytes]:
        """What to send for a message, in pieces; none while a head waits for its body. Raises
        ValueError for what HTTP does not allow.
        """
        if message["type"] == "http.response.start":
            return self._begin(message["status"], message["headers"])
        if not self.is_begun or self.is_whole:
            raise ValueError(f"{message['type']} is not due")
        return self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        if self.is_begun:
            raise ValueError("the answer has begun already")
        self.is_begun = True
        size = None
        lines = [CLOSE] if self.closes else []
        for name, value in headers:
            if name == b"content-length":
                size = int(value)
            elif name == b"connection" and value == b"close":
                if self.closes:
                    continue
                self.closes = True
            lines.append(b"%b: %b\r\n" % (name, value))
        fields = b"".join(lines)
        if not fields.count(b"\r") == fields.count(b"\n") == len(lines):
            raise ValueError("a header of more than one line")
        self._sends_body = not self._is_head and status not in WITHOUT_BODY
        if size is None and status not in WITHOUT_BODY:
            self._is_chunked = self._sends_body
            fields += b"transfer-encoding: chunked\r\n"
        self._left = (size or 0) if self._sends_body else 0
        head = b"HTTP/1.1 %d \r\n%b%b\r\n" % (status, fields, self._dates.line())
        if self._is_chunked:
            return [head]
        self._head = head
        return []

    def _go_on(self, body: bytes, *, is_last: bool) -> list[bytes]:
        if self._sends_body and not self._is_chunked:
            self._left -= len(body)
            if self._left < 0 or (is_last and self._left):
                raise ValueError("the body is not as long as its head says")
        self.is_whole = is_last
        head, self._head = self._head, b""
        if self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            pieces = [chunk + b"0\r\n\r\n" if is_last else chunk]
        elif not self._sends_body:
            pieces = [head]
        elif len(body) <= TOGETHER_BYTES:
            pieces = [head + body]
        else:
            pieces = [head, body]
        return [piece for piece in pieces if piece]
