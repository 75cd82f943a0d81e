"""Messages in the JSON of Iggy's HTTP API: those of a SEND, and of a poll's answer.

Both have the form of D5 in the handlers. Knows no route.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import trio

from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.http.json_values import (
    U64_MAX,
    Json,
    consumer_of,
    number_of,
    refused,
    whole,
)
from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.record import HeaderKind

MESSAGES_MAX: Final = 10_000  # Of a request.
PACKED_PER_TURN: Final = 200  # Messages, and headers of them, packed between two checkpoints.
HEADERS_BYTES_MAX: Final = 100_000  # Of a message, as in Iggy.
PAYLOAD_PART_BYTES: Final = 48 * 1024  # In Base64 at once: a multiple of 3, so that parts join.
POLL_COUNT: Final = 10  # By default.
LARGEST_ID = (1 << 128) - 1
# A message of D5: checksum, id, offset, time (all by the server), client's time, sizes, reserved.
MESSAGE = struct.Struct("<Q16sQQQIIQ")
HEADER_FIELD = struct.Struct("<BI")


class HeaderField(msgspec.Struct):
    """The key or the value of a message's header; `value` is Base64."""

    kind: str
    value: str


class HeaderBody(msgspec.Struct):
    """A header of a message."""

    key: HeaderField
    value: HeaderField


class MessageBody(msgspec.Struct):
    """A message to send; `payload` is Base64, and so are headers that are one text."""

    payload: str
    id: int | str = 0
    user_headers: list[HeaderBody] | str | None = None


class PartitioningBody(msgspec.Struct):
    """The choice of a partition; `value` is Base64."""

    kind: str
    value: str = ""


class SendBody(msgspec.Struct):
    """Body of `POST .../messages`."""

    partitioning: PartitioningBody
    messages: list[MessageBody]


def poll_of(query: Mapping[str, str], stream: m.Name, topic: m.Name) -> m.PollMessages:
    """Return the poll of a query. Raises Refusal."""
    kind = query.get("kind", "offset")
    if kind.upper() not in m.PollingKind.__members__:
        kinds = ", ".join(name.lower() for name in m.PollingKind.__members__)
        raise refused(f"kind: one of {kinds} is needed")
    auto_commit = query.get("auto_commit", "false")
    if auto_commit not in ("true", "false"):
        raise refused("auto_commit: true or false is needed")
    return m.PollMessages(
        consumer_of(query.get("consumer_id", "1")),
        stream,
        topic,
        number_of(query, "partition_id", 0),
        m.PollingStrategy(
            m.PollingKind[kind.upper()], number_of(query, "value", 0, largest=U64_MAX)
        ),
        min(number_of(query, "count", POLL_COUNT), MESSAGES_MAX),
        auto_commit == "true",
    )


async def sending_of(body: SendBody, stream: m.Name, topic: m.Name, now_us: int) -> m.SendMessages:
    """Return the SEND of a body, with messages as in D5; other tasks get their turns.

    Raises Refusal.
    """
    if not 0 < len(body.messages) <= MESSAGES_MAX:
        reason = f"messages: 1 to {MESSAGES_MAX} are needed"
        raise refused(reason, ErrorCode.INVALID_MESSAGES_COUNT)
    pieces, work = [], 0
    for message in body.messages:
        pieces.append(_message(message, now_us))
        headers = message.user_headers
        work += 1 + (len(headers) if isinstance(headers, list) else 0)
        if work >= PACKED_PER_TURN:
            work = 0
            await trio.lowlevel.checkpoint()
    packed, count = b"".join(pieces), len(pieces)
    return m.SendMessages(
        stream, topic, _partitioning(body.partitioning), memoryview(packed), count
    )


def _partitioning(body: PartitioningBody) -> m.Partitioning:
    value = _decoded(body.value, "partitioning.value")
    if body.kind == "balanced":
        return m.Partitioning(m.PartitioningKind.BALANCED)
    if body.kind == "partition_id" and len(value) == 4:
        partition = int.from_bytes(value, "little")
        return m.Partitioning(m.PartitioningKind.PARTITION, partition)
    if body.kind == "messages_key" and 1 <= len(value) <= 255:
        return m.Partitioning(m.PartitioningKind.KEY, key=value)
    raise refused(
        "partitioning: balanced, partition_id with 4 bytes, or messages_key with 1 to 255"
    )


