"""Kafka message sets, format 0, for producing and fetching 0.8 clients.

Stored in the form of a fetch: entries with stamped offsets, a compressed set as a single wrapper
with absolute inner offsets. Knows no request, no partition and no file. Layout and rules: Kafka 0.8
protocol guide, "Message sets"; a broker's work on append: kafka/message/ByteBufferMessageSet.scala
of apache/kafka 0.8.2.2.
"""

from collections.abc import Callable, Iterator, Sequence

from braidlog.storage.errors import CorruptBody
from braidlog.storage.formats.api import (
    BatchFlag,
    BodyFormat,
    BodyInfo,
    Buffer,
    Decoded,
    RemainingBody,
)
from braidlog.storage.formats.base import Codec, Converted, Stored, WantedRecords
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX, crc32
from braidlog.storage.formats.kafka.set_layout import (
    CODEC_BITS,
    ENTRY_CRC,
    ENTRY_MIN,
    KEY_POS,
    MESSAGE_MIN,
    NO_KEY,
    NULL,
    OFFSET,
    PLAIN,
    PLAIN_HEAD,
    SIZE,
    count_messages,
    entry,
    entry_before,
    inner_set,
    open_wrapper,
    plain_value,
    skip_below,
)
from braidlog.storage.formats.kafka.set_prepare import packed
from braidlog.storage.formats.quick import SPEEDUPS
from braidlog.storage.formats.record import Record, large_end


class KafkaCodec(Codec):
    """Body format 2. See the module."""

    name = "kafka"
    format = int(BodyFormat.KAFKA)
    column_decoder = "braidlog.storage.formats.kafka.set_columns:columns_of"

    def inspect(self, body: Buffer) -> BodyInfo:
        """Count the messages; this opens compressed wrappers."""
        data = bytes(body)
        count, flags, pos = 0, 0, 0
        while pos < len(data):
            attributes, stop = entry(data, pos)
            if attributes & CODEC_BITS:
                flags |= BatchFlag.COMPRESSED
                count += count_messages(open_wrapper(data, pos, stop, INFLATED_BYTES_MAX))
            else:
                plain_value(data, pos, stop)
                count += 1
            pos = stop
        return BodyInfo(count, flags=flags)

    def starts(
        self, body: Buffer, base_offset: int, start_offset: int
    ) -> Iterator[tuple[int, int]]:
        """Yield entry starts; a wrapper's offset is the offset after the preceding entry."""
        data = memoryview(body)
        pos, before = skip_below(data, start_offset)
        first = base_offset if before is None else before + 1
        while pos < len(data):
            attributes, stop = entry(data, pos)
            offset = OFFSET.unpack_from(data, pos)[0]
            yield first if attributes & CODEC_BITS else offset, pos
            first, pos = offset + 1, stop

    def start_before(self, body: Buffer, base_offset: int, pos: int) -> tuple[int, int]:
        """Return the last start before a position, whose offset follows the preceding entry's
        offset.
        """
        start, before = entry_before(body, pos)
        return base_offset if before is None else before + 1, start

    def decode_into(
        self, decoded: Decoded, data: bytes, append_us: int, wanted: WantedRecords
    ) -> None:
        """Decode messages to records. Format 0 has no times: append_us is their only time."""
        limits = (wanted.records_max, wanted.bytes_max)
        _decode_set(data, append_us, wanted.start_offset, limits, decoded)

    def converted(self, stored: Stored, wanted: WantedRecords) -> Converted | None:
        """Convert Pulsar's entries; see `Codec.converted`."""
        if stored.body_format != BodyFormat.PULSAR or SPEEDUPS is None:
            return None
        room = len(stored.body) + ENTRY_MIN * stored.record_count
        body = bytearray(min(wanted.bytes_max, room))
        limits = wanted.start_offset, wanted.records_max
        end, *counts = SPEEDUPS.pulsar_to_set(stored.body, stored.base_offset, *limits, body)
        del body[end:]
        return Converted(body, *counts)

    def without(
        self, body: Buffer, base_offset: int, is_removed: Callable[[int], bool]
    ) -> RemainingBody:
        """Remove messages; wrappers that lose messages are opened and packed again with the same
        codec.
        """
        data, remaining = bytes(body), RemainingBody(b"", 0, base_offset)
        parts: list[bytes] = []
        pos = 0
        while pos < len(data):
            attributes, stop = entry(data, pos)
            if codec := attributes & CODEC_BITS:
                inner = inner_set(data, pos, stop)
                left = self.without(inner, base_offset, is_removed)
                if left.record_count:
                    is_whole = len(left.body) == len(inner)
                    last = left.end_offset - 1
                    if is_whole:
                        parts.append(data[pos:stop])
                    else:
                        parts.append(packed(left.body, codec, last, stop - pos))
                    remaining.record_count += left.record_count
                    remaining.end_offset = left.end_offset
            elif not is_removed(offset := OFFSET.unpack_from(data, pos)[0]):
                parts.append(data[pos:stop])
                remaining.record_count += 1
                remaining.end_offset = offset + 1
            pos = stop
        remaining.body = b"".join(parts)
        return remaining

    def encode(self, records: Sequence[Record], base_offset: int) -> bytes:
        """Encode an uncompressed set with the key and value of each record; the format has no other
        fields.
        """
        parts: list[bytes] = []
        pack_size, pack_head, join = SIZE.pack, ENTRY_CRC.pack, b"".join
        large = large_end(records)
        for record in records[:-1] if large else records:  # hot: see make bench
            key, value = record.key, record.value
            head = NO_KEY if key is None else join((PLAIN, pack_size(len(key)), key))
            sized = (head, NULL) if value is None else (head, pack_size(len(value)), value)
            message = join(sized)
            parts += (pack_head(record.offset, 4 + len(message), crc32(message)), message)
        if large:
            parts += _large_message(*large)
        return join(parts)


