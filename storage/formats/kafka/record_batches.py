"""Kafka record batches, format 2, for producing and fetching clients since 0.11.

Stored as received: only base offset and leader epoch, outside the checksum, are stamped. Knows no
request, no partition and no file. Layout: Kafka protocol guide, "Record Batch".
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from crc32c import crc32c

from braidlog.storage.errors import (
    CorruptBody,
    RecordTooLarge,
    TimeOutOfRange,
    TooManyRecords,
    UnreadableBody,
)
from braidlog.storage.formats import compression
from braidlog.storage.formats.api import (
    SEQUENCE_MAX,
    BatchFlag,
    BodyFormat,
    BodyInfo,
    Buffer,
    Decoded,
    Prepared,
    RemainingBody,
)
from braidlog.storage.formats.base import Codec, WantedRecords
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX, sliceable
from braidlog.storage.formats.headers import header_text
from braidlog.storage.formats.kafka.records import (
    RecordsOf,
    decode_records,
    kept_records,
    varint_bytes,
)
from braidlog.storage.formats.quick import CRC32C_BYTES_MAX, SPEEDUPS
from braidlog.storage.formats.record import Record, large_end

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and greatest
# time in ms, producer id and epoch, first sequence, count
HEAD = struct.Struct(">qiibIhiqqqhii")
PREFIX = struct.Struct(">qi")  # base offset, bytes that follow
EPOCH = struct.Struct(">i")
CRC = struct.Struct(">I")
CHECKED = struct.Struct(">hiqqqhii")  # from the attributes on, which the checksum covers

STORED = int(BodyFormat.KAFKA_BATCHES)  # An attribute of an enum class is as slow as a call.
MAGIC = 2
MAGIC_POS = 16
EPOCH_POS, CRC_POS, CHECKED_POS = 12, 17, 21
CODEC_BITS = 7
APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32
# A frame full of the smallest records holds fewer; a compressed batch may claim more.
BATCH_RECORDS_MAX = 1 << 20
# Batches of a produced set; Kafka itself takes a single batch. All are checked and stamped in one
# turn.
SET_BATCHES_MAX = 1000
RECORD_MIN = 7  # a byte for each of its fields
TIME_MS_MAX = (2**63 - 1) // 1000
APPEND_TIME_TEXT = "producers must not set the timestamp type LogAppendTime"
US_PER_MS = 1000
NO_PRODUCER = -1
PRODUCER_POS = 43
PRODUCER = struct.Struct(">q")
# Set in the producer ids of Kafka in batch headers, and in the ids that we assign. The catalogue's
# numbers for producers of other protocols are lower.
PRODUCER_BIT = 1 << 62

_INFLATE: dict[int, Callable[[Buffer, int], Buffer]] = {
    1: compression.gunzip,
    2: compression.unsnappy,
    3: compression.unlz4,
    4: compression.unzstd,
}
_DEFLATE: dict[int, Callable[[Buffer], bytes]] = {
    1: compression.gzip,
    2: compression.snappy,
    3: compression.lz4_frame,
    4: compression.zstd,
}


@dataclass(slots=True)
class BatchRef:
    """A batch of a body, with the fields of its head."""

    pos: int
    stop: int
    base_offset: int
    attributes: int
    last_offset_delta: int
    base_ms: int
    max_ms: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    count: int


def refs(body: Buffer) -> Iterator[BatchRef]:
    """Yield the batches of a body. Raises CorruptBody if the batches do not fill the body."""
    pos, end = 0, len(body)
    while pos < end:
        if end - pos < HEAD.size:
            raise CorruptBody("record batch is cut short")
        base, length, _, magic, _, attributes, delta, *rest = HEAD.unpack_from(body, pos)
        stop = pos + PREFIX.size + length
        if magic != MAGIC or stop > end or length < HEAD.size - PREFIX.size:
            raise CorruptBody(f"record batch of format {magic} and {length} bytes")
        yield BatchRef(pos, stop, base, attributes, delta, *rest)
        pos = stop


def prepare(message_set: Buffer, base_offset: int, *, message_bytes_max: int) -> Prepared:
    """Check produced batches and stamp their offsets, in place if the buffer is writable.

    Raises:
        CorruptBody: bad checksum, size, structure or count.
        RecordTooLarge: a batch above message_bytes_max.
        TimeOutOfRange: the log cannot hold the time of a record.
        UnreadableBody: unknown codec, or a batch of a transaction.
        TooManyRecords: more than SET_BATCHES_MAX batches.
    """
    view = memoryview(message_set)
    if view.readonly:
        view = memoryview(bytearray(view))
    prepared = prepare_small(view, base_offset, message_bytes_max)
    if prepared is not None:
        return prepared
    info = BodyInfo(0)
    batch_refs = list(islice(refs(view), SET_BATCHES_MAX + 1))
    if len(batch_refs) > SET_BATCHES_MAX:
        raise TooManyRecords("batches", SET_BATCHES_MAX)
    for ref in batch_refs:
        _check(view, ref, message_bytes_max)
    for ref in batch_refs:
        PREFIX.pack_into(view, ref.pos, base_offset + info.record_count, ref.stop - ref.pos - 12)
        EPOCH.pack_into(view, ref.pos + EPOCH_POS, 0)
        _add_info(info, ref)
    if len(batch_refs) != 1 and info.producer_id:
        raise CorruptBody("a producer with sequences sends one batch at a time")
    return Prepared(view, info, STORED)


def prepare_small(
    message_set: memoryview, base_offset: int, message_bytes_max: int
) -> Prepared | None:  # hot: see make bench
    """As `prepare`, in the extension; None for all but a small, sound batch in a writable buffer.

    A set that is refused so is unchanged.
    """
    if SPEEDUPS is None or len(message_set) > CRC32C_BYTES_MAX or message_set.readonly:
        return None
    facts = SPEEDUPS.kafka_batch(message_set, base_offset, message_bytes_max)
    return None if facts is None else Prepared(message_set, BodyInfo(*facts), STORED)


def rebase(batch: bytearray, base_offset: int) -> None:
    """Change the base offset of a stored batch, which is outside the checksum."""
    PREFIX.pack_into(batch, 0, base_offset, len(batch) - PREFIX.size)


def producer_id(batch: Buffer) -> int:
    """Return the id of a batch's producer, NO_PRODUCER for none."""
    number: int = PRODUCER.unpack_from(batch, PRODUCER_POS)[0]
    return number


