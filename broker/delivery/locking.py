"""Delivery of entries whose records members of share groups may hold.

`_out` has every offset that nobody may get now: held by some consumer, delayed, or waiting for a
copy in the dead letter topic. `locks` has those of members. Acknowledged offsets may stay in
`_out`: the offsets beside them then merge to few ranges. An entry is sent to a consumer only while
nobody holds a record of the entry, and none of its records is delayed. Knows no member's request:
`share_queue.py` adds the members.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from braidlog.broker.delivery.consumer import Consumer
from braidlog.broker.delivery.counts import DeliveryCounts
from braidlog.broker.delivery.delivery_times import entry_delays
from braidlog.broker.delivery.dispatcher import DELAYED
from braidlog.broker.delivery.locks import Locks
from braidlog.broker.delivery.pieces import EarlierPieces
from braidlog.broker.delivery.pulling import ShareLimits
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.delivery.waiting_offsets import ANYBODY
from braidlog.broker.errors import BrokerError
from braidlog.broker.reading import ack_sets
from braidlog.storage.metadata.ranges import RangeSet

if TYPE_CHECKING:
    from braidlog.broker.delivery.delivery_times import Delay
    from braidlog.broker.delivery.dispatch_context import DispatchSource
    from braidlog.broker.delivery.entry_reads import EntryRead
    from braidlog.broker.delivery.waiting_offsets import Lane
    from braidlog.broker.reading.entries import Entry


# Ranges of `_out`: 32 MiB. More than delayed and unacknowledged entries together, so that `_out`
# refuses no range.
OUT_MAX: Final = 1 << 21


class LockingDispatcher(SharedDispatcher):
    """Delivers entries in turns, but none with a locked record."""

    def __init__(self, source: DispatchSource) -> None:
        super().__init__(source)
        self.share_limits = ShareLimits()
        self.locks = Locks()
        self.archived = 0
        """Records that reached the limit of deliveries."""
        self.dead: deque[tuple[int, int]] = deque()
        """Ranges that wait for a copy in the dead letter topic. Nobody gets them."""
        self._counts = DeliveryCounts()
        if (stored := self.cursor.deliveries()) is not None:
            self._counts.load(stored)
        self._out = RangeSet(ranges_max=OUT_MAX)
        # Read entries with a locked record: entry offset -> end. They wait when the lock ends.
        self._blocked: dict[int, int] = {}
        self._is_shared = False  # A member has joined: `_out` is kept.
        # The delays of records below are known: no such record that is early is free.
        self._known_end = 0
        self._counted_seeks = self._seeks

    # Entries: none with a record that somebody holds.

    def _next_wanted(self, position: int) -> int:
        wanted = super()._next_wanted(position)
        while self._is_shared and (free := self._out.next_gap(wanted)) > wanted:
            wanted = super()._next_wanted(free)
        return wanted

    def _take_in(self, read: EntryRead, position: int) -> None:
        super()._take_in(read, position)
        if self._is_shared:
            if self._client_limits.delays:
                for entry in read.entries:
                    if entry.flags & DELAYED:
                        self._hold_records(entry.delays or entry_delays(entry, reads_header=False))
            self._known_end = max(self._known_end, read.next_offset)
            self._sift()

    def _sift(self) -> None:
        """Drop read entries with a record that nobody may get; locked entries wait for the end of
        the lock.
        """
        entries = list(self._ahead)
        self._ahead.clear()
        for entry in entries:
            if self.locks.overlaps(entry.offset, entry.end):
                self._blocked[entry.offset] = entry.end
            elif not self._is_out(entry) and not self._waits(entry):
                self._ahead.append(entry)

    def _is_out(self, entry: Entry) -> bool:
        """Return True if nobody may get some record of the entry that is not acknowledged."""
        state = self.cursor.state()
        out = self._out.within(max(entry.offset, state.position), entry.end)
        return any(not state.covers(start, end) for start, end in out)

    def _available(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of `[start, end)` that somebody may get. `_out` and the cursor may not
        change meanwhile. The position may have passed `start` while the caller read.
        """
        state, out = self.cursor.state(), self._out
        start, acked = max(start, state.position), state.acked
        while start < end:
            free = out.next_gap(acked.next_gap(start))
            if free > start:
                start = free
                continue
            stop = min(acked.gap_end(start, end), out.gap_end(start, end))
            yield start, stop
            start = stop

    def _waits(self, entry: Entry) -> bool:
        """Return True if the entry, or a record of the entry, waits to be sent again."""
        again = self._again
        return bool(again) and any(offset in again for offset in range(entry.offset, entry.end))

    def _free_blocked(self, start: int, end: int) -> None:
        """Let entries wait to be sent whose last lock has ended."""
        if not self._blocked:
            return
        for offset, stop in list(self._blocked.items()):
            overlaps = offset < end and start < stop
            if overlaps and not self.locks.overlaps(offset, stop):
                del self._blocked[offset]
                self._again.add((offset,), ANYBODY)

    def _waiting(self, entries: Sequence[Entry]) -> list[Entry]:
        """As SharedDispatcher. A record that a member gave back waits with its whole entry."""
        for entry in entries if self._is_shared else ():
            inside = range(entry.offset + 1, entry.end)
            back = [offset for offset in inside if offset in self._again]
            for offset in back:
                self._again.discard(offset)
            if back:
                counts = [self._redeliveries.pop(offset, 0) for offset in [entry.offset, *back]]
                self._redeliveries[entry.offset] = max(counts)
                self._again.add((entry.offset,), ANYBODY)
        return super()._waiting(entries)

    def _give_found(self, entries: Sequence[Entry]) -> None:
        if not self._is_shared:
            super()._give_found(entries)
            return
        free = []
        for entry in entries:
            if self.locks.overlaps(entry.offset, entry.end):
                self._again.discard(entry.offset)
                self._blocked[entry.offset] = entry.end
            elif entry.record_count > 1 and self._is_out(entry):
                self._again.discard(entry.offset)  # Waits again when that record does.
            else:
                free.append(entry)
        super()._give_found(free)

    def _sent(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        super()._sent(consumer, entries)
        if self._is_shared:
            for entry in entries:
                self._out.add(entry.offset, entry.end)

    def _send_again(self, consumer: Consumer, offsets: Iterable[int]) -> None:
        if not self._counts.is_counting:
            super()._send_again(consumer, offsets)
            return
        spans = [(offset, offset + consumer.pending[offset].record_count) for offset in offsets]
        super()._send_again(consumer, [start for start, _ in spans])
        archived: list[tuple[int, int]] = []
        for start, end in spans:
            self._out.remove(start, end)
            for first, stop, count in list(self._counts.runs(start, end)):
                if count + 1 >= self.share_limits.deliveries_max:
                    archived.append((first, stop))
                else:
                    self._counts.came_back(first, stop, count + 1)
        self._archive(archived)

    def _wait(self, offsets: Sequence[int], lane: Lane) -> None:
        if self._is_shared:
            for offset in offsets:
                self._out.remove(offset, offset + 1)
        super()._wait(offsets, lane)

    def _hold_early(self, entry: Entry, due_ms: int, slot: int) -> bool:
        if self._is_shared:  # `_take_in` has held the entry's early records.
            return False
        return super()._hold_early(entry, due_ms, slot)

    def _hold_records(self, delays: Iterable[Delay]) -> None:
        """Hold the records that are to be delivered later, unless others have them already."""
        first_ms, now_ms = self._delays.first_ms, self._now_us() // 1000
        for first, end, due_ms in delays:
            if due_ms > now_ms:
                for start, stop in list(self._available(first, end)):
                    self._delays.add(due_ms, start, stop)
                    self._out.add(start, stop)
        if self._delays.first_ms != first_ms:
            self.wake()  # The pump releases them in time.

    def _release_due(self, due: Sequence[tuple[int, int, int]]) -> None:
        if not self._is_shared:
            super()._release_due(due)
            return
        self._out.remove_all(sorted((offset, end) for offset, end, _ in due))
        for offset, end, _ in due if self._turns.sender_count else ():
            self._again.add(range(offset, end), ANYBODY)

    def _passed(self, offset: int) -> None:
        super()._passed(offset)
        self._blocked.pop(offset, None)

    # Consumers and moves.

    def _consumer_joined(self, consumer: Consumer) -> None:
        super()._consumer_joined(consumer)
        if consumer.pulls and not self._is_shared:
            self._begin_sharing()
        elif not consumer.pulls and self._is_shared and self._turns.sender_count == 1:
            self._start_sending()

    def _begin_sharing(self) -> None:
        """Begin to serve members: from now on the held offsets are known."""
        self._is_shared = True
        self._counts.begin()
        if (
            self.cursor.deliveries() is None
        ):  # A start after a crash shall count from the beginning.
            self.cursor.count_deliveries([])
        for consumer in self.consumers:
            for offset, pending in consumer.pending.items():
                self._out.add(offset, offset + pending.record_count)
        # Entries read from now on are checked for held records, and their records may be delayed.
        self._generation += 1
        self.drop_ahead()
        self._delays.clear()
        self._read_position = self.cursor.position

    def _start_sending(self) -> None:
        """Let the pump begin at the position: its first consumer has joined the members."""
        self._generation += 1
        self._ahead.clear()
        self._again.clear()
        self._blocked.clear()
        self.cursor.again.clear()
        self._pieces = EarlierPieces(self.partition, self.cursor)
        self._read_position = self.cursor.position

    def _moved_ahead(self) -> None:
        super()._moved_ahead()
        if self.locks:
            for lock in self.locks.take(0, self.cursor.position):
                lock.holder.unacked -= 0 if lock.is_hidden else lock.end - lock.first
                self._free_blocked(lock.first, lock.end)

    # The limit of deliveries.

    def _archive(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Give up records that reached the limit of deliveries."""
        if not ranges:
            return
        self.archived += sum(end - start for start, end in ranges)
        if self.share_limits.dead_letters is None:
            self._end_deliveries(ranges)
        else:
            self._bury(ranges)

    def _bury(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Let records wait for a copy in the dead letter topic."""
        was_idle = not self.dead
        for start, end in ranges:
            self._out.add(start, end)
            self.dead.append((start, end))
        if was_idle and ranges:
            self._context.bury(self)

    def buried(self, start: int, end: int) -> None:
        """Acknowledge the first records of `dead`: their copies are durable."""
        if self.dead and self.dead[0] == (start, end):
            self.dead.popleft()
            self._out.remove(start, end)
            self._end_deliveries([(start, end)])
            if self._turns.sender_count:
                self._again.add((start,), ANYBODY)  # The other records of its entry.
            self.wake()

    def _end_deliveries(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Acknowledge records. Without room for that they are given out once more."""
        try:
            self.cursor.ack(ack_sets.merged(list(ranges)), lazy=True)
        except BrokerError:
            return  # The partition has reported it.
        for start, end in ranges:
            self._out.add(start, end)
            self._counts.forget(start, end)
            self._forget_redeliveries(start, end)

    def _forget_redeliveries(self, start: int, end: int) -> None:
        if self._redeliveries:
            for offset in range(start, end):
                self._redeliveries.pop(offset, None)

    def rewind(self) -> None:
        """As SharedDispatcher. The counts stay, unless a seek is the cause."""
        self.locks.clear()
        self._out.clear()
        self._blocked.clear()
        self.dead.clear()
        self._is_shared = False
        self._known_end = 0
        if self._counted_seeks != self._seeks:
            self._counted_seeks = self._seeks
            self._counts.clear()
        super().rewind()

    def close(self) -> None:
        """As SharedDispatcher. Also store the delivery counts."""
        if self._counts.is_counting:
            self._count_held()
            self.cursor.count_deliveries(self._counts.all_runs())
        super().close()

    def _count_held(self) -> None:
        """Count the deliveries of records that consumers still hold."""
        for lock in self.locks:
            self._counts.came_back(lock.first, lock.end, lock.count)
        for consumer in self.consumers:
            for offset, pending in consumer.pending.items() if not consumer.pulls else ():
                for first, stop, count in list(
                    self._counts.runs(offset, offset + pending.record_count)
                ):
                    self._counts.came_back(first, stop, count + 1)
