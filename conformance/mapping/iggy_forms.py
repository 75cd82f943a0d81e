"""Hand-made message forms of Iggy: messages of a SEND, and of a poll, of each generation of
clients.

Layouts: apache/iggy, iggy/src/messages (0.0.60 to 0.6), core/common/src/types/message (0.7 to
0.10), core/binary_protocol (0.11).
"""

import struct
import zlib
from collections.abc import Callable, Sequence

import xxhash

from braidlog.storage.formats.record import Header, HeaderKind, Record
from conformance.clients.raw.iggy import headers_block, parse_headers, polled_messages
from conformance.mapping.views import Seen

TYPED = struct.Struct("<Q16sQQQIIQ")  # checksum, id, offset, time, client's time, sizes, reserved
UNTYPED = struct.Struct("<Q16sQQQII")
FRAME = struct.Struct("<Q16sIIIIQ")
BATCH = struct.Struct("<QQQQQQI")
BATCH_HEAD_BYTES = 256
digest = xxhash.xxh3_64_intdigest


def sent_classic(records: Sequence[Record]) -> bytes:
    """Return a SEND's messages, crates 0.0.60 to 0.6."""
    whole = bytearray()
    for record in records:
        value = record.value or b""
        whole += _id(record) + headers_block([(h.name, h.kind, h.value) for h in record.headers])
        whole += struct.pack("<I", len(value)) + value
    return bytes(whole)


def sent_untyped(records: Sequence[Record]) -> bytes:
    """Return a SEND's messages, crates 0.7 and 0.8."""
    whole = bytearray()
    for record in records:
        headers = headers_block([(h.name, h.kind, h.value) for h in record.headers])[4:]
        value = record.value or b""
        whole += UNTYPED.pack(0, _id(record), 0, 0, _sent_us(record), len(headers), len(value))
        whole += value + headers
    return bytes(whole)


def sent_typed(records: Sequence[Record]) -> bytes:
    """Return a SEND's messages, crates 0.9 and 0.10."""
    whole = bytearray()
    for record in records:
        headers, value = _typed_headers(record.headers), record.value or b""
        whole += TYPED.pack(0, _id(record), 0, 0, _sent_us(record), len(headers), len(value), 0)
        whole += value + headers
    return bytes(whole)


def sent_batch(records: Sequence[Record], producer: tuple[int, int, int] | None = None) -> bytes:
    """Return a batch of crate 0.11; times are deltas of 32 bits from the first.

    With a producer, its id, epoch and first sequence, a batch of crate 0.12.
    """
    base_us = min(_sent_us(record) for record in records)
    frames, checksums = bytearray(), bytearray()
    for number, record in enumerate(records):
        headers, value = _typed_headers(record.headers), record.value or b""
        sizes = (len(headers), len(value))
        checked = FRAME.pack(0, _id(record), number, _sent_us(record) - base_us, *sizes, 0)[8:]
        checked += value + headers
        checksum = struct.pack("<Q", digest(checked))
        frames += checksum + checked
        checksums += checksum
    size = BATCH_HEAD_BYTES + len(frames)
    known = struct.pack("<QQQQQI", 0, 0, 0, base_us, size, len(records))
    section = b""
    if producer is not None:
        known += struct.pack("<BQHI", 1, *producer)
        section = struct.pack("<B3xQHxxI", 1, *producer)
    head = BATCH.pack(0, 0, 0, base_us, size, digest(known + checksums), len(records))
    return (head + section).ljust(BATCH_HEAD_BYTES, b"\0") + frames


def sent_producer_batch(records: Sequence[Record]) -> bytes:
    """Return a batch of crate 0.12 of an idempotent producer."""
    return sent_batch(records, (7 << 20, 3, 5))


def read_classic(answer: bytes) -> list[Seen]:
    """Return the messages of a poll, crates 0.0.60 to 0.6."""
    return [
        {
            "offset": message.offset,
            "payload": message.payload,
            "headers": message.headers,
            "id": message.message_id,
            "timestamp": message.timestamp_us,
        }
        for message in polled_messages(answer)
    ]


