"""Kafka message sets, format 0, as 0.8 clients produce and fetch them.

Stored is what a fetch hands out: entries with their offsets stamped in, a compressed set as one
wrapper with absolute inner offsets. Knows no request, no partition and no file. Layout and rules:
Kafka 0.8 protocol guide, "Message sets"; what a broker does on append: kafka/message/
ByteBufferMessageSet.scala of apache/kafka 0.8.2.2.
"""

import struct
from collections.abc import Callable, Sequence

from storage.codecs import compression
from storage.codecs.api import (
    RECORDS_MAX,
    BatchFlag,
    BodyFormat,
    BodyInfo,
    Buffer,
    Decoded,
    Prepared,
)
from storage.codecs.compression import INFLATED_BYTES_MAX, crc32
from storage.codecs.record import Record
from storage.errors import BodyError, CorruptBody, RecordTooLarge, UnreadableBody

ENTRY = struct.Struct(">qi")  # offset, size of the message that follows
HEAD = struct.Struct(">qiIbbi")  # offset, size, crc, magic, attributes, key size
ENTRY_CRC = struct.Struct(">qiI")  # offset, size, crc
SIZE = struct.Struct(">i")
OFFSET = struct.Struct(">q")

KEY_POS = 18  # of the key's size in an entry
MESSAGE_MIN = 14  # crc, magic, attributes and two sizes
ENTRY_MIN = ENTRY.size + MESSAGE_MIN
CODEC_BITS = 7
NO_LIMIT = 1 << 31  # an entry's size is an int32

# Ways of their own for messages of equal size pay from about here on, numpy's included.
EQUAL_SET_MIN = 64

_INFLATE: dict[int, Callable[[Buffer, int], Buffer]] = {
    1: compression.gunzip,
    2: compression.unsnappy,
    3: compression.unlz4,
}
_DEFLATE: dict[int, Callable[[Buffer], bytes]] = {
    1: compression.gzip,
    2: compression.snappy,
    3: compression.lz4,
}


def is_compressed(message_set: Buffer) -> bool:
    """Whether the first entry is a compressed wrapper: preparing such a set takes milliseconds."""
    return len(message_set) > KEY_POS and message_set[KEY_POS - 1] & CODEC_BITS != 0


def prepare(
    message_set: Buffer,
    base_offset: int,
    append_us: int,
    *,
    message_bytes_max: int,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
) -> Prepared:
    """Check a produced set and stamp its offsets, in place where the buffer is writable.

    A partial last entry is dropped. Compressed sets are unwrapped and packed again into one
    wrapper, since format 0 needs absolute inner offsets. append_us is not used: it has no times.

    Raises:
        CorruptBody: bad checksum, size or structure (error 2 in 0.8).
        RecordTooLarge: an entry above message_bytes_max, or unpacked above inflated_bytes_max.
        UnreadableBody: unknown codec, or data that does not unpack (error -1 in 0.8).
    """
    view = memoryview(message_set)
    if view.readonly:
        view = memoryview(bytearray(view))
    count, end, compressed = _check_and_stamp(view, base_offset, message_bytes_max)
    if compressed:
        # What readers of other protocols could not open again is not taken in.
        inflated_max = min(inflated_bytes_max, INFLATED_BYTES_MAX)
        return _repack(view, base_offset, message_bytes_max, inflated_max)
    return Prepared(view[:end], BodyInfo(count))