def _message(body: MessageBody, now_us: int) -> bytes:
    payload = _decoded(body.payload, "payload")
    headers = body.user_headers or []
    if isinstance(headers, str):
        packed = _decoded(headers, "user_headers")
    else:
        packed = _packed_headers(headers)
    if len(packed) > HEADERS_BYTES_MAX:
        raise refused(
            f"user_headers: at most {HEADERS_BYTES_MAX} bytes", ErrorCode.TOO_BIG_HEADERS_PAYLOAD
        )
    number = body.id
    if isinstance(number, str):
        if not (number.isascii() and number.isdigit() and len(number) < 40):
            raise refused("id: a decimal number of 128 bits")
        number = int(number)
    message_id = whole(number, "id", LARGEST_ID).to_bytes(16, "little")
    head = MESSAGE.pack(0, message_id, 0, 0, now_us, len(packed), len(payload), 0)
    return head + payload + packed


def _packed_headers(headers: Sequence[HeaderBody]) -> bytes:
    """Return the bytes of headers; of too many headers, just above the limit."""
    packed, size = [], 0
    for header in headers:
        packed.append(_header(header))
        size += len(packed[-1])
        if size > HEADERS_BYTES_MAX:
            break
    return b"".join(packed)


def _header(header: HeaderBody) -> bytes:
    parts = []
    for field in (header.key, header.value):
        kind = field.kind.upper()
        if kind not in HeaderKind.__members__:
            raise refused(f"user_headers: there is no kind {field.kind!r}")
        value = _decoded(field.value, "user_headers")
        parts += [HEADER_FIELD.pack(HeaderKind[kind], len(value)), value]
    return b"".join(parts)


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise refused(f"{name}: this is no Base64", ErrorCode.INVALID_FORMAT) from None


def polled_parts(head: r.PolledHead, tail: Sequence[Buffer]) -> Iterator[bytes]:
    """Yield polled messages in the form of D5 as parts of a JSON text, each made at once."""
    yield (
        b'{"partition_id":%d,"current_offset":%d,"count":%d,"messages":['
        % (head.partition & 0xFFFF_FFFF, head.current_offset, head.messages_count)
    )
    is_first = True
    for part in tail:
        view, pos = memoryview(part), 0
        while pos < len(view):
            if not is_first:
                yield b","
            is_first = False
            pos = yield from _message_parts(view, pos)
    yield b"]}"


def _message_parts(view: memoryview, pos: int) -> Generator[bytes, None, int]:
    """Yield the JSON of a message; return the place of the next message."""
    fields = MESSAGE.unpack_from(view, pos)
    checksum, number, offset, timestamp, origin, headers_bytes, payload_bytes, _ = fields
    start = pos + MESSAGE.size
    end: int = start + payload_bytes
    next_pos: int = end + headers_bytes
    is_large = payload_bytes > PAYLOAD_PART_BYTES
    message = {
        "header": {
            "checksum": checksum,
            "id": int.from_bytes(number, "little"),
            "offset": offset,
            "timestamp": timestamp,
            "origin_timestamp": origin,
            "user_headers_length": headers_bytes,
            "payload_length": payload_bytes,
            "reserved": 0,
        },
        "payload": "" if is_large else base64.b64encode(view[start:end]).decode(),
        "user_headers": headers_json(view[end:next_pos]),
    }
    text = msgspec.json.encode(message)
    if not is_large:
        yield text
        return next_pos
    # The header before the payload has numbers alone.
    before, empty, after = text.partition(b'"payload":""')
    yield before + empty[:-1]
    for first in range(start, end, PAYLOAD_PART_BYTES):
        yield base64.b64encode(view[first : min(first + PAYLOAD_PART_BYTES, end)])
    yield empty[-1:] + after
    return next_pos


def headers_json(block: memoryview) -> list[Json] | str:
    """Return a message's headers; in Base64 if the block cannot be read."""
    fields: list[Mapping[str, str]] = []
    pos = 0
    try:
        while pos < len(block):
            kind, size = HEADER_FIELD.unpack_from(block, pos)
            pos += HEADER_FIELD.size
            value = base64.b64encode(block[pos : pos + size]).decode()
            fields.append({"kind": HeaderKind(kind).name.lower(), "value": value})
            pos += size
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return [{"key": key, "value": value} for key, value in pairs]
    except (struct.error, ValueError):
        return base64.b64encode(block).decode()
