"""A Shared subscription that members of Kafka's share groups read, too: one queue.

Consumers of Pulsar and HTTP get whole entries sent, as on every Shared subscription. Members of
share groups (`PullingConsumer`) ask for records: `first_offered`, a read by the caller,
`hold_early`, `acquire`, `acknowledge_ranges`. A record that a member holds has a lock, which ends
by an acknowledgement, by time, or when the member leaves.

Entries and the locks of their records are in `locking.py`. A member that waits for records has
turns like every consumer: the pump offers a turn (`PullingConsumer.offered`), and sends nothing
until the member calls `end_turn`.

Rules: SharePartition.java of apache/kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from braidlog.broker.delivery.consumer import Consumer
from braidlog.broker.delivery.delivery_times import delay_steps
from braidlog.broker.delivery.locking import LockingDispatcher
from braidlog.broker.delivery.locks import Lock
from braidlog.broker.delivery.pulling import AckRange, AckType, PullingConsumer
from braidlog.broker.delivery.waiting_offsets import ANYBODY
from braidlog.broker.reading import ack_sets
from braidlog.broker.runtime.steps import Steps

if TYPE_CHECKING:
    from braidlog.broker.delivery.dispatch_context import DispatchSource
    from braidlog.broker.runtime.output_budget import OutputReservation

# Ranges of records that wait for a copy in the dead letter topic.
DEAD_MAX: Final = 2000


class QueueDispatcher(LockingDispatcher):
    """Delivers to consumers in turns, and lets members of share groups take records."""

    def __init__(self, source: DispatchSource) -> None:
        super().__init__(source)
        self._turn: Consumer | None = None  # The member that has its turn.
        self._locked_end = 0  # End of the records that members have had since the last move back.

    # Members: taking records.

    def first_offered(self) -> int | None:
        """Return the lowest offset that a member may take now."""
        if self.locks.records >= self.share_limits.locked_max or len(self.dead) >= DEAD_MAX:
            return None
        if self.cursor.position < self.partition.log_start_offset:
            self._below_start()
            self._moved_ahead()
        position, end = self.cursor.position, self._end
        if position > 0:
            self._out.remove(0, position)
        return next((start for start, _ in self._available(position, end)), None)

    @property
    def _end(self) -> int:
        """Return the end of the records that members may take now."""
        end = self.partition.high_watermark
        return min(end, self._known_end) if self._delays.is_full else end

    def hold_early(
        self, start: int, end: int, memory: OutputReservation | None = None
    ) -> Steps[None]:
        """Hold the free records of `[start, end)` that are to be delivered later. `start` is from
        `first_offered`. Raises BrokerError.
        """
        start, end = max(start, self._known_end), min(end, self._end)
        if start >= end or not self._client_limits.delays:
            return
        generation = self._generation
        delays = yield from delay_steps(
            self.partition, start, end, memory, reads_header=self.reads_header
        )
        self._hold_records(delays)
        if generation == self._generation:
            self._known_end = max(self._known_end, end)

    def acquire(
        self,
        consumer: PullingConsumer,
        start: int,
        batches: Iterable[tuple[int, int]],
        records_max: int,
        *,
        is_exact: bool,
    ) -> list[Lock]:
        """Lock records of read batches, given by first offset and end, for a member. The batches
        were read from `start` on. Whole batches go to a member unless `is_exact`. Returns the locks
        of records that are shown.
        """
        limits, due = self.share_limits, trio.current_time() + self.share_limits.lock_s
        records_max = min(records_max, limits.locked_max - self.locks.records)
        acquired: list[Lock] = []
        left, hidden_from, was_empty, last = records_max, start, not self.locks, self._end
        for base, end in batches:
            if left <= 0:
                break
            low = max(base, start)
            for first, stop in list(self._available(low, min(end, last))):
                stop = min(stop, first + left) if is_exact else stop
                if stop <= first:
                    break
                if first == low and hidden_from < low:
                    self._lock(consumer, hidden_from, low, due, is_hidden=True)
                acquired += self._lock(consumer, first, stop, due)
                left -= stop - first
            hidden_from = max(end, start)
        consumer.messages_out += records_max - left
        consumer.unacked += records_max - left
        if acquired and self._ahead:
            self._sift()
        if acquired and was_empty:
            self.wake()  # The pump ends locks in time.
        return acquired

    def _lock(
        self, consumer: Consumer, start: int, end: int, due: float, *, is_hidden: bool = False
    ) -> list[Lock]:
        """Lock the free records of a range."""
        locked = [
            Lock(first, stop, consumer, count + 1, due, is_hidden)
            for free_first, free_stop in list(self._available(start, end))
            for first, stop, count in self._counts.runs(free_first, free_stop)
        ]
        for lock in locked:
            self._locked_end = max(self._locked_end, lock.end)
            self.locks.add(lock)
            self._out.add(lock.first, lock.end)
            if self._again:
                for offset in range(lock.first, lock.end):
                    self._again.discard(offset)
        return locked

    def pass_hidden(self, start: int, end: int) -> None:
        """Acknowledge the free records of `[start, end)`, which a member cannot be shown."""
        self._pass_holes(list(self._available(start, end)))

    # Members: settling records.

    def holds(self, consumer: Consumer, acks: Sequence[AckRange]) -> bool:
        """Return True if the member may acknowledge these: it holds all records at or above
        the position.
        """
        position = self.cursor.position
        return all(
            end <= position or self.locks.are_of(consumer, max(start, position), end)
            for start, end, _ in acks
        )

    def are_ahead(self, acks: Sequence[AckRange]) -> bool:
        """Return True if these end beyond the records that members of the queue have had."""
        return self.cursor.position < self._locked_end < max((end for _, end, _ in acks), default=0)

    def acknowledge_ranges(self, consumer: Consumer, acks: Sequence[AckRange]) -> int:
        """Acknowledge, hand back or lock again records that the member holds (`holds`). Returns a
        ticket. Raises StorageFull, StorageFailed, LimitExceeded: the member then holds all of them.
        """
        locks, position = self.locks, self.cursor.position
        parts = [(max(start, position), end, how) for start, end, how in acks if end > position]
        # Hidden records go with the record behind them.
        parts = [(locks.with_hidden(start), end, how) for start, end, how in parts]
        stays = {AckType.RELEASE, AckType.RENEW}
        if self.share_limits.dead_letters is not None:
            stays.add(AckType.REJECT)
        done = [(start, end) for start, end, how in parts if how not in stays]
        ticket = self.cursor.ack(ack_sets.merged(done), lazy=False) if done else 0
        released: list[Lock] = []
        for start, end, how in parts:
            if how is AckType.RENEW:
                self._renew(start, end)
                continue
            ended = locks.take(start, end)
            if how is AckType.RELEASE:
                released += ended
            else:
                self._acknowledged(consumer, ended)
            if how is AckType.REJECT and how in stays:
                self._bury([(start, end)])
        self._hand_back(released, is_counted_by_pulsar=True)
        self.wake()
        return ticket

    def _renew(self, start: int, end: int) -> None:
        due = trio.current_time() + self.share_limits.lock_s
        for lock in self.locks.take(start, end):
            lock.due = due
            self.locks.add(lock)

    def _acknowledged(self, consumer: Consumer, locks: Sequence[Lock]) -> None:
        for lock in locks:
            self._counts.forget(lock.first, lock.end)
            self._forget_redeliveries(lock.first, lock.end)
            if not lock.is_hidden:
                consumer.messages_acked += lock.end - lock.first
                lock.holder.unacked -= lock.end - lock.first
            self._free_blocked(lock.first, lock.end)

    def _hand_back(self, locks: Sequence[Lock], *, is_counted_by_pulsar: bool) -> None:
        """Let records be given out again, or archive them at the limit of deliveries."""
        archived: list[tuple[int, int]] = []
        for lock in locks:
            if not lock.is_hidden:
                lock.holder.unacked -= lock.end - lock.first
                lock.holder.messages_redelivered += lock.end - lock.first
            self._out.remove(lock.first, lock.end)
            if lock.count >= self.share_limits.deliveries_max:
                archived.append((lock.first, lock.end))
            else:
                self._counts.came_back(lock.first, lock.end, lock.count)
                self._return(lock, is_counted_by_pulsar=is_counted_by_pulsar)
            self._free_blocked(lock.first, lock.end)
        self._archive(archived)

    def _return(self, lock: Lock, *, is_counted_by_pulsar: bool) -> None:
        offsets = range(lock.first, lock.end)
        if is_counted_by_pulsar:
            for offset in offsets:
                self._redeliveries[offset] = self._redeliveries.get(offset, 0) + 1
        if self._turns.sender_count:
            self._again.add(offsets, ANYBODY)

    def _end_locks(self) -> None:
        """Take back the records whose locks are over."""
        if self.locks.due_at <= trio.current_time():
            due = self.locks.take_due(trio.current_time())
            self._hand_back(due, is_counted_by_pulsar=True)

    # Turns.

    def await_records(self, consumer: PullingConsumer) -> None:
        """Let a member wait for a turn."""
        consumer.permits = 1
        self._turns.ready(consumer)
        self.wake()

    def end_turn(self, consumer: PullingConsumer) -> None:
        """End a member's turn, or its wait for a turn."""
        consumer.permits = 0
        if self._turn is consumer:
            self._turn = None
            self.wake()

    def _get_ready(self) -> bool:
        self._end_locks()
        is_ready = super()._get_ready()
        if self._turn is not None:
            return False
        if not is_ready or not self._is_shared:
            return is_ready
        return not self._offer_turn()

    def _offer_turn(self) -> bool:
        turns = self._turns
        ready, sender = turns.first(pulls=True), turns.first()
        is_senders = ready is None or (
            sender is not None and turns.turn_of(sender) < turns.turn_of(ready)
        )
        if is_senders or self.first_offered() is None:
            return False
        assert isinstance(ready, PullingConsumer)
        turns.had(ready)
        self._turn = ready
        ready.offered()
        return True

    @property
    def is_slowed(self) -> bool:
        """True if the topic's limits let nothing pass now."""
        return self._is_slowed()

    def count_delivered(self, messages: int, size: int) -> None:
        """Count records that members took, for the topic's limits."""
        self._count_delivered(messages, size)

    @property
    def _sends_now(self) -> bool:
        return self._turns.first() is not None

    def _can_read(self) -> bool:
        if not self._is_shared or self._sends_now:
            return super()._can_read()
        return self._reached() >= self.partition.high_watermark

    def _reached(self) -> int:
        return self._next_wanted(self.cursor.position)

    async def _fill(self) -> None:
        if not self._is_shared or self._sends_now:
            await super()._fill()
            return
        position = self._reached()
        if position >= self.partition.high_watermark:
            await self._pause(position)

    def _due_at(self) -> float:
        return min(super()._due_at(), self.locks.due_at)

    def _consumer_left(self, consumer: Consumer) -> None:
        super()._consumer_left(consumer)
        if self._turn is consumer:
            self._turn = None
        self._hand_back(self.locks.take_of(consumer), is_counted_by_pulsar=False)

    def rewind(self) -> None:
        """As LockingDispatcher."""
        self._turn = None
        self._locked_end = 0
        super().rewind()
