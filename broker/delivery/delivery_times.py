"""Delivery times of stored records: the times of Pulsar's and HTTP's producers, and the header
`braidlog.deliver_at`.

A topic's setting turns the header on. Its value is a decimal number of milliseconds since 1970, of
at most 15 digits; the last such header of a record counts. Other values are no time: the record is
delivered at once. Knows batches and entries, but no consumer and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import CorruptBatch
from braidlog.broker.reading.entries import decoded, entries_in, entry_messages, entry_metadata
from braidlog.broker.reading.turn import BATCH_US, Turn, decoding_us
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.broker.runtime.steps import Steps
from braidlog.storage.errors import BodyError
from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.headers import header_text
from braidlog.storage.formats.record import Header

if TYPE_CHECKING:
    from braidlog.broker.reading.entries import Entry
    from braidlog.broker.runtime.output_budget import OutputReservation
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch

Delay = tuple[int, int, int]
"""Records `[first, end)` that are not delivered before a time, in milliseconds since 1970."""

HEADER: Final = b"braidlog.deliver_at"
DIGITS_MAX: Final = 15  # Up to the year 33658: today's microseconds have 16 digits.
READ_BYTES: Final = 256 * 1024  # Read together, to find times.
INLINE_BYTES_MAX: Final = 64 * 1024  # A thread finds the times in larger and compressed bodies.
SEARCHED_BYTES_MAX: Final = 1024 * 1024  # The event loop searches smaller bodies for the header.
TOGETHER_MAX: Final = 1000  # Records in a row with the same time that are a single delay.

# An operator of a flag class costs a microsecond.
_COMPRESSED: Final = int(BatchFlag.COMPRESSED)
_DELAYED: Final = int(BatchFlag.DELAYED)


def header_ms(headers: Iterable[Header]) -> int:
    """Return the delivery time that headers name, in milliseconds since 1970; 0: none."""
    due_ms = 0
    for header in headers:
        if header.name == HEADER:
            text = header_text(header)
            due_ms = int(text) if text.isdigit() and len(text) <= DIGITS_MAX else 0
    return due_ms


def delay_steps(
    partition: Partition,
    start: int,
    end: int,
    memory: OutputReservation | None = None,
    *,
    reads_header: bool,
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
            yield from turn.give_way(BATCH_US)
            if may_delay(batch, reads_header=reads_header):
                turn.add(decoding_us(batch.header.record_count, len(batch.body)))
                delays += yield from batch_delays(batch, start, reads_header=reads_header)
            start = batch.next_offset
    return delays


def may_delay(batch: Batch, *, reads_header: bool) -> bool:
    """Return True unless no record of the batch can have a delivery time."""
    flags = batch.header.flags
    if flags & _DELAYED or not reads_header:
        return bool(flags & _DELAYED)
    # A header's name is stored as it is, in every format. A thread searches larger bodies.
    is_searched = not flags & _COMPRESSED and len(batch.body) <= SEARCHED_BYTES_MAX
    return not is_searched or HEADER in bytes(batch.body)


def batch_delays(batch: Batch, start: int, *, reads_header: bool) -> Steps[Sequence[Delay]]:
    """Return the delays of a batch's records from `start` on."""
    if not batch.header.flags & _COMPRESSED and len(batch.body) <= INLINE_BYTES_MAX:
        return _delays_in(batch, start, reads_header)
    delays: Sequence[Delay] = yield run_unpacking(partial(_delays_in, batch, start, reads_header))
    return delays


def _delays_in(batch: Batch, start: int, reads_header: bool) -> Sequence[Delay]:
    delays: list[Delay] = []
    flags = batch.header.flags
    if not flags & (_COMPRESSED | _DELAYED) and HEADER not in bytes(batch.body):
        return delays
    if batch.header.body_format == BodyFormat.PULSAR:
        for entry in entries_in(batch, start):
            for delay in entry_delays(entry, reads_header=reads_header):
                _add(delays, delay)
        return delays
    while start < batch.next_offset:
        records = decoded(batch, start)
        for record in records.records:
            due_ms = (record.deliver_at_us or 0) // 1000
            if reads_header:
                due_ms = max(due_ms, header_ms(record.headers))
            if due_ms > 0:
                _add(delays, (record.offset, record.offset + 1, due_ms))
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


def entry_delays(entry: Entry, *, reads_header: bool) -> Sequence[Delay]:
    """Return the delays of an entry's records. A time of the entry holds for all its records; of
    two times the later counts.
    """
    try:
        metadata = entry_metadata(entry.body)
    except CorruptBatch:
        return ()
    due_ms = metadata.deliver_at_time
    if reads_header and metadata.HasField("num_messages_in_batch"):
        may_have_header = metadata.compression or HEADER in bytes(entry.body)
        if may_have_header and (delays := _message_delays(entry, due_ms)):
            return delays
    elif reads_header:
        due_ms = max(due_ms, header_ms(Header(p.key, p.value) for p in metadata.properties))
    return ((entry.offset, entry.end, due_ms),) if due_ms > 0 else ()


def _message_delays(entry: Entry, due_ms: int) -> Sequence[Delay]:
    """Return the delays of the messages of a batched entry, if some message has the header."""
    try:
        messages = entry_messages(entry)
    except BodyError:  # Encrypted, for example: only the time of the entry counts.
        return ()
    times = [header_ms(message.headers) for message in messages]
    delays: list[Delay] = []
    for message, time_ms in zip(messages, times, strict=True) if any(times) else ():
        if max(due_ms, time_ms) > 0:
            _add(delays, (message.offset, message.offset + 1, max(due_ms, time_ms)))
    return delays


def set_delays(entries: Sequence[Entry], delays: Sequence[Delay]) -> None:
    """Give entries in offset order the delays of their records."""
    number = 0
    for entry in entries if delays else ():
        while number < len(delays) and delays[number][1] <= entry.offset:
            number += 1
        own, place = [], number
        while place < len(delays) and delays[place][0] < entry.end:
            first, end, due_ms = delays[place]
            own.append((max(first, entry.offset), min(end, entry.end), due_ms))
            place += 1
        if own:
            entry.delays = tuple(own)
            entry.flags |= _DELAYED


def due_of(entry: Entry) -> int:
    """Return the time, in milliseconds since 1970, at which all records of a delayed entry may be
    delivered. Raises CorruptBatch.
    """
    if entry.delays:
        return max(due_ms for _, _, due_ms in entry.delays)
    return entry_metadata(entry.body).deliver_at_time
