"""Search for an entry by its number, counted from a position or from the end of a partition.

Only the entries on the way are looked at, batch by batch. Knows no subscription.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from braidlog.broker.reading.entries import EntrySpan, find_in_sight, is_dense, spans_in
from braidlog.broker.reading.look import look_at

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch
    from braidlog.storage.metadata.ranges import RangeSet


@dataclass(slots=True)
class _EntryCount:
    """Entries of a batch, counted: the wanted entry, or None; the last counted entry, and the
    number of counted entries.
    """

    wanted: EntrySpan | None
    last: EntrySpan | None
    count: int


async def nth_entry(
    partition: Partition, start: int, number: int, acked: RangeSet | None = None
) -> EntrySpan | None:
    """Return the `number`-th entry (from 1) that ends above `start` and has messages outside
    `acked`; None if fewer entries can be delivered.
    """
    position, end = max(start, partition.log_start_offset), partition.high_watermark
    while position < end:
        async with look_at(partition, position) as look:
            if not look.batches:
                return None
            find = partial(_counted_up, start=position, number=number, acked=acked)
            counted = await find_in_sight(look, find)
            position = look.batches[0].next_offset
        if counted.wanted is not None:
            return counted.wanted
        number -= counted.count
    return None


async def nth_entry_from_end(partition: Partition, number: int) -> EntrySpan | None:
    """Return the `number`-th last entry (from 1); the first entry if there are fewer, None if there
    are none.
    """
    below, first = partition.high_watermark - 1, None
    while below >= partition.log_start_offset:
        start = partition.log_start_offset
        async with look_at(partition, below) as look:
            if not look.batches:
                break
            find = partial(_counted_down, start=start, number=number)
            counted = await find_in_sight(look, find)
            below = look.batches[0].base_offset - 1
        if counted.wanted is not None:
            return counted.wanted
        first = counted.last or first
        number -= counted.count
    return first


def _counted_up(batch: Batch, start: int, number: int, acked: RangeSet | None) -> _EntryCount:
    spans = list(islice(_waiting(batch, start, acked), number))
    last = spans[-1] if spans else None
    return _EntryCount(last if len(spans) == number else None, last, len(spans))


def _waiting(batch: Batch, start: int, acked: RangeSet | None) -> Iterator[EntrySpan]:
    """Yield the entries that end above `start` and have messages outside `acked`."""
    if is_dense(batch):
        offset = max(start, batch.base_offset)
        while True:
            offset = acked.next_gap(offset) if acked else offset
            if offset >= batch.next_offset:
                return
            yield EntrySpan(offset, 1)
            offset += 1
    for span in spans_in(batch):
        first = max(span.offset, start)
        if span.end > first and not (acked and acked.next_gap(first) >= span.end):
            yield span


def _counted_down(batch: Batch, start: int, number: int) -> _EntryCount:
    if is_dense(batch):
        start = max(start, batch.base_offset)
        count = batch.next_offset - start
        wanted = EntrySpan(batch.next_offset - number, 1) if number <= count else None
        return _EntryCount(wanted, EntrySpan(start, 1), count)
    spans = [span for span in spans_in(batch) if span.end > start]
    wanted = spans[-number] if number <= len(spans) else None
    return _EntryCount(wanted, spans[0] if spans else None, len(spans))
