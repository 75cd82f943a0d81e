"""Messages as the commands `consume` and `tail` print them: tables, JSON, or a user's template.

Bytes of users are never mangled. On a line for people, terminal control characters are escaped.
Knows messages of the broker's exact reads, no broker.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from braidlog.broker.cli.client import Json
from braidlog.broker.cli.failures import EXIT_USAGE, AdminError

COLUMNS = (("partition", 9), ("offset", 10), ("published", 26), ("key", 16), ("value", 0))
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
PART = re.compile(rb"%(.)|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+)", re.DOTALL)
DIRECTIVES = "tpokvhTE%"


def line(columns: Sequence[tuple[str, int]], *cells: str) -> str:
    """Return a line of cells, each at least as wide as its column."""
    pairs = zip(cells, columns, strict=True)
    return "  ".join(f"{text:<{width}}" for text, (_, width) in pairs).rstrip()


def head(columns: Sequence[tuple[str, int]]) -> str:
    """Return the names of the columns as a line."""
    return line(columns, *(name for name, _ in columns))


def cell(data: bytes | None, most: int | None = None) -> str:
    """Return bytes as text for people: `-` for absent, control characters escaped, text longer
    than `most` cut.
    """
    if data is None:
        return "-"
    try:
        text = data.decode()
        text = text if text.isprintable() else text.encode("unicode_escape").decode()
    except UnicodeDecodeError:
        text = repr(data)
    if most is None or len(text) <= most:
        return text
    return f"{text[:most]}... ({len(data)} bytes)"


def time_text(time_us: int) -> str:
    """Return a time in UTC; the number if out of the calendar's range."""
    try:
        return datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat()[:26]
    except (ValueError, OverflowError, OSError):
        return str(time_us)


def field(message: Json, name: str, mark: str) -> bytes | None:
    """Return the bytes of a key or value; None for an absent field."""
    text = message.get(name)
    if text is None:
        return None
    if message.get(mark) == "base64":
        return base64.b64decode(text)
    if not isinstance(text, str):  # Decoded by its schema.
        return json.dumps(text).encode()
    return text.encode()


def key_of(message: Json) -> bytes | None:
    return field(message, "key", "key_encoding")


def value_of(message: Json) -> bytes | None:
    return field(message, "value", "encoding")


def published_us(message: Json) -> int:
    """Return the publish time, else the append time."""
    if "publishTime" in message:
        return int(message["publishTime"]) * 1000
    return int(message.get("publish_us") or message.get("append_us") or 0)


def table_line(message: Json, *, headers_only: bool) -> str:
    """Return a message as a line for people."""
    shown = cell(_headers(message)) if headers_only else cell(value_of(message))
    place = str(message["partition"]), str(message.get("offset", "-"))
    return line(COLUMNS, *place, time_text(published_us(message)), cell(key_of(message)), shown)


def _headers(message: Json) -> bytes:
    pairs = [
        (field(header, "name", "name_encoding") or b"", field(header, "value", "encoding") or b"")
        for header in message.get("headers") or ()
    ]
    pairs += [
        (name.encode(), str(value).encode())
        for name, value in (message.get("properties") or {}).items()
    ]
    return b",".join(b"%b=%b" % pair for pair in pairs)


class Template:
    """A user's template: `%t %p %o %k %v\\n`."""

    def __init__(self, text: str) -> None:
        """Raises AdminError for an unknown part."""
        self._parts: list[bytes | str] = []
        encoded = text.encode("utf-8", "surrogateescape")
        pos = 0
        while pos < len(encoded):
            match = PART.match(encoded, pos)
            if match is None:
                raise AdminError(f"--format {text}: ends in the middle of a part", EXIT_USAGE)
            pos = match.end()
            self._parts.append(self._part(match, text))

    def _part(self, match: re.Match[bytes], text: str) -> bytes | str:
        directive, escape, literal = match.groups()
        if literal is not None:
            return bytes(literal)
        if directive is not None:
            name = directive.decode("ascii", "replace")
            if name not in DIRECTIVES:
                known = " ".join(f"%{directive}" for directive in DIRECTIVES)
                raise AdminError(f"--format {text}: no %{name}, there are: {known}", EXIT_USAGE)
            return b"%" if name == "%" else name
        name = escape.decode("ascii", "replace")
        if name.startswith("x") and len(name) == 3:
            return bytes.fromhex(name[1:])
        if name not in ESCAPES:
            raise AdminError(f"--format {text}: no \\{name}", EXIT_USAGE)
        return ESCAPES[name]

    def bytes_of(self, topic: str, message: Json) -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else self._value(part, topic, message)
            for part in self._parts
        )

    def _value(self, directive: str, topic: str, message: Json) -> bytes:
        if directive == "k":
            return key_of(message) or b""
        if directive == "v":
            return value_of(message) or b""
        if directive == "h":
            return _headers(message)
        if directive == "t":
            return topic.encode()
        event_us = message.get("event_us")
        if event_us is None:
            event_us = message["eventTime"] * 1000 if "eventTime" in message else ""
        numbers = {
            "p": message["partition"],
            "o": message.get("offset", ""),
            "T": published_us(message),
            "E": event_us,
        }
        return str(numbers[directive]).encode()