KAFKA = KafkaCodec()


def _large_message(record: Record, value: bytes) -> tuple[bytes, ...]:
    """Return the parts of a message, whose value is not copied."""
    key = record.key
    head = NO_KEY if key is None else b"".join((PLAIN, SIZE.pack(len(key)), key))
    head += SIZE.pack(len(value))
    checksum = crc32(value, crc32(head))
    return ENTRY_CRC.pack(record.offset, 4 + len(head) + len(value), checksum), head, value


def _decode_set(
    data: bytes, append_us: int, start_offset: int, limits: tuple[int, int], decoded: Decoded
) -> bool:
    """Add the messages of a set to `decoded`, wrappers opened; return False if a limit came
    first.
    """
    records_max, bytes_max = limits
    layout, size_at = PLAIN_HEAD.unpack_from, SIZE.unpack_from
    records = decoded.records
    (pos, before), end = skip_below(data, start_offset), len(data)
    if before is not None:
        decoded.next_offset = before + 1
    stop_pos = min(pos + bytes_max, end)
    while pos < stop_pos and len(records) < records_max:  # hot: see make bench
        if end - pos < ENTRY_MIN:
            raise CorruptBody("entry is cut short")
        offset, size, kind, key_size, value_size = layout(data, pos)
        stop = pos + 12 + size
        if size < MESSAGE_MIN or stop > end or kind >> 8:  # the magic
            raise CorruptBody("entry is not a message of format 0")
        if offset < start_offset:
            pass  # The wrapper ends below the range: only its size counts.
        elif kind & CODEC_BITS:
            inner = inner_set(data, pos, stop)
            if not _decode_set(inner, append_us, start_offset, (records_max, bytes_max), decoded):
                return False
            bytes_max -= len(inner)
            stop_pos = min(stop_pos, pos + max(bytes_max, 0))
        else:
            key, value_pos = None, pos + ENTRY_MIN
            if key_size >= 0:
                value_pos += key_size
                if value_pos > stop:
                    raise CorruptBody("key is longer than its message")
                key = data[pos + KEY_POS + 4 : value_pos - 4]
                value_size = size_at(data, value_pos - 4)[0]
            value = data[value_pos:stop] if value_size >= 0 else None
            if key_size < -1 or value_size < -1 or value_pos + max(value_size, 0) != stop:
                raise CorruptBody("value does not end with its message")
            records.append(Record(offset, append_us, None, None, key, value))
        decoded.next_offset = offset + 1
        pos = stop
    return pos >= end
