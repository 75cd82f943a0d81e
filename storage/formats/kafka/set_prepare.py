"""Conversion of a produced Kafka set to a stored body: check, unwrap, stamp, pack again.

The slow part does not need the set's offset: `unwrap` runs first, in a worker thread, and `pack` or
`stamp` once the offset is known. Rules: kafka/message/ByteBufferMessageSet.scala of apache/kafka
0.8.2.2.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from braidlog.storage.errors import CorruptBody, RecordTooLarge, UnreadableBody
from braidlog.storage.formats import compression
from braidlog.storage.formats.api import BatchFlag, BodyFormat, BodyInfo, Buffer, Prepared
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX, crc32
from braidlog.storage.formats.kafka.set_layout import (
    CODEC_BITS,
    ENTRY,
    ENTRY_CRC,
    ENTRY_MIN,
    HEAD,
    MESSAGE_MIN,
    NO_LIMIT,
    NULL,
    OFFSET,
    SIZE,
    entry,
    open_wrapper,
    whole_end,
)
from braidlog.storage.formats.quick import SPEEDUPS

_DEFLATE: dict[int, Callable[[Buffer], bytes]] = {
    1: compression.gzip,
    2: compression.snappy,
    3: compression.lz4,
}
_GZIP = 1
KAFKA = int(BodyFormat.KAFKA)  # An attribute of an enum class is as slow as a call.


@dataclass(slots=True)
class Messages:
    """Checked messages of a set, with opened wrappers; the offsets are still to be stamped."""

    data: memoryview  # writable, whole messages only
    count: int
    codec: int  # of the wrapper for the messages, 0 for none


def prepare_plain(view: memoryview, base_offset: int, bytes_max: int) -> Prepared | None:
    """Check and stamp the leading whole messages in place; return None if any is compressed.

    A partial last entry is dropped. Raises CorruptBody (error 2 in 0.8) for a bad checksum, size or
    structure, and RecordTooLarge for an entry above `bytes_max`.
    """
    count, end, compressed = check_and_stamp(view, base_offset, bytes_max)
    return None if compressed else Prepared(view[:end], BodyInfo(count), KAFKA)


def check_pieces(
    view: memoryview, base_offset: int, bytes_max: int, piece_bytes: int
) -> Iterator[Messages | None]:
    """Check and stamp like `check_and_stamp`, in pieces of about `piece_bytes`.

    Yields all messages checked so far after each piece; at the first compressed message yields None
    and ends.
    """
    pos = count = 0
    while True:
        last_pos, stop = pos, _piece_stop(view, pos, piece_bytes)
        part_count, size, compressed = check_and_stamp(
            view[pos:stop], base_offset + count, bytes_max
        )
        if compressed:
            yield None
            return
        pos, count = pos + size, count + part_count
        yield Messages(view[:pos], count, 0)
        if stop == len(view) or pos == last_pos:
            return


def _piece_stop(view: memoryview, pos: int, piece_bytes: int) -> int:
    """Return the end of a piece from `pos` on: as many messages as fit, if all have the first's
    size.
    """
    if len(view) - pos <= piece_bytes:
        return len(view)
    size = ENTRY.size + max(SIZE.unpack_from(view, pos + 8)[0], MESSAGE_MIN)
    return int(min(pos + max(piece_bytes // size, 1) * size, len(view)))


def unwrap(view: memoryview, message_bytes_max: int, inflated_bytes_max: int) -> Messages:
    """Return all messages of a set with compressed messages, checked. Takes long; needs no offset.

    Raises:
        CorruptBody: bad checksum, size or structure (error 2 in 0.8).
        RecordTooLarge: an entry above message_bytes_max, or unpacked above inflated_bytes_max.
        UnreadableBody: unknown codec, or data that does not unpack (error -1 in 0.8).
    """
    # Refuse a set that readers of other protocols could not unpack.
    inner, codec = _unwrap(view, message_bytes_max, min(inflated_bytes_max, INFLATED_BYTES_MAX))
    count, end, nested = check_and_stamp(memoryview(inner), 0, NO_LIMIT)
    if nested:
        raise UnreadableBody("compressed set within a compressed set")
    return Messages(memoryview(inner)[:end], count, codec)


def pack(messages: Messages, base_offset: int, message_bytes_max: int) -> Prepared:
    """Stamp the messages and pack them into a single wrapper.

    As in 0.8, the codec of the last compressed message wins, the wrapper has no key and the offset
    of its last message, and only the wrapper's size is limited. Raises RecordTooLarge.
    """
    count = messages.count
    if not count:
        return Prepared(b"", BodyInfo(0), KAFKA, empty_compressed=True)
    _stamp(messages.data, base_offset)
    wrapper = packed(messages.data, messages.codec, base_offset + count - 1, message_bytes_max)
    if len(wrapper) > message_bytes_max:
        raise RecordTooLarge(len(wrapper), message_bytes_max)
    return Prepared(wrapper, BodyInfo(count, flags=BatchFlag.COMPRESSED), KAFKA)


def packed(messages: Buffer, codec: int, last_offset: int, bytes_wanted: int = NO_LIMIT) -> bytes:
    """Pack a set into a compressed message without a key, with the offset of the set's last
    message.

    Gzip is packed quickly, and once more as 0.8 packs, if the result exceeds `bytes_wanted`.
    """
    wrapper = _wrapper(_DEFLATE[codec](messages), codec, last_offset)
    if len(wrapper) > bytes_wanted and codec == _GZIP:
        wrapper = _wrapper(compression.gzip_smaller(messages), codec, last_offset)
    return wrapper


def _wrapper(value: bytes, codec: int, last_offset: int) -> bytes:
    message = b"".join((bytes((0, codec)), NULL, SIZE.pack(len(value)), value))
    return ENTRY_CRC.pack(last_offset, 4 + len(message), crc32(message)) + message


def stamp(messages: Messages, base_offset: int) -> Prepared:
    """Stamp the messages to an uncompressed set: fast, even for a set received compressed."""
    _stamp(messages.data, base_offset)
    return Prepared(messages.data, BodyInfo(messages.count), KAFKA)


def _stamp(data: memoryview, base_offset: int) -> None:
    """Put offsets into checked messages."""
    end = len(data)
    if end < ENTRY_MIN or OFFSET.unpack_from(data, 0)[0] == base_offset:
        return  # The check already stamped these offsets.
    if SPEEDUPS is not None and not data.readonly:
        result = SPEEDUPS.kafka_check_and_stamp(data, base_offset, NO_LIMIT)
        if result is not None and result[1] == end:
            return
    size_at, put = SIZE.unpack_from, OFFSET.pack_into
    pos, offset = 0, base_offset
    while pos < end:  # hot: see make bench
        put(data, pos, offset)
        pos += 12 + size_at(data, pos + 8)[0]
        offset += 1


def check_and_stamp(view: memoryview, base_offset: int, bytes_max: int) -> tuple[int, int, bool]:
    """Stamp the leading whole messages; return count, end, and True if a message is compressed."""
    if SPEEDUPS is not None and not view.readonly:
        result: tuple[int, int, bool] | None
        result = SPEEDUPS.kafka_check_and_stamp(view, base_offset, bytes_max)
        if result is not None:
            return result
    end = len(view)
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


def _unwrap(view: memoryview, bytes_max: int, inflated_max: int) -> tuple[bytearray, int]:
    """Return all whole messages of a set, wrappers opened, and the last codec seen."""
    inner = bytearray()
    codec, pos, left = 0, 0, inflated_max
    while len(view) - pos >= ENTRY.size:
        size = SIZE.unpack_from(view, pos + 8)[0]
        if size >= MESSAGE_MIN and pos + 12 + size > len(view):
            break
        attributes, stop = entry(view, pos)
        if stop - pos > bytes_max:
            raise RecordTooLarge(stop - pos, bytes_max)
        if crc32(view[pos + 16 : stop]) != ENTRY_CRC.unpack_from(view, pos)[2]:
            raise CorruptBody("checksum of a message is wrong")
        if attributes & CODEC_BITS:
            codec = attributes & CODEC_BITS
            opened = open_wrapper(view, pos, stop, left)
            left -= len(opened)  # A partial message at the end was unpacked too.
            inner += memoryview(opened)[: whole_end(opened)]
        else:
            inner += view[pos:stop]
        pos = stop
    return inner, codec