class KafkaCodec:
    """Body format 2. See the module."""

    name = "kafka"
    format = int(BodyFormat.KAFKA)
    version = 1

    def inspect(self, body: Buffer) -> BodyInfo:
        """Count the messages; compressed wrappers are opened for it."""
        data = bytes(body)
        count, flags, pos = 0, 0, 0
        while pos < len(data):
            attributes, stop = _entry(data, pos)
            if attributes & CODEC_BITS:
                flags |= BatchFlag.COMPRESSED
                count += _count(_open(data, pos, stop, INFLATED_BYTES_MAX))
            else:
                _plain_value(data, pos, stop)
                count += 1
            pos = stop
        return BodyInfo(count, flags=flags)

    def stamp(self, body: Buffer, base_offset: int, append_us: int) -> Buffer:
        """As `prepare`, without its limit on entries."""
        return prepare(body, base_offset, append_us, message_bytes_max=NO_LIMIT).body

    def split(
        self,
        body: Buffer,
        base_offset: int,
        *,
        start_offset: int = 0,
        starts_max: int = RECORDS_MAX,
    ) -> list[tuple[int, int]]:
        """Entry starts; a wrapper's offset is the one after the entry before it.

        Entries below start_offset are only stepped over: each carries its last offset.
        """
        data = memoryview(body)
        starts: list[tuple[int, int]] = []
        first, pos, end = base_offset, 0, len(data)
        step = ENTRY.unpack_from
        while end - pos >= ENTRY_MIN:  # hot: see make bench
            last, size = step(data, pos)
            if last >= start_offset or size < MESSAGE_MIN:
                break
            first, pos = last + 1, pos + ENTRY.size + size
        while pos < end and len(starts) < starts_max:
            attributes, stop = _entry(data, pos)
            offset = OFFSET.unpack_from(data, pos)[0]
            starts.append((first if attributes & CODEC_BITS else offset, pos))
            first, pos = offset + 1, stop
        return starts

    def readable(self, body: Buffer) -> memoryview:
        """All of the body."""
        return memoryview(body)

    def decode(
        self,
        body: Buffer,
        base_offset: int,
        append_us: int,
        *,
        start_offset: int = 0,
        records_max: int = RECORDS_MAX,
    ) -> Decoded:
        """Messages as records. Format 0 has no times: append_us is all that they get."""
        decoded = Decoded(next_offset=base_offset)
        try:
            _decode_set(bytes(body), append_us, start_offset, records_max, decoded)
        except BodyError as error:
            decoded.failed = error
            decoded.failed_offset = decoded.next_offset
        return decoded

    def encode(self, records: Sequence[Record], base_offset: int) -> bytes:
        """An uncompressed set with the key and value of each record; it has no place for more."""
        parts = []
        for record in records:  # hot: see make bench
            key, value = record.key, record.value
            message = b"".join(
                (
                    b"\x00\x00",
                    _NULL if key is None else SIZE.pack(len(key)) + key,
                    _NULL if value is None else SIZE.pack(len(value)) + value,
                )
            )
            parts.append(ENTRY_CRC.pack(record.offset, 4 + len(message), crc32(message)))
            parts.append(message)
        return b"".join(parts)

    def carries(self, record: Record) -> bool:
        """Always: format 0 has every key and value, absent ones too."""
        return True


KAFKA = KafkaCodec()

_NULL = SIZE.pack(-1)


def _check_and_stamp(view: memoryview, base_offset: int, bytes_max: int) -> tuple[int, int, bool]:
    """Count and end of the leading whole messages, now stamped; True where one is compressed."""
    end = len(view)
    if _stamp_equal(view, base_offset, bytes_max):
        return end // (12 + SIZE.unpack_from(view, 8)[0]), end, False
    head, size_at, put, crc_of = HEAD.unpack_from, SIZE.unpack_from, OFFSET.pack_into, crc32
    pos, offset = 0, base_offset
    while end - pos >= ENTRY_MIN:  # hot: see make bench
        _, size, crc, magic, attributes, key_size = head(view, pos)
        stop = pos + 12 + size
        if size < MESSAGE_MIN:
            raise CorruptBody(f"message of {size} bytes")
        if stop > end:
            return offset - base_offset, pos, False
        if stop - pos > bytes_max:
            raise RecordTooLarge(stop - pos, bytes_max)
        if crc_of(view[pos + 16 : stop]) != crc:
            raise CorruptBody("checksum of a message is wrong")
        if magic:
            raise CorruptBody(f"message of format {magic} in a set of format 0")
        if attributes & CODEC_BITS:
            return 0, 0, True
        value_pos = pos + 22 + (key_size if key_size > 0 else 0)
        if key_size < -1 or value_pos + 4 > stop:
            raise CorruptBody("key is longer than its message")
        value_size = size_at(view, value_pos)[0]
        if value_size < -1 or value_pos + 4 + (value_size if value_size > 0 else 0) != stop:
            raise CorruptBody("value does not end with its message")
        put(view, pos, offset)
        offset += 1
        pos = stop
    if end - pos >= ENTRY.size and size_at(view, pos + 8)[0] < MESSAGE_MIN:
        raise CorruptBody("message is smaller than its fixed fields")
    return offset - base_offset, pos, False