def _check(view: memoryview, ref: BatchRef, message_bytes_max: int) -> None:
    size = ref.stop - ref.pos
    if size > message_bytes_max:
        raise RecordTooLarge(size, message_bytes_max)
    if (
        crc32c(view[ref.pos + CHECKED_POS : ref.stop])
        != CRC.unpack_from(view, ref.pos + CRC_POS)[0]
    ):
        raise CorruptBody("checksum of a record batch is wrong")
    codec = ref.attributes & CODEC_BITS
    if codec and codec not in _INFLATE:
        raise UnreadableBody(f"compression codec {codec} is unknown")
    if ref.producer_id < NO_PRODUCER:
        raise CorruptBody(f"producer id {ref.producer_id}")
    if ref.producer_id != NO_PRODUCER and (ref.producer_epoch < 0 or ref.first_sequence < 0):
        raise CorruptBody("a producer id without an epoch or a sequence")
    if ref.attributes & (TRANSACTIONAL | CONTROL):
        raise UnreadableBody("transactions are not served")
    possible = BATCH_RECORDS_MAX if codec else (size - HEAD.size) // RECORD_MIN
    if not 1 <= ref.count <= possible or ref.last_offset_delta != ref.count - 1:
        raise CorruptBody(f"record batch of {ref.count} records in {size} bytes")
    for time_ms in (ref.base_ms, ref.max_ms):
        if not -TIME_MS_MAX <= time_ms <= TIME_MS_MAX:
            raise TimeOutOfRange(f"a time of {time_ms} ms")


