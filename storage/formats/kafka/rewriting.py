"""Changes produced sets as their topic asks: another compression, and the time of the append as the
time of all records. Knows no request, no partition and no clock.

The rules are those of LogValidator.java of apache/kafka.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from braidlog.storage.errors import TimeOutOfRange
from braidlog.storage.formats.kafka import messages_v1, record_batches
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.prepare import PackedSet, SetLimits, magic_of
from braidlog.storage.formats.kafka.record_batches import (
    APPEND_TIME,
    APPEND_TIME_TEXT,
    CHECKED,
    CHECKED_POS,
    CODEC_BITS,
    CRC,
    CRC_POS,
    KAFKA_BATCHES,
    opened,
    packed_again,
    refs,
)

if TYPE_CHECKING:
    from braidlog.storage.formats.api import Buffer

# Numbers of compressions in a batch, by Kafka's names; no number: that of the producer.
CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def keeps_batches(message_set: memoryview, compression: str) -> bool:
    """Return True if `recompressed` only checks and copies the set."""
    return CODECS.get(compression) is None and magic_of(message_set) == record_batches.MAGIC


def recompressed(
    message_set: memoryview,
    limits: SetLimits,
    compression: str,
    *,
    append_times: bool,
) -> bytearray:
    """Return a set of any format as record batches of that compression, from offset 0 on. Batches
    with this compression already, and all batches for `producer`, stay as they are.

    Sets for `append_times` must not say that their times are times of appends. Raises BodyError.
    """
    batches = _as_batches(message_set, limits)
    if append_times and any(ref.attributes & APPEND_TIME for ref in refs(batches)):
        raise TimeOutOfRange(APPEND_TIME_TEXT)
    codec = CODECS.get(compression)
    if codec is None:
        return bytearray(batches)
    parts: list[Buffer] = []
    for ref in refs(batches):
        if ref.attributes & CODEC_BITS == codec:
            parts.append(memoryview(batches)[ref.pos : ref.stop])
            continue
        records = opened(batches, ref, limits.inflated_left)
        limits.inflated_left -= len(records)
        attributes = ref.attributes & ~CODEC_BITS | codec
        parts.append(packed_again(replace(ref, attributes=attributes), records))
    return bytearray().join(parts)


def stamp_times(batches: bytearray, append_ms: int) -> None:
    """Make a time of the broker the time of all records of checked batches."""
    for ref in refs(batches):
        head = (ref.attributes | APPEND_TIME, ref.last_offset_delta, append_ms, append_ms)
        producer = (ref.producer_id, ref.producer_epoch, ref.first_sequence)
        CHECKED.pack_into(batches, ref.pos + CHECKED_POS, *head, *producer, ref.count)
        with memoryview(batches) as view:
            checksum = crc32c(view[ref.pos + CHECKED_POS : ref.stop])
        CRC.pack_into(batches, ref.pos + CRC_POS, checksum)


def _as_batches(message_set: memoryview, limits: SetLimits) -> Buffer:
    """Check a set; return record batches with its records. Raises BodyError."""
    magic = magic_of(message_set)
    if magic == record_batches.MAGIC:
        bytes_max = limits.batch_bytes_max
        return record_batches.prepare(message_set, 0, message_bytes_max=bytes_max).body
    packed = PackedSet(message_set, limits, is_timed=magic == messages_v1.MAGIC)
    unpacked = packed.open().unpacked_at(0)
    if unpacked.body_format == record_batches.STORED:
        return unpacked.body
    records = KAFKA.decode(unpacked.body, 0, messages_v1.NO_TIME_US).records
    return KAFKA_BATCHES.encode(records, 0)