def _stamp_equal(view: memoryview, base_offset: int, bytes_max: int) -> bool:
    """Do the whole of `_check_and_stamp` for a set of equal-sized messages; False: not done."""
    if len(view) < EQUAL_SET_MIN * ENTRY_MIN:
        return False
    size = 12 + int(SIZE.unpack_from(view, 8)[0])
    if not ENTRY_MIN <= size <= bytes_max or len(view) % size or len(view) < EQUAL_SET_MIN * size:
        return False
    try:
        from storage.codecs import kafka_equal
    except ImportError:  # numpy is an extra
        return False
    return kafka_equal.check_and_stamp(view, size, base_offset)


def _repack(view: memoryview, base_offset: int, bytes_max: int, inflated_max: int) -> Prepared:
    """Unwrap a set with compressed messages and wrap all of it again as one.

    As 0.8 did: the codec of the last compressed message wins, the wrapper has no key and the offset
    of its last message, and only the wrapper is measured against the limit.
    """
    inner, codec = _unwrap(view, bytes_max, inflated_max)
    count, end, nested = _check_and_stamp(memoryview(inner), base_offset, NO_LIMIT)
    if nested:
        raise UnreadableBody("compressed set within a compressed set")
    if not count:
        return Prepared(b"", BodyInfo(0), empty_compressed=True)
    value = _DEFLATE[codec](memoryview(inner)[:end])
    message = b"".join((bytes((0, codec)), _NULL, SIZE.pack(len(value)), value))
    size = ENTRY_CRC.size + len(message)
    if size > bytes_max:
        raise RecordTooLarge(size, bytes_max)
    head = ENTRY_CRC.pack(base_offset + count - 1, 4 + len(message), crc32(message))
    return Prepared(head + message, BodyInfo(count, flags=BatchFlag.COMPRESSED))


def _unwrap(view: memoryview, bytes_max: int, inflated_max: int) -> tuple[bytearray, int]:
    """All whole messages of a set, wrappers opened, and the last codec met."""
    inner = bytearray()
    codec, pos = 0, 0
    while len(view) - pos >= ENTRY.size:
        size = SIZE.unpack_from(view, pos + 8)[0]
        if size >= MESSAGE_MIN and pos + 12 + size > len(view):
            break
        attributes, stop = _entry(view, pos)
        if stop - pos > bytes_max:
            raise RecordTooLarge(stop - pos, bytes_max)
        if crc32(view[pos + 16 : stop]) != ENTRY_CRC.unpack_from(view, pos)[2]:
            raise CorruptBody("checksum of a message is wrong")
        if attributes & CODEC_BITS:
            codec = attributes & CODEC_BITS
            opened = _open(view, pos, stop, inflated_max - len(inner))
            inner += memoryview(opened)[: _whole(opened)]
        else:
            inner += view[pos:stop]
        pos = stop
    return inner, codec


def _entry(data: Buffer, pos: int) -> tuple[int, int]:
    """Attributes and end of the entry at pos, which must be whole and of format 0."""
    if len(data) - pos < ENTRY_MIN:
        raise CorruptBody("entry is cut short")
    _, size, _, magic, attributes, _ = HEAD.unpack_from(data, pos)
    stop = pos + 12 + size
    if size < MESSAGE_MIN or stop > len(data):
        raise CorruptBody(f"message of {size} bytes does not fit its set")
    if magic:
        raise CorruptBody(f"message of format {magic} in a set of format 0")
    return attributes, stop


def _plain_value(data: Buffer, pos: int, stop: int) -> tuple[int, int, int]:
    """Key size, position of the value and its size, of the uncompressed entry at pos."""
    key_size = SIZE.unpack_from(data, pos + KEY_POS)[0]
    value_pos = pos + 26 + max(key_size, 0)
    if key_size < -1 or value_pos > stop:
        raise CorruptBody("key is longer than its message")
    value_size = SIZE.unpack_from(data, value_pos - 4)[0]
    if value_size < -1 or value_pos + max(value_size, 0) != stop:
        raise CorruptBody("value does not end with its message")
    return key_size, value_pos, value_size


def _open(data: Buffer, pos: int, stop: int, size_max: int) -> Buffer:
    """The set within the compressed wrapper at pos."""
    codec = data[pos + 17] & CODEC_BITS
    if codec not in _INFLATE:
        raise UnreadableBody(f"compression codec {codec} is unknown")
    _, value_pos, value_size = _plain_value(data, pos, stop)
    if value_size <= 0:
        raise UnreadableBody("compressed message without a value")
    return _INFLATE[codec](memoryview(data)[value_pos:stop], size_max)


