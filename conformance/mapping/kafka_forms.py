"""Kafka's three message formats, hand-made from the protocol guide: produced sets, and the messages
in fetch answers.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence

from crc32c import crc32c

from braidlog.storage.formats.record import Record
from conformance.clients.raw.kafka import data, message, parse_set
from conformance.mapping.views import US_PER_MS, Seen

BATCH = struct.Struct(">hiqqqhii")  # From the attributes on: the first part under the checksum.
GZIP = 1


def produced_0(records: Sequence[Record], packed: bool) -> bytes:
    """Return a set of format 0; `packed` wraps the set into a gzip message."""
    whole = b"".join(message(record.key, record.value) for record in records)
    return message(None, _gzip(whole), GZIP) if packed else whole


def produced_1(records: Sequence[Record], packed: bool) -> bytes:
    """Return a set of format 1."""
    whole = b"".join(_timed(record.key, record.value, _ms(record)) for record in records)
    return _timed(None, _gzip(whole), -1, GZIP) if packed else whole


def produced_2(records: Sequence[Record], packed: bool) -> bytes:
    """Return a record batch with base offset 0."""
    times = [_ms(record) for record in records]
    base_ms = times[0]
    body = bytearray()
    for number, (record, time_ms) in enumerate(zip(records, times, strict=True)):
        head = b"\0" + varint(time_ms - base_ms) + varint(number)
        encoded = head + sized(record.key) + sized(record.value) + varint(len(record.headers))
        encoded += b"".join(sized(header.name) + sized(header.value) for header in record.headers)
        body += varint(len(encoded)) + encoded
    last, codec = len(records) - 1, GZIP if packed else 0
    checked = BATCH.pack(codec, last, base_ms, max(times), -1, -1, -1, len(records))
    checked += _gzip(bytes(body)) if packed else body
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c(checked)) + checked


def read_0(answer: bytes) -> list[Seen]:
    """Return the messages of a fetched set of format 0, with wrappers opened."""
    messages: list[Seen] = []
    for piece, is_packed in _messages(answer):
        inner = zlib.decompress(_value(piece), 31) if is_packed else piece
        messages += [
            {"offset": offset, "key": key, "value": value}
            for offset, key, value in parse_set(inner)
        ]
    return messages


def read_2(answer: bytes) -> list[Seen]:
    """Return the records of fetched batches."""
    records: list[Seen] = []
    pos = 0
    while pos < len(answer):
        base, length, _, magic, crc = struct.unpack_from(">qiibI", answer, pos)
        stop = pos + 12 + length
        assert magic == 2 and crc32c(answer[pos + 21 : stop]) == crc
        attributes, _, base_ms, _, _, _, _, count = BATCH.unpack_from(answer, pos + 21)
        packed = answer[pos + 21 + BATCH.size : stop]
        packed = zlib.decompress(packed, 31) if attributes & 7 == GZIP else packed
        at = 0
        for _ in range(count):
            record, at = _record_at(packed, at, base, base_ms)
            records.append(record)
        assert at == len(packed)
        pos = stop
    return records


def varint(number: int) -> bytes:
    """Return a number as zig-zag, base 128, least significant group first."""
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    return bytes(out) + bytes([zigzag])


def sized(value: bytes | None) -> bytes:
    """Return a varint length, then the bytes; -1 is null."""
    return varint(-1) if value is None else varint(len(value)) + value


def _record_at(packed: bytes, pos: int, base: int, base_ms: int) -> tuple[Seen, int]:
    size, pos = _varint_at(packed, pos)
    stop = pos + size
    time_delta, pos = _varint_at(packed, pos + 1)
    offset_delta, pos = _varint_at(packed, pos)
    key, pos = _sized_at(packed, pos)
    value, pos = _sized_at(packed, pos)
    count, pos = _varint_at(packed, pos)
    headers = []
    for _ in range(count):
        name, pos = _sized_at(packed, pos)
        text, pos = _sized_at(packed, pos)
        headers.append((name, text))
    assert pos == stop
    seen: Seen = {"offset": base + offset_delta, "key": key, "value": value}
    return seen | {"headers": headers, "timestamp": base_ms + time_delta}, stop


def _varint_at(packed: bytes, pos: int) -> tuple[int, int]:
    zigzag = shift = 0
    while True:
        byte = packed[pos]
        zigzag |= (byte & 127) << shift
        pos, shift = pos + 1, shift + 7
        if byte < 128:
            return (zigzag >> 1) ^ -(zigzag & 1), pos


def _sized_at(packed: bytes, pos: int) -> tuple[bytes | None, int]:
    size, pos = _varint_at(packed, pos)
    return (None, pos) if size < 0 else (packed[pos : pos + size], pos + size)


def _timed(key: bytes | None, value: bytes | None, time_ms: int, codec: int = 0) -> bytes:
    body = struct.pack(">bbq", 1, codec, time_ms) + data(key) + data(value)
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def _messages(answer: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield each entry of a set, and True for a wrapper."""
    pos = 0
    while pos < len(answer):
        (size,) = struct.unpack_from(">i", answer, pos + 8)
        yield answer[pos : pos + 12 + size], bool(answer[pos + 17] & 7)
        pos += 12 + size


def _value(wrapper: bytes) -> bytes:
    (((_, _, value)),) = parse_set(wrapper)
    assert value is not None
    return value


def _ms(record: Record) -> int:
    return -1 if record.publish_us is None else record.publish_us // US_PER_MS


def _gzip(plain: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(plain) + packer.flush()
