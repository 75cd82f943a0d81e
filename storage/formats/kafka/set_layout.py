"""Layout of messages of format 0 in a set, and unpacking of compressed messages. Does not interpret
offsets and changes no bytes. Layout: Kafka 0.8 protocol guide, "Message sets".
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from braidlog.storage.errors import CorruptBody, UnreadableBody
from braidlog.storage.formats import compression
from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX, sliceable
from braidlog.storage.formats.quick import SPEEDUPS

ENTRY = struct.Struct(">qi")  # offset, size of the message that follows
HEAD = struct.Struct(">qiIbbi")  # offset, size, crc, magic, attributes, key size
# The same head of a message without a key, up to the value's size; magic and attributes are a
# single number.
PLAIN_HEAD = struct.Struct(">qi4xHii")
ENTRY_CRC = struct.Struct(">qiI")  # offset, size, crc
SIZE = struct.Struct(">i")
OFFSET = struct.Struct(">q")

KEY_POS = 18  # of the key's size in an entry
MESSAGE_MIN = 14  # crc, magic, attributes and two sizes
ENTRY_MIN = ENTRY.size + MESSAGE_MIN
CODEC_BITS = 7
NULL = SIZE.pack(-1)
PLAIN = b"\0\0"  # magic and attributes of a message that is not compressed
NO_KEY = PLAIN + NULL
NO_LIMIT = 1 << 31  # an entry's size is an int32
# Messages of a set in the formats before batches: they are stamped, and cut into pieces to store,
# between two awaits. Clients send a megabyte at most: 40,000 of the smallest messages.
SET_MESSAGES_MAX = 100_000

INFLATE: dict[int, Callable[[Buffer, int], Buffer]] = {
    1: compression.gunzip,
    2: compression.unsnappy,
    3: compression.unlz4,
}


def entry(data: Buffer, pos: int) -> tuple[int, int]:
    """Return attributes and end of the entry at pos, which must be whole and of format 0."""
    if len(data) - pos < ENTRY_MIN:
        raise CorruptBody("entry is cut short")
    _, size, _, magic, attributes, _ = HEAD.unpack_from(data, pos)
    stop = pos + 12 + size
    if size < MESSAGE_MIN or stop > len(data):
        raise CorruptBody(f"message of {size} bytes does not fit its set")
    if magic:
        raise CorruptBody(f"message of format {magic} in a set of format 0")
    return attributes, stop


def entry_bytes(data: Buffer) -> int:
    """Return the size of the entry at the beginning of a stored set."""
    return ENTRY.size + int(SIZE.unpack_from(data, OFFSET.size)[0])


def skip_below(data: Buffer, start_offset: int) -> tuple[int, int | None]:
    """Return the first entry that ends at or above an offset or is not whole, and the offset
    before.

    The first value is the entry's position, the second the offset of the preceding entry. Lower
    entries are only stepped over: each carries its last offset.
    """
    step, head, end = ENTRY.unpack_from, ENTRY.size, len(data)
    pos = 0
    before: int | None = None
    if end < ENTRY_MIN or step(data)[0] >= start_offset:
        return pos, before
    starts = SPEEDUPS and SPEEDUPS.chain(data, head, MESSAGE_MIN, True)
    if starts:
        places = memoryview(starts).cast("q")
        number = bisect_left(places, start_offset, key=lambda at: step(data, at)[0])
        pos = places[number] if number < len(places) else end
        return pos, int(step(data, places[number - 1])[0])
    while end - pos >= ENTRY_MIN:  # hot: see make bench
        offset, size = step(data, pos)
        stop = pos + head + size
        if offset >= start_offset or size < MESSAGE_MIN or stop > end:
            break
        before, pos = offset, stop
    return pos, before


def entry_before(data: Buffer, pos_max: int) -> tuple[int, int | None]:
    """Return the position of the last entry of a set that begins at or before `pos_max`, and the
    offset of the preceding entry, None if there is none.

    The set may be cut short, even after `pos_max`.
    """
    step, head = ENTRY.unpack_from, ENTRY.size
    starts = SPEEDUPS and SPEEDUPS.chain(data, head, MESSAGE_MIN, True, True)
    if starts:
        places = memoryview(starts).cast("q")
        number = bisect_right(places, pos_max) - 1
        offset, size = step(data, places[number])
        stop = places[number] + head + size
        if stop <= pos_max:  # The entry after the last whole entry.
            return stop, int(offset)
        return (places[number], int(step(data, places[number - 1])[0])) if number > 0 else (0, None)
    pos, end = 0, len(data)
    before: int | None = None
    while end - pos >= ENTRY_MIN:  # hot: see make bench
        offset, size = step(data, pos)
        stop = pos + head + size
        if stop > pos_max or size < MESSAGE_MIN:
            break
        before, pos = offset, stop
    return pos, before


def plain_value(data: Buffer, pos: int, stop: int) -> tuple[int, int, int]:
    """Return key size, value position and value size of the uncompressed entry at pos."""
    key_size = SIZE.unpack_from(data, pos + KEY_POS)[0]
    value_pos = pos + 26 + max(key_size, 0)
    if key_size < -1 or value_pos > stop:
        raise CorruptBody("key is longer than its message")
    value_size = SIZE.unpack_from(data, value_pos - 4)[0]
    if value_size < -1 or value_pos + max(value_size, 0) != stop:
        raise CorruptBody("value does not end with its message")
    return key_size, value_pos, value_size


def open_wrapper(data: Buffer, pos: int, stop: int, size_max: int) -> Buffer:
    """Return the set within the compressed wrapper at pos."""
    codec = data[pos + 17] & CODEC_BITS
    if codec not in INFLATE:
        raise UnreadableBody(f"compression codec {codec} is unknown")
    _, value_pos, value_size = plain_value(data, pos, stop)
    if value_size <= 0:
        raise UnreadableBody("compressed message without a value")
    return INFLATE[codec](memoryview(data)[value_pos:stop], size_max)


def whole_end(data: Buffer) -> int:
    """Return the end of the last whole entry of an unpacked set."""
    size_at = SIZE.unpack_from
    pos, end = 0, len(data)
    while end - pos >= ENTRY.size:
        size = size_at(data, pos + 8)[0]
        if size < MESSAGE_MIN:
            raise CorruptBody(f"message of {size} bytes")
        if pos + 12 + size > end:
            break
        pos += 12 + size
    return pos


def count_messages(inner: Buffer) -> int:
    """Count the messages of an unpacked set."""
    count, pos = 0, 0
    while pos < len(inner):
        attributes, stop = entry(inner, pos)
        if attributes & CODEC_BITS:
            raise UnreadableBody("compressed set within a compressed set")
        count, pos = count + 1, stop
    return count


def inner_set(data: bytes, pos: int, stop: int) -> bytes:
    """Return the set within the compressed wrapper at pos."""
    inner = sliceable(open_wrapper(data, pos, stop, INFLATED_BYTES_MAX))
    count_messages(inner)  # Raises before any message of a damaged or nested set is read.
    return inner