def _whole(data: Buffer) -> int:
    """End of the last whole entry of an unpacked set."""
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


def _count(inner: Buffer) -> int:
    """Messages of an unpacked set."""
    count, pos = 0, 0
    while pos < len(inner):
        attributes, stop = _entry(inner, pos)
        if attributes & CODEC_BITS:
            raise UnreadableBody("compressed set within a compressed set")
        count, pos = count + 1, stop
    return count


def _decode_set(
    data: bytes, append_us: int, start_offset: int, records_max: int, decoded: Decoded
) -> None:
    """Add the messages of one set to `decoded`, wrappers opened."""
    head, size_at = HEAD.unpack_from, SIZE.unpack_from
    records = decoded.records
    pos, end = _first_at(data, start_offset, decoded), len(data)
    pos = _decode_equal(data, pos, append_us, records_max, decoded)
    while pos < end and len(records) < records_max:  # hot: see make bench
        if end - pos < ENTRY_MIN:
            raise CorruptBody("entry is cut short")
        offset, size, _, magic, attributes, key_size = head(data, pos)
        stop = pos + 12 + size
        if size < MESSAGE_MIN or stop > end or magic:
            raise CorruptBody("entry is not a message of format 0")
        if offset < start_offset:
            pass
        elif attributes & CODEC_BITS:
            _decode_wrapper(data, pos, stop, append_us, start_offset, records_max, decoded)
            if len(records) >= records_max:
                return
        else:
            value_pos = pos + 22 + (key_size if key_size > 0 else 0)
            if key_size < -1 or value_pos + 4 > stop:
                raise CorruptBody("key is longer than its message")
            value_size = size_at(data, value_pos)[0]
            if value_size < -1 or value_pos + 4 + (value_size if value_size > 0 else 0) != stop:
                raise CorruptBody("value does not end with its message")
            key = None if key_size < 0 else data[pos + 22 : value_pos]
            value = None if value_size < 0 else data[value_pos + 4 : stop]
            records.append(Record(offset, append_us, None, None, key, value))
        decoded.next_offset = offset + 1
        pos = stop


def _first_at(data: bytes, start_offset: int, decoded: Decoded) -> int:
    """Step over the entries below start_offset: each carries its last offset."""
    step, head = ENTRY.unpack_from, ENTRY.size
    pos, end = 0, len(data)
    while end - pos >= ENTRY_MIN:  # hot: see make bench
        offset, size = step(data, pos)
        stop = pos + head + size
        if offset >= start_offset or size < MESSAGE_MIN or stop > end:
            break
        decoded.next_offset, pos = offset + 1, stop
    return pos


def _decode_equal(data: bytes, pos: int, append_us: int, records_max: int, decoded: Decoded) -> int:
    """Add the uncompressed messages from pos on that have key and value of the first one's sizes,
    in two thirds of the time; returns where the next one begins.
    """
    count = records_max - len(decoded.records)
    if count < EQUAL_SET_MIN or len(data) - pos < EQUAL_SET_MIN * ENTRY_MIN:
        return pos
    _, size, _, _, _, key_size = HEAD.unpack_from(data, pos)
    value_size = size - MESSAGE_MIN - max(key_size, 0)
    if key_size < -1 or value_size < 0 or len(data) - pos < EQUAL_SET_MIN * (ENTRY.size + size):
        return pos
    layout = struct.Struct(f">qiIbbi{max(key_size, 0)}si{value_size}s")
    count = min(count, (len(data) - pos) // layout.size)
    expected = (size, 0, 0, key_size, value_size)
    add, added = decoded.records.append, 0
    messages = layout.iter_unpack(memoryview(data)[pos : pos + count * layout.size])
    for offset, whole, _, magic, attributes, key_bytes, key, value_bytes, value in messages:  # hot
        if (whole, magic, attributes, key_bytes, value_bytes) != expected:
            break
        add(Record(offset, append_us, None, None, None if key_bytes < 0 else key, value))
        added += 1
    if added:
        decoded.next_offset = decoded.records[-1].offset + 1
    return pos + added * layout.size


def _decode_wrapper(
    data: bytes,
    pos: int,
    stop: int,
    append_us: int,
    start_offset: int,
    records_max: int,
    decoded: Decoded,
) -> None:
    inner = bytes(_open(data, pos, stop, INFLATED_BYTES_MAX))
    _count(inner)  # No message of a damaged set is read, and none is nested.
    _decode_set(inner, append_us, start_offset, records_max, decoded)