def read_typed(answer: bytes) -> list[Seen]:
    """Return the messages of a poll, crates 0.9 and 0.10."""
    messages: list[Seen] = []
    pos = 0
    while pos < len(answer):
        checksum, message_id, offset, time_us, sent_us, headers, payload, _ = TYPED.unpack_from(
            answer, pos
        )
        value_pos = pos + TYPED.size
        stop = value_pos + payload + headers
        assert digest(answer[pos + 8 : stop]) == checksum
        messages.append(
            {
                "offset": offset,
                "payload": answer[value_pos : value_pos + payload],
                "headers": _headers_of(answer[value_pos + payload : stop]),
                "id": int.from_bytes(message_id, "little"),
                "timestamp": time_us,
                "origin_timestamp": sent_us,
            }
        )
        pos = stop
    return messages


def read_untyped(answer: bytes, checksum_of: Callable[[bytes], int] = digest) -> list[Seen]:
    """Return the messages of a poll, crate 0.8."""
    messages: list[Seen] = []
    pos = 0
    while pos < len(answer):
        checksum, message_id, offset, time_us, sent_us, headers, payload = UNTYPED.unpack_from(
            answer, pos
        )
        value_pos = pos + UNTYPED.size
        headers_pos = value_pos + payload
        stop = headers_pos + headers
        assert checksum_of(answer[pos + 8 : stop]) == checksum
        messages.append(
            {
                "offset": offset,
                "payload": answer[value_pos:headers_pos],
                "headers": parse_headers(answer[headers_pos:stop]),
                "id": int.from_bytes(message_id, "little"),
                "timestamp": time_us,
                "origin_timestamp": sent_us,
            }
        )
        pos = stop
    return messages


def read_untyped_crc(answer: bytes) -> list[Seen]:
    """Return the messages of a poll, crate 0.7."""
    return read_untyped(answer, zlib.crc32)


def read_batches(answer: bytes) -> list[Seen]:
    """Return the messages of a poll, crates 0.11 and 0.12: no batch names a producer."""
    messages: list[Seen] = []
    pos = 0
    while pos < len(answer):
        *known, size, checksum, count = BATCH.unpack_from(answer, pos)
        frames_pos, stop = pos + BATCH_HEAD_BYTES, pos + size
        assert not any(answer[pos + BATCH.size : frames_pos]), "reserved bytes"
        frames = _read_frames(answer[frames_pos:stop], *known[1:])
        checksums = b"".join(checked for checked, _ in frames)
        assert len(frames) == count
        assert digest(struct.pack("<QQQQQI", *known, size, count) + checksums) == checksum
        messages += [message for _, message in frames]
        pos = stop
    return messages


def _read_frames(
    frames: bytes, base_offset: int, time_us: int, base_us: int
) -> list[tuple[bytes, Seen]]:
    """Return each message of a batch, with the bytes of its checksum."""
    messages: list[tuple[bytes, Seen]] = []
    pos = 0
    while pos < len(frames):
        checksum, message_id, offset, sent_us, headers, payload, _ = FRAME.unpack_from(frames, pos)
        value_pos = pos + FRAME.size
        headers_pos = value_pos + payload
        stop = headers_pos + headers
        assert digest(frames[pos + 8 : stop]) == checksum
        message: Seen = {
            "offset": base_offset + offset,
            "payload": frames[value_pos:headers_pos],
            "headers": _headers_of(frames[headers_pos:stop]),
            "id": int.from_bytes(message_id, "little"),
            "timestamp": time_us,
            "origin_timestamp": base_us + sent_us,
        }
        messages.append((struct.pack("<Q", checksum), message))
        pos = stop
    return messages


def _headers_of(block: bytes) -> list[tuple[bytes, int, bytes]]:
    headers = []
    pos = 0
    while pos < len(block):
        _, size = struct.unpack_from("<BI", block, pos)
        name = block[pos + 5 : pos + 5 + size]
        pos += 5 + size
        kind, size = struct.unpack_from("<BI", block, pos)
        headers.append((name, kind, block[pos + 5 : pos + 5 + size]))
        pos += 5 + size
    return headers


def _typed_headers(headers: Sequence[Header]) -> bytes:
    return b"".join(
        struct.pack("<BI", HeaderKind.STRING, len(header.name))
        + header.name
        + struct.pack("<BI", header.kind, len(header.value))
        + header.value
        for header in headers
    )


def _id(record: Record) -> bytes:
    return record.message_id.to_bytes(16, "little")


def _sent_us(record: Record) -> int:
    return max(record.publish_us or 0, 0)
