"""Messages as the console reads and shows them. Knows no page and no template."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import msgspec

from braidlog.protocols.http.pip64.messages import ExactHeader, ExactMessage

VALUE_CHARACTERS_SHOWN = 500  # In a list; the page of a message shows more.
HEX_ROW = 16  # Bytes of a line of a hex dump.
FORMATS = ("auto", "json", "text", "hex", "base64")
ORIGINS = {
    "plain": "HTTP",
    "kafka": "Kafka",
    "kafka_batches": "Kafka",
    "pulsar": "Pulsar",
    "iggy": "Iggy",
    "iggy_typed": "Iggy",
}
INDENTED_BYTES_MAX = 256 * 1024
INDENTATION_SHARE_MAX = 16  # Characters of indentation for each byte of JSON.
JSON_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
MARK_DEPTHS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1, ord(","): 0}
NOT_MARKS = bytes(set(range(256)) - set(MARK_DEPTHS))
JSON_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class ReadMessage(ExactMessage):
    """A message of a read with or without `exact`."""

    # Headers with their kinds, in place of headers without: a list here is only read.
    headers: list[ExactHeader] | None = None  # type: ignore[assignment]


class MessagesRead(msgspec.Struct):
    """The answer to a read."""

    messages: list[ReadMessage]
    next_offset: int
    log_start_offset: int
    high_watermark: int


@dataclass(slots=True)
class ShownContent:
    """A key, value or header value as text. `kind` is null, empty, JSON, text, hex, base64 or the
    name of a schema's value; `is_cut` if the text is not whole.
    """

    kind: str
    text: str = ""
    is_cut: bool = False
    bytes: int = 0


@dataclass(slots=True)
class ShownRow:
    """A message in a list or on its page."""

    partition: int
    offset: int
    time_us: int
    key: ShownContent
    value: ShownContent
    headers: list[tuple[str, ShownContent, str]] = field(default_factory=list)
    error: str = ""
    origin: str = ""  # The protocol that stored the message.


def content_bytes(value: object, encoding: str | None) -> bytes | None:
    """Return the bytes of a key or value; the JSON text of a value that a schema decoded."""
    if value is None or value is msgspec.UNSET:
        return None
    if isinstance(value, str):
        return base64.b64decode(value) if encoding == "base64" else value.encode()
    return msgspec.json.encode(value)


def parsed(data: bytes) -> object:
    """Return the JSON value of bytes; UNSET for bytes that are not JSON."""
    try:
        return msgspec.json.decode(data)
    except JSON_ERRORS:
        return msgspec.UNSET


def show_content(
    value: object, encoding: str | None, form: str, characters_max: int
) -> ShownContent:
    """Return a key or value in a form of FORMATS, cut to about `characters_max`.

    `auto` shows values of a schema and JSON objects as JSON, other text as text, and other bytes as
    a hex dump.
    """
    data = content_bytes(value, encoding)
    if data is None:
        return ShownContent("null")
    if not data:
        return ShownContent("empty")
    kind, text = _text(value, encoding, data, form, characters_max)
    return ShownContent(kind, text[:characters_max], len(text) > characters_max, len(data))


def _text(
    value: object, encoding: str | None, data: bytes, form: str, characters_max: int
) -> tuple[str, str]:
    """Return the kind and text of bytes; the text may end after `characters_max` characters."""
    piece = data[: characters_max + 1]
    if form == "base64":
        return "base64", base64.b64encode(piece).decode()
    if form == "hex" or (form == "auto" and encoding == "base64"):
        return "hex", hex_dump(piece)
    if form == "auto" and not isinstance(value, str):
        return "value of the schema", pretty(data)
    if form == "json" or (form == "auto" and data[:1] in b"{["):
        if parsed(data) is not msgspec.UNSET:
            return "JSON", pretty(data)
        if form == "json":
            return "not JSON", piece.decode("utf-8", "backslashreplace")
    return "text", piece.decode("utf-8", "backslashreplace")


def pretty(data: bytes) -> str:
    """Return JSON with line breaks and indentation; as it is if the JSON is large, or so deep that
    the text would be mostly indentation.
    """
    if len(data) > INDENTED_BYTES_MAX or _indentation(data) > INDENTATION_SHARE_MAX * len(data):
        return data.decode("utf-8", "backslashreplace")
    return msgspec.json.format(data, indent=2).decode("utf-8", "backslashreplace")


def _indentation(data: bytes) -> int:
    """Return the approximate characters of indentation of JSON: two for each level of each item."""
    marks = JSON_TEXT.sub(b"", data).translate(None, NOT_MARKS)
    return 2 * sum(accumulate(map(MARK_DEPTHS.__getitem__, marks)))


def hex_dump(data: bytes) -> str:
    """Return lines of an offset, sixteen bytes, and their printable ASCII characters."""
    lines = []
    for start in range(0, len(data), HEX_ROW):
        row = data[start : start + HEX_ROW]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)


def time_us(message: ReadMessage) -> int:
    """Return the publish time of a message, else its append time."""
    if message.publishTime is not msgspec.UNSET:
        return message.publishTime * 1000
    return message.publish_us if message.publish_us is not None else message.append_us


def show_row(
    message: ReadMessage, form: str, characters_max: int = VALUE_CHARACTERS_SHOWN
) -> ShownRow:
    """Return a message in the form of the page."""
    return ShownRow(
        message.partition,
        offset_of(message),
        time_us(message),
        show_content(message.key, message.key_encoding, form, characters_max),
        show_content(message.value, message.encoding, form, characters_max),
        [
            (name, show_content(value, encoding, "auto", characters_max), str(kind))
            for name, value, encoding, kind in _headers(message)
        ],
        message.decode_error or "",
        origin_of(message),
    )


def origin_of(message: ReadMessage) -> str:
    """Return the protocol that stored a message, by the stored format; the format's name for the
    format of a plug-in.
    """
    name = message.format or ""
    return ORIGINS.get(name, name)


def offset_of(message: ReadMessage) -> int:
    """Return a message's offset, which every read shows."""
    assert message.offset is not msgspec.UNSET
    return message.offset