def _add_info(info: BodyInfo, ref: BatchRef) -> None:
    max_us = us_of(ref.max_ms)
    first_us = max_us if ref.attributes & APPEND_TIME else us_of(ref.base_ms)
    if info.first_publish_us is None:
        info.first_publish_us = first_us
    if max_us is not None:
        info.max_publish_us = max(max_us, info.max_publish_us or max_us)
    info.record_count += ref.count
    if ref.attributes & CODEC_BITS:
        info.flags |= BatchFlag.COMPRESSED
    if ref.producer_id != NO_PRODUCER:
        info.producer_id = ref.producer_id | PRODUCER_BIT
        info.producer_epoch = ref.producer_epoch
        info.first_sequence = ref.first_sequence
        info.last_sequence = (ref.first_sequence + ref.count - 1) & SEQUENCE_MAX


def us_of(time_ms: int) -> int | None:
    """Return the microseconds of a time in a batch, None for -1."""
    if time_ms == -1:
        return None
    return max(-TIME_MS_MAX, min(time_ms, TIME_MS_MAX)) * US_PER_MS


class KafkaBatchesCodec(Codec):
    """Body format 7. See the module."""

    name = "kafka_batches"
    format = int(BodyFormat.KAFKA_BATCHES)
    column_decoder = "braidlog.storage.formats.kafka.batch_columns:columns_of"

    def inspect(self, body: Buffer) -> BodyInfo:
        """Return the facts of a body from the heads of the batches."""
        info = BodyInfo(0)
        batch_refs = list(refs(body))
        for ref in batch_refs:
            _add_info(info, ref)
        if len(batch_refs) != 1:
            info.producer_id = 0
        return info

    def starts(
        self, body: Buffer, base_offset: int, start_offset: int
    ) -> Iterator[tuple[int, int]]:
        """Yield a start for each batch."""
        for ref in refs(body):
            if ref.base_offset + ref.last_offset_delta >= start_offset:
                yield ref.base_offset, ref.pos

    def decode_into(
        self, decoded: Decoded, data: bytes, append_us: int, wanted: WantedRecords
    ) -> None:
        """Decode records with their times and headers; skip control records."""
        start_offset, bytes_max = wanted.start_offset, wanted.bytes_max
        for ref in refs(data):
            following = ref.base_offset + ref.last_offset_delta + 1
            if following > start_offset and not ref.attributes & CONTROL:
                whole = RecordsOf(sliceable(opened(data, ref)), ref.base_offset, append_us)
                whole.base_ms, whole.count = ref.base_ms, ref.count
                whole.last_offset_delta = ref.last_offset_delta
                whole.all_us = us_of(ref.max_ms) if ref.attributes & APPEND_TIME else None
                left = wanted.records_max - len(decoded.records)
                bytes_max = decode_records(whole, start_offset, (left, bytes_max), decoded)
                if bytes_max <= 0 or len(decoded.records) >= wanted.records_max:
                    break
            decoded.next_offset = following

    def without(
        self, body: Buffer, base_offset: int, is_removed: Callable[[int], bool]
    ) -> RemainingBody:
        """Remove records; batches that lose records are packed again.

        As in Kafka, these batches keep their range of offsets and their times.
        """
        data, remaining = bytes(body), RemainingBody(b"", 0, base_offset)
        parts: list[bytes] = []
        for ref in refs(data):
            unpacked = sliceable(opened(data, ref))
            left, count, _ = kept_records(unpacked, ref.base_offset, is_removed)
            if not count:
                continue
            is_whole = count == ref.count
            if not is_whole:
                ref.count = count
            parts.append(data[ref.pos : ref.stop] if is_whole else packed_again(ref, left))
            remaining.record_count += count
            remaining.end_offset = ref.base_offset + ref.last_offset_delta + 1
        remaining.body = b"".join(parts)
        return remaining

    def encode(self, records: Sequence[Record], base_offset: int) -> bytes:
        """Encode an uncompressed batch with key, value, headers and publish time of each record."""
        if not records:
            return b""
        first = records[0].offset
        base_ms = _ms_of(records[0])
        max_ms = base_ms
        parts: list[bytes] = []
        large = large_end(records)
        for record in records[:-1] if large else records:  # hot: see make bench
            time_ms = _ms_of(record)
            max_ms = max(max_ms, time_ms)
            headers = record.headers
            body = b"".join(
                (
                    b"\x00",
                    varint_bytes(time_ms - base_ms),
                    varint_bytes(record.offset - first),
                    _sized(record.key),
                    *_size_and_value(record.value),
                    _headers(record) if headers else b"\x00",
                )
            )
            parts += (varint_bytes(len(body)), body)
        end: tuple[bytes, ...] = ()
        if large:
            max_ms = max(max_ms, _ms_of(large[0]))
            size, end = _large_record(*large, base_ms, first)
            parts.append(size)
        last = records[-1].offset - first
        no_producer = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)
        head = CHECKED.pack(0, last, base_ms, max_ms, *no_producer, len(records))
        return _sealed(first, head, b"".join(parts), *end)


