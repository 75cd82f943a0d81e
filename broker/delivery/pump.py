"""Reading ahead and waiting for records: each dispatcher has a pump.

The pump's task (`run`) waits for records, permits or room. A few records that arrive during the
wait are delivered by a plain call, without the task. Knows the entries to read and the position of
delivery, but no consumer.
"""

from __future__ import annotations

import abc
import math
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
import trio

from braidlog.broker.delivery.dispatch_context import DispatchSource
from braidlog.broker.delivery.entry_reads import EntryRead, read_entries, read_steps
from braidlog.broker.delivery.holes import HOLES_MAX
from braidlog.broker.delivery.pieces import EarlierPieces
from braidlog.broker.delivery.retries import READ_AGAIN_S, longer_wait
from braidlog.broker.errors import BrokerError, OffsetOutOfRange, StorageFull
from braidlog.broker.reading.entries import Entry
from braidlog.broker.runtime.steps import run_now

if TYPE_CHECKING:
    from braidlog.broker.runtime.output_budget import OutputReservation

log = structlog.get_logger()


class Pump(abc.ABC):
    """Reads ahead for a subscription of a partition, and delivers the entries.

    Guarantees: the pump reads nothing at or above the high watermark, and delivers no acknowledged
    entry again. Only `run` waits.
    """

    def __init__(self, source: DispatchSource) -> None:
        """Prepare to read for a subscription."""
        self.partition = partition = source.partition
        self.name, self.cursor = source.name, source.cursor
        # Offset at which the log is unreadable, or unreadable for Pulsar.
        self.stopped_at: int | None = None
        self._context = context = source.context
        self._limits = context.limits
        self._budget = context.budget
        self._now_us = context.now_us
        self._ahead: deque[Entry] = deque()
        self._ahead_bytes = 0  # Size of the pages that contain the entries.
        self._pieces = EarlierPieces(partition, self.cursor)
        self._read_position = self.cursor.position
        self._read_bytes = self._limits.read_ahead_bytes
        self._last_read_bytes = 0  # A batch may be larger than the requested bytes.
        self._generation = 0  # Incremented when the current read is no longer wanted.
        self._is_woken = False
        self._parked = trio.lowlevel.ParkingLot()  # The pump waits here for `wake` alone.
        self._pausing: trio.CancelScope | None = None  # Around the pump's other waits.
        self._retry_at = math.inf  # Time of the next try at `stopped_at`; infinite: now.
        self._retry_wait_s = 0.0
        self._slowed_until = math.inf  # End of the wait for a rate; infinite: no wait.
        self._reported_at = -1  # Position of `stopped_at` last reported to the operator.

    async def run(self) -> None:
        """Read ahead and deliver, until cancelled or the partition is removed."""
        has_worked = False  # Since the last wait. A turn of the loop costs more than an entry.
        while not self.partition.removed:
            if self._retry_at <= trio.current_time():
                self._retry_at = math.inf
            is_ready = self._get_ready()
            if is_ready and has_worked:
                await trio.lowlevel.checkpoint()
                is_ready = self._get_ready()
            if self.partition.is_terminated:
                self._tell_end()
            has_worked = is_ready and self._give()
            if not has_worked and is_ready and self._can_read():
                await self._fill()  # The entries are delivered without another turn of the loop.
                has_worked = True
                if self._get_ready():
                    self._give()
            elif not has_worked:
                await self._pause()
            self._hold()

    def wake(self) -> None:
        """Make the pump check for new permits, acknowledgements or room."""
        self._is_woken = True
        if self._parked:
            self._parked.unpark_all()
        elif self._pausing is not None:
            self._pausing.cancel()

    def drop_ahead(self) -> None:
        """Drop the entries read ahead; they are read again when a consumer can take them."""
        if self._ahead:
            first = self._ahead[0].offset
            if first in self.cursor.again:
                self._pieces.to_read.appendleft(first)
            else:
                self._read_position = first
            self._ahead.clear()

    def close(self) -> None:
        """Return the pump's memory to the budget; the pump is no longer needed."""
        self._ahead.clear()
        self._hold()

    def rewind(self) -> None:
        """Start again at the first unacknowledged entry."""
        self._generation += 1
        self._ahead.clear()
        self._hold()
        self.cursor.again.clear()
        self._pieces = EarlierPieces(self.partition, self.cursor)
        self._read_position = self.cursor.position
        self._go_on()
        self.wake()

    @property
    def read_position(self) -> int:
        """Offset of the next entry to give to a consumer for the first time."""
        ahead = self._ahead[0].offset if self._ahead else self._read_position
        return max(ahead, self.cursor.position)

    def _can_read(self) -> bool:
        """Return True if the pump may read ahead further."""
        return (self.stopped_at is None or self._retry_at == math.inf) and not self._ahead

    async def _fill(self) -> None:
        """Read ahead, after waiting for records if necessary; may return without reading."""
        if self._pieces.to_read:
            await self._read_piece()
            return
        position = self._next_wanted(max(self._read_position, self.cursor.position))
        if position >= self.partition.high_watermark:
            await self._pause(position)
            if not (self._get_ready() and self._can_read()):  # A new active consumer rewinds here.
                return
            position = self._next_wanted(max(self._read_position, self.cursor.position))
            if position >= self.partition.high_watermark:
                return
        read = await self._read(position, self._read_bytes)
        if read is not None and read.has_chunks:
            read = await self._up_to_earlier_pieces(read)
        if read is not None:
            self._take_in(read, position)

    async def _up_to_earlier_pieces(self, read: EntryRead) -> EntryRead | None:
        """Return the entries of a read before the first entry that needs pieces from below the
        position; these pieces are read next. Return None if the read is no longer wanted.
        """
        generation = self._generation
        pieces = await self._pieces.look_back(read)
        if generation != self._generation:
            return None
        if pieces is not None:
            number, earlier = pieces
            read.next_offset = read.entries[number].offset
            self.cursor.again.update(dict.fromkeys(earlier, read.next_offset))
            self._pieces.to_read.extend(earlier)
            del read.entries[number:]
        return read

    async def _read_piece(self) -> None:
        """Read the next of the earlier pieces."""
        pieces = self._pieces
        offset = pieces.to_read.popleft()
        read = await self._read(offset, 1)
        if read is not None:
            self._ahead.extend(entry for entry in read.entries if entry.offset == offset)
            self._ahead_bytes = read.size
        # Retry later, if the piece is still wanted.
        elif offset >= self.partition.log_start_offset:
            pieces.to_read.appendleft(offset)

    def _take_in(self, read: EntryRead, position: int) -> None:
        """Queue the entries read from `position` on for delivery."""
        has_few = read.has_holes and len(self.cursor.state().acked) < HOLES_MAX
        if has_few and (holes := read.holes_from(position)):
            self._pass_holes(holes)
        self._ahead.extend(read.entries)
        self._ahead_bytes = read.size
        self._read_position = read.next_offset
        limits = self._limits
        self._read_bytes = (
            limits.read_ahead_bytes_foreign if read.is_foreign else limits.read_ahead_bytes
        )

    def _give_at_once(self) -> int | None:  # hot: see make bench
        """Deliver a few new records while the pump waits for them, without a turn of the loop.
        Return the offset above which the next records lie; None: the pump must run.
        """
        partition = self.partition
        if partition.is_terminated or not (self._get_ready() and self._can_read()):
            return None
        if self._budget.is_spent():
            return None
        position = self._next_wanted(max(self._read_position, self.cursor.position))
        if partition.high_watermark - position > self._limits.at_once_records_max:
            return None
        bytes_max = self._budget.may_read(self._limits.read_at_once_bytes, trio.current_time())
        try:
            read = run_now(
                read_steps(partition, position, bytes_max, reads_header=self.reads_header)
            )
        except BrokerError:  # The pump meets the same error.
            return None
        if read is None or read.has_chunks:  # The pump may have to look for earlier pieces.
            return None
        self._take_in(read, position)
        self._give()
        assert self._pausing is not None, "its task waits there"
        is_due_earlier = self._due_at() < self._pausing.deadline
        is_left = self._ahead or self._holds_back or is_due_earlier
        return None if is_left else self._read_position

    @property
    def _keeps_page(self) -> bool:  # True if an entry of the last read is not delivered yet.
        return bool(self._ahead)

    @property
    def _holds_back(self) -> bool:  # True if entries wait elsewhere for a consumer.
        return False

    @property
    def _reads_compacted(self) -> bool:  # True if reads use the compacted view.
        return False

    @property
    def reads_header(self) -> bool:
        """True if the header `braidlog.deliver_at` delays records."""
        return False

    def _pass_holes(self, holes: list[tuple[int, int]]) -> None:
        with suppress(BrokerError):  # Without room for the holes the position stays.
            self.cursor.ack(holes, lazy=True)

    def _next_wanted(self, position: int) -> int:
        """Return the first unacknowledged offset from `position` on: acknowledged entries are not
        even read.
        """
        acked = self.cursor.state().acked
        return acked.next_gap(position) if acked else position

    async def _read(self, position: int, bytes_max: int) -> EntryRead | None:
        """Read entries from `position` on; None if they are no longer wanted, or if the
        read fails.
        """
        generation = self._generation
        bytes_max = self._budget.may_read(bytes_max, trio.current_time())
        try:
            with await self._reserve(bytes_max) as room:
                read = await read_entries(
                    self.partition,
                    position,
                    bytes_max,
                    compacted=self._reads_compacted,
                    memory=room,
                    reads_header=self.reads_header,
                )
        except StorageFull:  # The condition is temporary, and the partition has reported it.
            await trio.sleep(READ_AGAIN_S)
            return None
        except BrokerError as error:
            if generation == self._generation and not self.partition.removed:
                if isinstance(error, OffsetOutOfRange):
                    self._below_start()
                else:
                    self._stop_at(position, error)
            return None
        self._last_read_bytes = read.size
        if generation != self._generation:
            return None
        if self.stopped_at is not None:
            self._go_on()
        return read

    async def _reserve(self, bytes_max: int) -> OutputReservation:
        """Reserve memory for a read: a batch may be larger than the requested bytes."""
        return await self._budget.reserve(max(bytes_max, self._last_read_bytes))

    def _go_on(self) -> None:
        """Clear the stop after a successful read."""
        self.stopped_at, self._retry_at, self._retry_wait_s = None, math.inf, 0.0

    def _stop_at(self, position: int, error: BrokerError) -> None:
        """Stop at an unreadable position: everything before was delivered, nothing behind is.
        Consumers stay, since a new consumer would stop at the same place. The read is retried: the
        disk may recover, or an operator may act.
        """
        self.stopped_at = position
        self._retry_wait_s = longer_wait(self._retry_wait_s)
        self._retry_at = trio.current_time() + self._retry_wait_s
        # Report once: each redelivery comes back to the same place.
        if position != self._reported_at:
            self._reported_at = position
            self._report(position, error)

    def _report(self, position: int, error: BrokerError) -> None:
        """Report an undeliverable position to the operator."""
        log.error(
            "delivery_stopped",
            topic=self.partition.topic.name.full,
            partition=self.partition.index,
            subscription=self.name.decode(errors="backslashreplace"),
            offset=position,
            reason=str(error),
        )

    def _hold(self) -> None:
        """Report the memory held to the budget: pages stay until their last entry is delivered."""
        size = self._ahead_bytes if self._keeps_page else 0
        self._budget.hold(self, size, trio.current_time())

    def _below_start(self) -> None:
        """Acknowledge the records that retention removed above the cursor."""
        start = self.partition.log_start_offset
        with suppress(StorageFull):  # The position stays; a rewind tries the same again.
            self.cursor.ack_to(start, lazy=True)
        self._read_position = max(self._read_position, start)

    async def _pause(self, position: int | None = None) -> None:
        """Wait for `wake`, for the due time, or for records at `position`; at least one turn."""
        if self._is_woken:
            await trio.lowlevel.checkpoint()
        elif position is None and self._due_at() == math.inf:  # The most frequent case, and faster.
            await self._parked.park()
        else:
            await self._await(position, self._due_at())
        self._is_woken = False

    async def _await(self, position: int | None, until: float) -> None:
        with trio.CancelScope(deadline=until) as scope:
            self._pausing = scope
            try:
                if position is not None:
                    await self.partition.wait_for(position, self._give_at_once)
                # Otherwise, after a removal or when the broker stops, nothing more arrives.
                if position is None or self.partition.high_watermark <= position:
                    await trio.sleep_forever()
            finally:
                self._pausing = None

    # Decisions of the dispatcher.

    @abc.abstractmethod
    def _get_ready(self) -> bool:
        """Do due work before delivery; return False if no consumer can take entries."""

    @abc.abstractmethod
    def _give(self) -> bool:
        """Deliver a turn's share of the queued entries; return False if there was nothing to do."""

    @abc.abstractmethod
    def _tell_end(self) -> None:
        """Tell consumers once that all messages of a terminated topic are acknowledged."""

    def _due_at(self) -> float:
        """Return the time of the pump's next check without a wake, in trio's seconds."""
        return min(self._retry_at, self._slowed_until)
