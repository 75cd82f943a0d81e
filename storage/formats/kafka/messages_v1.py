"""Kafka messages of format 1, produced by 0.10 clients: format 0 with a time.

The messages are stored as record batches, which hold every field; nothing is stored or returned in
this format. Layout: Kafka protocol guide, "Message sets", format 1.
"""

import struct
from collections.abc import Iterator

from braidlog.storage.errors import (
    CorruptBody,
    RecordTooLarge,
    TimeOutOfRange,
    TooManyRecords,
    UnreadableBody,
)
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX, crc32
from braidlog.storage.formats.kafka.record_batches import TIME_MS_MAX, us_of
from braidlog.storage.formats.kafka.set_layout import CODEC_BITS, INFLATE, SIZE
from braidlog.storage.formats.record import Record

# offset, size, crc, magic, attributes, time in ms, key size
HEAD = struct.Struct(">qiIbbqi")
ENTRY_BYTES = 12  # offset and size
SIZE_POS = 8
CHECKED_POS = 16
KEY_POS = HEAD.size
MAGIC = 1
MESSAGE_MIN = 22  # crc, magic, attributes, time and two sizes
# Replaces the append time, so that a message without a time has none in a batch either (-1).
NO_TIME_US = -1000


def is_compressed(message_set: memoryview) -> bool:
    """Return True if any message of a set is compressed."""
    return any(attributes & CODEC_BITS for _, _, attributes, _ in _entries(message_set))


def records(
    message_set: memoryview, message_bytes_max: int, inflated_bytes_max: int, records_max: int
) -> tuple[list[Record], int]:
    """Return the messages of a produced set, and the number of bytes unpacked for them.

    The messages are encoded as a batch once they have offsets.

    Raises CorruptBody, RecordTooLarge, TimeOutOfRange, TooManyRecords, UnreadableBody.
    """
    decoded: list[Record] = []
    left = limit = min(inflated_bytes_max, INFLATED_BYTES_MAX)
    for pos, stop, attributes, crc in _entries(message_set):
        if len(decoded) >= records_max:
            raise TooManyRecords("messages", records_max)
        if stop - pos > message_bytes_max:
            raise RecordTooLarge(stop - pos, message_bytes_max)
        if crc32(message_set[pos + CHECKED_POS : stop]) != crc:
            raise CorruptBody("checksum of a message is wrong")
        codec = attributes & CODEC_BITS
        record = _record(message_set, pos, stop)
        if not codec:
            decoded.append(record)
            continue
        if codec not in INFLATE or not record.value:
            raise UnreadableBody(f"message compressed with codec {codec} cannot be opened")
        inner = memoryview(INFLATE[codec](record.value, left))
        left -= len(inner)
        for at, end, inner_attributes, _ in _entries(inner):
            if inner_attributes & CODEC_BITS:
                raise UnreadableBody("compressed set within a compressed set")
            if len(decoded) >= records_max:
                raise TooManyRecords("messages", records_max)
            decoded.append(_record(inner, at, end))
    return decoded, limit - left


def _entries(data: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start, end, attributes, crc) of each whole message. Raises CorruptBody."""
    pos, end = 0, len(data)
    while end - pos >= ENTRY_BYTES:
        size = SIZE.unpack_from(data, pos + SIZE_POS)[0]
        stop = pos + ENTRY_BYTES + size
        if size < MESSAGE_MIN:
            raise CorruptBody(f"message of {size} bytes")
        if stop > end:
            return
        _, _, crc, magic, attributes, _, _ = HEAD.unpack_from(data, pos)
        if magic != MAGIC:
            raise CorruptBody(f"message of format {magic} in a set of format 1")
        yield pos, stop, attributes, crc
        pos = stop


def _record(data: memoryview, pos: int, stop: int) -> Record:
    *_, time_ms, key_size = HEAD.unpack_from(data, pos)
    if not -TIME_MS_MAX <= time_ms <= TIME_MS_MAX:
        raise TimeOutOfRange(f"a time of {time_ms} ms")
    value_pos = pos + KEY_POS + max(key_size, 0)
    if key_size < -1 or value_pos + SIZE.size > stop:
        raise CorruptBody("key is longer than its message")
    value_size = SIZE.unpack_from(data, value_pos)[0]
    value_pos += SIZE.size
    if value_size < -1 or value_pos + max(value_size, 0) != stop:
        raise CorruptBody("value does not end with its message")
    key = None if key_size < 0 else bytes(data[pos + KEY_POS : value_pos - SIZE.size])
    value = None if value_size < 0 else bytes(data[value_pos:stop])
    return Record(0, NO_TIME_US, us_of(time_ms), None, key, value)
