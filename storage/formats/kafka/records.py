"""The records inside a Kafka record batch, and their varints: base 128, least significant group
first, zig-zag. Layout: Kafka protocol guide, "Record". Knows no batch header.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from braidlog.storage.errors import CorruptBody
from braidlog.storage.formats.api import Buffer, Decoded
from braidlog.storage.formats.record import Header, Record

US_PER_MS: Final = 1000
TIME_MS_MAX: Final = (2**63 - 1) // 1000
# A record with more headers is refused: no client sends that many, and each becomes an object.
RECORD_HEADERS_MAX: Final = 10_000

VARLONG_BYTES_MAX: Final = 10
_TWO_BYTES_MAX: Final = 1 << 13


def _long(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


# Covers the lengths of most keys and small values, and most differences.
_SHORT_MAX: Final = 1 << 9
_SHORT: Final = tuple(_long(value) for value in range(_SHORT_MAX))


def varint_bytes(value: int) -> bytes:
    """Encode a signed integer of up to 64 bits."""
    if 0 <= value < _SHORT_MAX:
        return _SHORT[value]
    if 0 < value < _TWO_BYTES_MAX:
        return bytes((value << 1 & 0x7F | 0x80, value >> 6))
    return _long(value)


def read_varint(data: Buffer, pos: int) -> tuple[int, int]:
    """Return the value at pos, and the position of the next field. Raises CorruptBody,
    IndexError.
    """
    byte = data[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    zigzag, shift, end = byte & 0x7F, 7, pos + VARLONG_BYTES_MAX
    while byte >= 0x80:
        pos += 1
        if pos >= end:
            raise CorruptBody("varint of more than ten bytes")
        byte = data[pos]
        zigzag |= (byte & 0x7F) << shift
        shift += 7
    return (zigzag >> 1) ^ -(zigzag & 1), pos + 1


@dataclass(slots=True)
class RecordsOf:
    """The unpacked records of a batch, with facts from its head."""

    data: bytes
    base_offset: int
    append_us: int
    count: int = 0
    last_offset_delta: int = 0
    base_ms: int = 0
    all_us: int | None = None  # the time of every record, if set by the broker


def decode_records(
    whole: RecordsOf, start_offset: int, limits: tuple[int, int], decoded: Decoded
) -> int:
    """Add the records from start_offset on, up to the record that reaches a limit (count, bytes).

    Returns the rest of the byte limit. Raises CorruptBody if the records do not match the head; the
    records before the error are added, and `next_offset` is the offset after them.
    """
    records_max, bytes_left = limits
    data, number, last_delta = whole.data, 0, -1
    pos, end = 0, len(data)
    try:
        while number < whole.count:  # hot: see make bench
            size, pos = read_varint(data, pos)
            stop = pos + size
            if size < 0 or stop > end:
                raise CorruptBody("record is longer than its batch")
            time_delta, at = read_varint(data, pos + 1)
            delta, at = read_varint(data, at)
            if not last_delta < delta <= whole.last_offset_delta:
                raise CorruptBody(f"record at {delta} behind the one at {last_delta}")
            number, last_delta = number + 1, delta
            offset = whole.base_offset + delta
            if offset >= start_offset:
                time_us = _us_of(whole, time_delta)
                decoded.records.append(_record(data, at, stop, offset, whole.append_us, time_us))
                decoded.next_offset = offset + 1
                records_max -= 1
                bytes_left -= size
                if records_max <= 0 or bytes_left <= 0:
                    return bytes_left
            pos = stop
    except IndexError as error:
        raise CorruptBody("record batch is cut short") from error
    if pos != end:
        raise CorruptBody("record batch holds more than it says")
    return bytes_left


def kept_records(
    data: bytes, base_offset: int, is_removed: Callable[[int], bool]
) -> tuple[bytes, int, int]:
    """Return the unpacked records of a batch without some records, their number, and the last
    offset.
    """
    parts: list[bytes] = []
    pos, end, last = 0, len(data), base_offset - 1
    try:
        while pos < end:
            start = pos
            size, pos = read_varint(data, pos)
            stop = pos + size
            if size < 0 or stop > end:
                raise CorruptBody("record is longer than its batch")
            _, at = read_varint(data, pos + 1)
            delta, _ = read_varint(data, at)
            if not is_removed(base_offset + delta):
                parts.append(data[start:stop])
                last = base_offset + delta
            pos = stop
    except IndexError as error:
        raise CorruptBody("record batch is cut short") from error
    return b"".join(parts), len(parts), last


def is_any_keyless(data: bytes) -> bool:
    """Return True if any unpacked record of a batch has no key. Raises CorruptBody."""
    pos, end = 0, len(data)
    try:
        while pos < end:
            size, pos = read_varint(data, pos)
            _, at = read_varint(data, pos + 1)
            _, at = read_varint(data, at)
            if read_varint(data, at)[0] < 0:
                return True
            if size <= 0:
                raise CorruptBody("record without a size")
            pos += size
    except IndexError as error:
        raise CorruptBody("record batch is cut short") from error
    return False


def _us_of(whole: RecordsOf, time_delta: int) -> int | None:
    if whole.all_us is not None:
        return whole.all_us
    time_ms = whole.base_ms + time_delta
    if time_ms == -1:
        return None
    return max(-TIME_MS_MAX, min(time_ms, TIME_MS_MAX)) * US_PER_MS


def _record(
    data: bytes, pos: int, stop: int, offset: int, append_us: int, publish_us: int | None
) -> Record:
    key, pos = _sized(data, pos, stop)
    value, pos = _sized(data, pos, stop)
    headers: Sequence[Header] = ()
    if data[pos : pos + 1] == b"\x00":
        pos += 1
    else:
        headers, pos = _headers(data, pos, stop)
    if pos != stop:
        raise CorruptBody("record does not end with its fields")
    return Record(offset, append_us, publish_us, None, key, value, headers)


def _sized(data: bytes, pos: int, stop: int) -> tuple[bytes | None, int]:
    size, pos = read_varint(data, pos)
    if size < 0:
        return None, pos
    if pos + size > stop:
        raise CorruptBody("field is longer than its record")
    return data[pos : pos + size], pos + size


def _headers(data: bytes, pos: int, stop: int) -> tuple[list[Header], int]:
    """Return the headers of a record. Null values become empty: no other protocol has nulls."""
    count, pos = read_varint(data, pos)
    if not 0 <= count <= RECORD_HEADERS_MAX:
        raise CorruptBody(f"record with {count} headers")
    headers = []
    for _ in range(count):
        name, pos = _sized(data, pos, stop)
        value, pos = _sized(data, pos, stop)
        headers.append(Header(name or b"", value or b""))
    return headers, pos
