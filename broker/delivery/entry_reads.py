"""Reads of entries for Pulsar's consumers, and for other callers with the same needs.

Entries that Pulsar stored are returned unchanged; records of other protocols are converted to
entries. The reads are step generators (`broker/runtime/steps.py`): most reads wait for nothing.
Knows no consumer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from braidlog.broker.delivery.delivery_times import batch_delays, may_delay, set_delays
from braidlog.broker.delivery.holes import compacted_away_of
from braidlog.broker.errors import UnreadableRecord
from braidlog.broker.limits import DECODE_BYTES_MAX
from braidlog.broker.reading.entries import Entry, decoded, entries_in
from braidlog.broker.reading.unopened import Passed, pass_unreadable
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.broker.runtime.steps import Steps, run
from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.pulsar.foreign_entries import records_to_entries, set_to_entries
from braidlog.storage.large import LARGE_BYTES_MIN, LargeBody, refusing_large

if TYPE_CHECKING:
    from braidlog.broker.runtime.output_budget import OutputReservation
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch
    from braidlog.storage.log.settings import UnreadableRecords

FOREIGN_RECORDS_MAX = 1000  # Records of another format that a read converts to entries: some ms.
# Larger bodies of other formats are decoded in a thread, with separate limits for compressed and
# uncompressed bodies. A decoding thread takes turns with the loop and delays the loop for longer
# than the decoding takes.
COMPRESSED_INLINE_BYTES_MAX = 512
PLAIN_INLINE_BYTES_MAX = 256 * 1024

# An operator of a flag class costs a microsecond, too slow for each entry.
_COMPRESSED = int(BatchFlag.COMPRESSED)
_CHUNK = int(BatchFlag.CHUNK)
_DELAYED = int(BatchFlag.DELAYED)
_GAP = int(BatchFlag.GAP)
_COMPACTED = int(BatchFlag.COMPACTED)
_HOLES = _GAP | int(BatchFlag.MARKER) | _COMPACTED

Converted = tuple[list[Entry], int, Passed | None]


@dataclass(slots=True)
class EntryRead:
    """Entries in offset order, and the start of the next read (past offsets without an entry)."""

    entries: list[Entry]
    next_offset: int
    # Some entries were converted from another format: a read returns few of them.
    is_foreign: bool = False
    # Bytes that the entries keep in memory: the size of the bodies that contain them.
    size: int = 0
    has_holes: bool = False  # Some offsets may belong to no entry, or to no message.
    has_chunks: bool = False  # Some entries may be pieces of chunked messages.
    # Offsets of messages that compaction removed from an entry. Java's client skips such holes
    # without help; the C++ client and its derivatives skip them only if the broker marks them as
    # acknowledged.
    compacted_away: list[tuple[int, int]] = field(default_factory=list)

    def holes_from(self, offset: int) -> list[tuple[int, int]]:
        """Return the offset ranges from `offset` on that belong to no entry, or no message."""
        holes = [(max(start, offset), end) for start, end in self.compacted_away if end > offset]
        for entry in self.entries:
            if entry.offset > offset:
                holes.append((offset, entry.offset))
            offset = max(offset, entry.end)
        if self.next_offset > offset:
            holes.append((offset, self.next_offset))
        return holes


class _FullRead(Exception):
    """The next entry is large, and smaller entries must be returned first."""


async def read_entries(
    partition: Partition,
    offset: int,
    bytes_max: int,
    *,
    compacted: bool = False,
    memory: OutputReservation | None = None,
    reads_header: bool = False,
) -> EntryRead:
    """Read entries from the entry that contains or follows `offset`; none at the high watermark.

    `compacted`: read from the compacted view, as far as there is a view. `memory` is reserved for
    the entries: the reservation grows for a large record of another format, which is alone in its
    read. `reads_header`: find the times of the header `braidlog.deliver_at`.

    Raises OffsetOutOfRange, and UnreadableRecord if the very first record cannot be opened.
    """
    steps = read_steps(
        partition,
        offset,
        bytes_max,
        compacted=compacted,
        memory=memory,
        reads_header=reads_header,
    )
    return await run(steps)


def read_steps(
    partition: Partition,
    offset: int,
    bytes_max: int,
    *,
    compacted: bool = False,
    memory: OutputReservation | None = None,
    reads_header: bool = False,
) -> Steps[EntryRead]:
    """Read entries in steps; wait for data that is not in memory, and for a decoding thread."""
    partition.check_readable(offset, BodyFormat.PULSAR)
    batches: list[Batch] | None
    before_large = None if memory is None else memory.grow
    if compacted:
        batches = yield partition.read_compacted(offset, bytes_max, before_large=before_large)
    else:
        batches = partition.read_warm(offset, bytes_max)
        if batches is None:
            batches = yield partition.read(offset, bytes_max, before_large=before_large)
    size = _waiting_bytes(batches[0]) if batches else 0
    if size and memory is not None and not memory.grow_now(size):
        del batches  # The batches are read again once there is memory.
        yield memory.grow(size)
        batches = yield _read_again(partition, offset, bytes_max, compacted=compacted)
    read = EntryRead([], offset)
    entries, flags = read.entries, 0
    policy = partition.log.settings.unreadable_records
    for batch in batches or ():
        header = batch.header
        flags |= header.flags
        if header.flags & _GAP:
            read.next_offset = batch.next_offset
        elif header.body_format == BodyFormat.PULSAR:
            stored = entries_in(batch, offset)
            if header.flags & _COMPACTED:
                read.compacted_away += yield compacted_away_of(stored)
            if reads_header and may_delay(batch, reads_header=True):
                set_delays(stored, (yield from batch_delays(batch, offset, reads_header=True)))
            entries += stored
            read.size += len(batch.body)
            read.next_offset = batch.next_offset
        else:
            read.is_foreign = True
            try:
                foreign, read.next_offset, passed = yield from _foreign_entries(
                    batch, offset, policy, memory, has_entries=bool(entries)
                )
            except _FullRead:
                break
            except UnreadableRecord as error:
                partition.unreadable.add(offset, BodyFormat.PULSAR, str(error))
                raise
            if reads_header and may_delay(batch, reads_header=True):
                set_delays(foreign, (yield from batch_delays(batch, offset, reads_header=True)))
            entries += foreign
            read.size += sum([len(entry.body) for entry in foreign])
            flags |= _GAP if passed is not None else 0
            is_full = len(entries) >= FOREIGN_RECORDS_MAX or read.size >= bytes_max
            if is_full or read.next_offset < batch.next_offset:
                break
    read.has_holes = bool(flags & _HOLES)
    read.has_chunks = bool(flags & _CHUNK)
    return read


def _waiting_bytes(batch: Batch) -> int:
    """Return the bytes of a batch that stays in memory while its read waits for a thread; 0 for a
    small batch, without a wait, or if the memory was reserved before the read.
    """
    size = batch.header.body_bytes
    is_foreign = batch.header.body_format != BodyFormat.PULSAR
    return size if is_foreign and PLAIN_INLINE_BYTES_MAX < size < LARGE_BYTES_MIN else 0


async def _read_again(
    partition: Partition, offset: int, bytes_max: int, *, compacted: bool
) -> list[Batch]:
    read = partition.read_compacted if compacted else partition.read
    return await read(offset, bytes_max)


def _foreign_entries(
    batch: Batch,
    offset: int,
    policy: UnreadableRecords,
    memory: OutputReservation | None,
    *,
    has_entries: bool,
) -> Steps[Converted]:
    """Return entries converted from the batch's records from `offset` on, the start of the next
    read, and the unreadable part that was not refused. Raises _FullRead.
    """
    result = yield from _converted(batch, offset, policy, memory, has_entries=has_entries)
    if memory is None:
        return result
    if (size := sum([len(entry.body) for entry in result[0]])) <= 2 * DECODE_BYTES_MAX:
        size = 0
    if has_entries and size:
        raise _FullRead
    if not memory.hold_built(size):
        del result
        yield memory.expect(size)
        result = yield from _converted(batch, offset, policy, memory, has_entries=has_entries)
        memory.hold_built(size)
    return result


def _converted(
    batch: Batch,
    offset: int,
    policy: UnreadableRecords,
    memory: OutputReservation | None,
    *,
    has_entries: bool,
) -> Steps[Converted]:
    is_compressed = batch.header.flags & _COMPRESSED
    bytes_max = COMPRESSED_INLINE_BYTES_MAX if is_compressed else PLAIN_INLINE_BYTES_MAX
    make = partial(_make_entries, batch, offset, policy, has_entries)
    if len(batch.body) <= bytes_max:
        try:
            with refusing_large():
                return make()
        except LargeBody:
            pass  # The thread handles large bodies.
    before_large: Callable[[int], Awaitable[None]] | None = None
    if has_entries:
        before_large = _raise_full
    elif memory is not None and batch.header.record_count == 1:
        before_large = memory.expect
    result: Converted = yield run_unpacking(make, before_large=before_large)
    return result


async def _raise_full(_: int) -> None:
    raise _FullRead


def _make_entries(
    batch: Batch, offset: int, policy: UnreadableRecords, has_entries: bool
) -> Converted:
    start, append_us = max(offset, batch.base_offset), batch.header.append_us
    if batch.header.body_format == BodyFormat.KAFKA:
        entry_set = set_to_entries(batch.body, start, append_us, FOREIGN_RECORDS_MAX)
        if entry_set:  # hot: see make bench
            entries = [
                Entry(at, 1, body, 0, 0, (), 0, append_us)
                for at, body in enumerate(entry_set, start)
            ]
            return entries, start + len(entry_set), None
    records = decoded(batch, start, FOREIGN_RECORDS_MAX, DECODE_BYTES_MAX)
    passed = pass_unreadable(policy, batch, records)
    if records.failed is not None and not records.records and not has_entries:
        raise UnreadableRecord(f"record {records.failed_offset}: {records.failed}")
    bodies = records_to_entries(records.records)
    entries = [
        Entry(
            record.offset,
            1,
            body,
            0 if record.deliver_at_us is None else _DELAYED,
            append_us=record.append_us,
        )
        for record, body in zip(records.records, bodies, strict=True)
    ]
    if records.failed is not None and records.failed_offset is not None:
        return entries, records.failed_offset, None
    return entries, max(records.next_offset, start + 1), passed
