"""Checks that the times of produced records lie within the limits of their topic. Knows no request.

The rule is that of LogValidator.java of apache/kafka (`validateTimestamp`). Records without a time
pass.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import OffsetOutOfRange
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.keys import INLINE_BYTES, WRONG_MAX, records_of, wrong_record
from braidlog.protocols.kafka.wire.produce import PartitionProduceResponse
from braidlog.storage.errors import BodyError

if TYPE_CHECKING:
    from braidlog.broker.runtime.steps import Steps
    from braidlog.broker.topics.partition import Partition

TimeLimits = tuple[int | None, int | None]
"""Greatest distances of a time before and after the clock, None for no limit."""
US_PER_MS: Final = 1000
ALWAYS: Final = 1 << 63
REASON: Final = b"One or more records have been rejected due to invalid timestamp"


def refuse_times(
    message_set: memoryview, magic: int, limits_ms: TimeLimits, now_us: int
) -> Steps[PartitionProduceResponse | None]:
    """The answer to a set with a record outside the limits; None if there is none."""
    before, after = limits_ms
    now_ms = now_us // US_PER_MS
    first = now_ms - (ALWAYS if before is None else before)
    last = now_ms + (ALWAYS if after is None else after)

    def look() -> list[tuple[int, bytes]]:
        return outside(message_set, magic, first, last)

    wrong: list[tuple[int, bytes]]
    if len(message_set) <= INLINE_BYTES:
        wrong = look()
    else:
        wrong = yield run_unpacking(look)
    if not wrong:
        return None
    return PartitionProduceResponse(
        error_code=Code.INVALID_TIMESTAMP,
        base_offset=-1,
        error_message=REASON,
        record_errors=[wrong_record(*record) for record in wrong],
    )


async def time_of_batch(partition: Partition, offset: int) -> int:
    """Return the time of a stored batch in milliseconds; -1 if the batch is gone."""
    try:
        batches = await partition.read(offset, 0)
    except OffsetOutOfRange:
        return -1
    latest_us = batches[0].header.max_publish_us if batches else None
    return -1 if latest_us is None else latest_us // US_PER_MS


def outside(
    message_set: memoryview, magic: int, first_ms: int, last_ms: int
) -> list[tuple[int, bytes]]:
    """Return the places of records outside the limits, both inclusive, with the reason; at most
    `WRONG_MAX`. None for an unreadable set, which a later check refuses.
    """
    try:
        records = records_of(message_set, magic)
    except BodyError:
        return []
    wrong = (
        (number, b"time %d ms is not within %d and %d" % (time_ms, first_ms, last_ms))
        for number, record in enumerate(records)
        if record.publish_us is not None
        and not first_ms <= (time_ms := record.publish_us // US_PER_MS) <= last_ms
    )
    return list(islice(wrong, WRONG_MAX))
