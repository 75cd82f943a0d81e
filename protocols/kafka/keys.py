"""Checks that every record of a produced set has a key, as a compacted topic requires. Knows no
request.

The rule is that of LogValidator.java of apache/kafka (`validateKey`). 0.8.2 took such records,
and its cleaner could not handle them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.broker.runtime.steps import Steps
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
)
from braidlog.storage.errors import BodyError
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX
from braidlog.storage.formats.kafka import messages_v1 as kafka_timed
from braidlog.storage.formats.kafka import record_batches as kafka_batches
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.kafka.records import is_any_keyless
from braidlog.storage.formats.kafka.set_layout import (
    CODEC_BITS,
    KEY_POS,
    SET_MESSAGES_MAX,
    SIZE,
    entry,
    open_wrapper,
    whole_end,
)

if TYPE_CHECKING:
    from braidlog.storage.formats.api import Buffer
    from braidlog.storage.formats.record import Record

# From here on there is a code for it; clients of earlier versions hear of a corrupt message.
INVALID_RECORD_SINCE: Final = 8  # version of Produce
INLINE_BYTES: Final = 16 * 1024  # A larger set is checked in a thread.
NO_KEY: Final = "Compacted topic cannot accept message without key in topic partition"
WRONG_MAX: Final = 100  # An answer names no more records: each takes a hundred bytes.


def refuse_keyless(
    message_set: memoryview, magic: int, version: int, place: str
) -> Steps[PartitionProduceResponse | None]:
    """The answer to a set that a compacted topic cannot take; None if it can. `place` names the
    partition.
    """

    def look() -> list[int]:
        return keyless(message_set, magic)

    places: list[int]
    if len(message_set) <= INLINE_BYTES:
        places = look()
    else:
        places = yield run_unpacking(look)
    if not places:
        return None
    is_new = version >= INVALID_RECORD_SINCE
    reason = f"{NO_KEY} {place}".encode()
    return PartitionProduceResponse(
        error_code=Code.INVALID_RECORD if is_new else Code.INVALID_MESSAGE,
        base_offset=-1,
        error_message=f"{len(places)} or more records have no key".encode(),
        record_errors=[wrong_record(number, reason) for number in places[:WRONG_MAX]],
    )


def wrong_record(number: int, reason: bytes) -> BatchIndexAndErrorMessage:
    """Return the fault of the record at a place of a set."""
    return BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=reason)


def keyless(message_set: memoryview, magic: int) -> list[int]:
    """Return the places of the records without a key, at most `WRONG_MAX`; none for an unreadable
    set, which a later check refuses.
    """
    if not has_keyless(message_set, magic):
        return []
    records = records_of(message_set, magic)
    places = (number for number, record in enumerate(records) if record.key is None)
    return list(islice(places, WRONG_MAX)) or [0]


def records_of(message_set: memoryview, magic: int) -> Sequence[Record]:
    """Return the records of a set; only those before the fault if it is unreadable."""
    if magic == kafka_timed.MAGIC:
        limit = len(message_set)
        return kafka_timed.records(message_set, limit, INFLATED_BYTES_MAX, SET_MESSAGES_MAX)[0]
    codec = KAFKA_BATCHES if magic == kafka_batches.MAGIC else KAFKA
    return codec.decode(message_set, 0, 0).records


def has_keyless(message_set: memoryview, magic: int) -> bool:
    """Return True if some record has no key. False for an unreadable set, which a later check
    refuses.
    """
    try:
        if magic == kafka_timed.MAGIC:
            limit = len(message_set)
            records, _ = kafka_timed.records(
                message_set, limit, INFLATED_BYTES_MAX, SET_MESSAGES_MAX
            )
            return any(record.key is None for record in records)
        if magic != kafka_batches.MAGIC:
            return _has_keyless_message(message_set)
        return any(
            is_any_keyless(bytes(kafka_batches.opened(message_set, ref)))
            for ref in kafka_batches.refs(message_set)
        )
    except BodyError:
        return False


def _has_keyless_message(message_set: Buffer, *, is_inner: bool = False) -> bool:
    pos, end = 0, whole_end(message_set)  # A partial message at the end is dropped, not refused.
    while pos < end:
        attributes, stop = entry(message_set, pos)
        if attributes & CODEC_BITS and is_inner:
            return False  # The later check refuses nested sets.
        if attributes & CODEC_BITS:
            inner = open_wrapper(message_set, pos, stop, INFLATED_BYTES_MAX)
            if _has_keyless_message(inner, is_inner=True):
                return True
        elif SIZE.unpack_from(message_set, pos + KEY_POS)[0] < 0:
            return True
        pos = stop
    return False