def _headers(message: ReadMessage) -> list[tuple[str, str, str | None, str | int]]:
    """Return name, value, encoding and kind of each header, in order."""
    if message.headers is not None:
        return [
            (
                base64.b64decode(header.name).decode("utf-8", "backslashreplace")
                if header.name_encoding == "base64"
                else header.name,
                header.value,
                header.encoding,
                header.kind,
            )
            for header in message.headers
        ]
    properties = message.properties if message.properties is not msgspec.UNSET else {}
    return [(name, value, None, "string") for name, value in properties.items()]


def fields_of(message: ReadMessage) -> dict[str, Any]:
    """Return the fields that an expression can name. JSON in keys and values is parsed."""
    return {
        "key": _field(message.key, message.key_encoding),
        "value": _field(message.value, message.encoding),
        "headers": {name: value for name, value, _, _ in _headers(message)},
        "offset": offset_of(message),
        "partition": message.partition,
        "time": time_us(message) // 1000,
    }


def _field(value: object, encoding: str | None) -> object:
    if value is msgspec.UNSET:
        return None
    if isinstance(value, str) and encoding != "base64" and value[:1] in ("{", "["):
        json = parsed(value.encode())
        return value if json is msgspec.UNSET else json
    return value


def search_text(message: ReadMessage) -> str:
    """Return all text of a message in lower case, for the search of a text."""
    words = [_word(message.key, message.key_encoding), _word(message.value, message.encoding)]
    for name, value, encoding, _ in _headers(message):
        words += [name, _word(value, encoding)]
    return "\n".join(words).lower()


def _word(value: object, encoding: str | None) -> str:
    data = content_bytes(value, encoding)
    return "" if data is None else data.decode("utf-8", "replace")
