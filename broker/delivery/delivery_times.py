"""Delivery times of stored records, for consumers that take records one by one.

Knows batches, but no consumer and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import CorruptBatch
from braidlog.broker.reading.entries import decoded, entries_in, entry_metadata
from braidlog.broker.reading.turn import BATCH_US, Turn, decoding_us
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.broker.runtime.steps import Steps
from braidlog.storage.formats.api import BatchFlag, BodyFormat

if TYPE_CHECKING:
    from braidlog.broker.reading.entries import Entry
    from braidlog.broker.runtime.output_budget import OutputReservation
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch

Delay = tuple[int, int, int]
"""Records `[first, end)` that are not delivered before a time, in milliseconds since 1970."""

READ_BYTES: Final = 256 * 1024  # Read together, to find times.
INLINE_BYTES_MAX: Final = 64 * 1024  # A thread finds the times in larger and compressed bodies.
TOGETHER_MAX: Final = 1000  # Records in a row with the same time that are a single delay.

# An operator of a flag class costs a microsecond.
_COMPRESSED: Final = int(BatchFlag.COMPRESSED)
_DELAYED: Final = int(BatchFlag.DELAYED)


def delay_steps(
    partition: Partition, start: int, end: int, memory: OutputReservation | None = None
) -> Steps[list[Delay]]:
    """Return the delays of the records in `[start, end)`, and maybe of some records beside them.
    `memory` grows for a large batch. Raises BrokerError.
    """
    delays: list[Delay] = []
    turn = Turn()
    while start < end:
        batches = partition.read_warm(start, READ_BYTES)
        if batches is None:
            grow = None if memory is None else memory.grow
            batches = yield partition.read(start, READ_BYTES, before_large=grow)
        if not batches:
            break
        for batch in batches:
            if batch.base_offset >= end:
                return delays
            header = batch.header
            if header.flags & _DELAYED:
                yield from turn.give_way(
                    BATCH_US + decoding_us(header.record_count, len(batch.body))
                )
                delays += yield from _batch_delays(batch, start)
            start = batch.next_offset
    return delays


def _batch_delays(batch: Batch, start: int) -> Steps[Sequence[Delay]]:
    """Return the delays of a batch's records from `start` on."""
    if not batch.header.flags & _COMPRESSED and len(batch.body) <= INLINE_BYTES_MAX:
        return _delays_in(batch, start)
    delays: Sequence[Delay] = yield run_unpacking(partial(_delays_in, batch, start))
    return delays


def _delays_in(batch: Batch, start: int) -> Sequence[Delay]:
    delays: list[Delay] = []
    if batch.header.body_format == BodyFormat.PULSAR:
        for entry in entries_in(batch, start):
            for delay in entry_delays(entry):
                _add(delays, delay)
        return delays
    while start < batch.next_offset:
        records = decoded(batch, start)
        for record in records.records:
            if record.deliver_at_us is not None:
                _add(delays, (record.offset, record.offset + 1, record.deliver_at_us // 1000))
        if records.failed is not None or records.next_offset <= start:
            break  # Nobody gets a record that cannot be opened.
        start = records.next_offset
    return delays


def _add(delays: list[Delay], delay: Delay) -> None:
    """Add a delay, or lengthen the last: each takes some 50 bytes while its records wait."""
    first, end, due_ms = delay
    if delays:
        last_first, last_end, last_ms = delays[-1]
        if (last_end, last_ms) == (first, due_ms) and end - last_first <= TOGETHER_MAX:
            delays[-1] = (last_first, end, due_ms)
            return
    delays.append(delay)


def entry_delays(entry: Entry) -> Sequence[Delay]:
    """Return the delays of an entry's records."""
    try:
        at_ms = entry_metadata(entry.body).deliver_at_time
    except CorruptBatch:
        return ()
    return ((entry.offset, entry.end, at_ms),) if at_ms > 0 else ()