KAFKA_BATCHES = KafkaBatchesCodec()


def opened(data: Buffer, ref: BatchRef, size_max: int = INFLATED_BYTES_MAX) -> Buffer:
    """Return the unpacked records of a batch. Raises UnreadableBody; RecordTooLarge above
    size_max.
    """
    packed = memoryview(data)[ref.pos + HEAD.size : ref.stop]
    codec = ref.attributes & CODEC_BITS
    if not codec:
        return packed
    if codec not in _INFLATE:
        raise UnreadableBody(f"compression codec {codec} is unknown")
    return _INFLATE[codec](packed, size_max)


def packed_again(ref: BatchRef, records: Buffer) -> bytes:
    """Return the batch with these unpacked records and the fields of `ref`."""
    codec = ref.attributes & CODEC_BITS
    producer = (ref.producer_id, ref.producer_epoch, ref.first_sequence)
    times = (ref.base_ms, ref.max_ms)
    head = CHECKED.pack(ref.attributes, ref.last_offset_delta, *times, *producer, ref.count)
    return _sealed(ref.base_offset, head, _DEFLATE[codec](records) if codec else records)


def _large_record(
    record: Record, value: bytes, base_ms: int, first: int
) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the size of a record and the parts of the record, whose value is not copied."""
    times = varint_bytes(_ms_of(record) - base_ms), varint_bytes(record.offset - first)
    start = b"".join((b"\x00", *times, _sized(record.key), varint_bytes(len(value))))
    headers = _headers(record) if record.headers else b"\x00"
    return varint_bytes(len(start) + len(value) + len(headers)), (start, value, headers)


def _sealed(base_offset: int, head: bytes, *records: Buffer) -> bytes:
    """Build a whole batch from the parts that the checksum covers."""
    length = CHECKED_POS - PREFIX.size + len(head) + sum(map(len, records))
    prefix = PREFIX.pack(base_offset, length) + EPOCH.pack(0) + bytes((MAGIC,))
    checksum = crc32c(head)
    for part in records:
        checksum = crc32c(part, checksum)
    return b"".join((prefix, CRC.pack(checksum), head, *records))


def _ms_of(record: Record) -> int:
    time_us = record.append_us if record.publish_us is None else record.publish_us
    return time_us // US_PER_MS


def _sized(value: bytes | None) -> bytes:
    return b"\x01" if value is None else varint_bytes(len(value)) + value


def _size_and_value(value: bytes | None) -> tuple[bytes, bytes]:
    return (b"\x01", b"") if value is None else (varint_bytes(len(value)), value)


def _headers(record: Record) -> bytes:
    parts = [varint_bytes(len(record.headers))]
    for header in record.headers:
        parts += (_sized(header.name), _sized(header_text(header)))
    return b"".join(parts)
