"""Delivery of one partition to the consumers of one subscription: permits, read-ahead,
acknowledging, resets.

A `Dispatcher` exists while consumers are attached, and has one task, the pump (`run`): it reads
ahead for all consumers, skips what is acknowledged, and hands entries to consumers. Subclasses
decide which consumer gets an entry and what comes back. Knows no protocol command and no socket.
"""

from __future__ import annotations

import abc
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from broker.delivery import ack_sets
from broker.delivery import entries as ids
from broker.delivery.consumer import CONSUMERS_MAX, Consumer, SubscriptionKind
from broker.delivery.cursor import DispatchCursor
from broker.delivery.entries import Entry, EntryId, Span
from broker.delivery.holes import HOLES_MAX, holes_of
from broker.delivery.surroundings import Surroundings
from broker.errors import BrokerError, OffsetOutOfRange, SubscriptionBusy
from storage.codecs.api import BatchFlag

if TYPE_CHECKING:
    from broker.topics.partition import Partition

log = structlog.get_logger()

READ_AHEAD_BYTES = 512 * 1024  # One read of a dispatcher; small reads cost half the throughput.
# The same where entries are made of records of another format: more than these are not made at once
# (`entries.FOREIGN_RECORDS_MAX`), and what is left would be read again.
READ_AHEAD_BYTES_FOREIGN = 128 * 1024
# Entries a consumer takes before the next one has its turn, as in Apache Pulsar.
TURN_ENTRIES_SHARED = 20
TURN_ENTRIES = 200  # The same where no other consumer waits: one send for all of them.
CHUNK = int(BatchFlag.CHUNK)  # Operators of a flag class cost more than an entry may.
DELAYED = int(BatchFlag.DELAYED)
# A turn ends with the entry that reaches this: the connection's buffer holds 1 MiB.
TURN_BYTES = 256 * 1024


class Dispatcher(abc.ABC):
    """What every kind shares: the pump, acknowledging, resets.

    Guarantees: nothing at or above the high watermark is delivered, and what is acknowledged is not
    delivered again. The pump waits for records, permits or room; acknowledging and resets wait only
    for reads from the log.
    """

    kind: SubscriptionKind
    _special = 0  # Flags of entries that `_offer` decides about.

    def __init__(
        self,
        partition: Partition,
        name: bytes,
        cursor: DispatchCursor,
        surroundings: Surroundings | None = None,
    ) -> None:
        """`name` is the subscription's."""
        surroundings = surroundings or Surroundings()
        self.partition = partition
        self.name = name
        self.cursor = cursor
        self.consumers: list[Consumer] = []
        self.resetting: trio.Event | None = None  # A seek is under way: newcomers wait for it.
        self.stopped_at: int | None = None  # Where the log cannot be read, or not for Pulsar.
        self._budget = surroundings.budget
        self._now_us = surroundings.now_us
        self._ahead: deque[Entry] = deque()
        self._ahead_bytes = 0  # Of the pages that they are in.
        self._read_position = cursor.position
        self._read_bytes = READ_AHEAD_BYTES
        self._generation = 0  # Grows when what is being read is no longer wanted.
        self._is_woken = False
        self._parked = trio.lowlevel.ParkingLot()  # Where the pump waits for `wake` alone.
        self._pausing: trio.CancelScope | None = None  # Around its other waits.
        self._acking = False  # A move of the cursor is our own.
        self._reported_at = -1  # A place of `stopped_at` that the operator was told of.

    # Consumers come and go.

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer. Raises SubscriptionBusy, InvalidRequest."""
        self.check_room(consumer)
        if len(self.consumers) >= CONSUMERS_MAX:
            raise SubscriptionBusy("Subscription reached max consumers limit")  # Apache's words.
        if not self.consumers:
            self.rewind()
        self.consumers.append(consumer)
        consumer.is_attached = True
        self._joined(consumer)
        self.wake()

    def detach(self, consumer: Consumer) -> None:
        """Take a consumer off, which gets nothing from now on; what it did not acknowledge goes to
        the others.
        """
        self.consumers.remove(consumer)
        consumer.is_attached = False
        self._left(consumer)
        self.wake()

    def check_room(self, consumer: Consumer) -> None:  # noqa: B027 (most kinds take any number)
        """Whether the kind takes this consumer besides those that it has.

        Raises SubscriptionBusy, InvalidRequest.
        """

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Let a consumer take `permits` more messages."""
        consumer.permits += permits
        self.wake()

    def close_consumers(self) -> None:
        """Detach every consumer and tell its connection."""
        for consumer in list(self.consumers):
            self.detach(consumer)
            consumer.disconnect()

    # The pump.

    async def run(self) -> None:
        """Read ahead and give out, until cancelled or the partition is gone."""
        has_worked = False  # Since its last wait. A turn of the loop costs more than an entry.
        while not self.partition.removed:
            can_give = self._can_give()
            if can_give and has_worked:
                await trio.lowlevel.checkpoint()
                can_give = self._can_give()
            if self.partition.is_terminated:
                self._tell_end()
            has_worked = can_give and self._give()
            if not has_worked and can_give and self._can_read():
                await self._fill()  # What it read goes out without another turn of the loop.
                has_worked = True
                if self._can_give():
                    self._give()
            elif not has_worked:
                await self._pause()
            self._hold()

    def _tell_end(self) -> None:
        """Tell consumers once that everything of a terminated topic is acknowledged."""
        if self.cursor.position >= self.partition.next_offset:
            for consumer in self.consumers:
                if not consumer.knows_end:
                    consumer.knows_end = True
                    consumer.reached_end()

    def wake(self) -> None:
        """Make the pump look again: there are new permits, acknowledgements or room."""
        self._is_woken = True
        if self._parked:
            self._parked.unpark_all()
        elif self._pausing is not None:
            self._pausing.cancel()

    def drop_ahead(self) -> None:
        """Forget what is read ahead, to be read again when somebody can take it."""
        if self._ahead:
            self._read_position = self._ahead[0].offset
            self._ahead.clear()

    def close(self) -> None:
        """Nobody needs it any more: what it holds goes back to the budget."""
        self._ahead.clear()
        self._hold()

    def rewind(self) -> None:
        """Start again at the first entry that is not acknowledged."""
        self._generation += 1
        self._ahead.clear()
        self._hold()
        self._read_position = self.cursor.position
        self.stopped_at = None
        self.wake()

    def _take(self, consumer: Consumer, room: int, entries_max: int) -> bool:
        """Send a consumer what comes next of what was read, about `room` messages. False if that
        is nothing. No wait: what is taken gets sent.
        """
        ahead = self._ahead
        if not ahead:
            return False
        taken: list[Entry] = []
        size = wanted = 0
        state = self.cursor.state()
        position, has_holes = state.position, bool(state.acked)
        special = self._special
        while ahead and wanted < room and len(taken) < entries_max and size < TURN_BYTES:
            entry = ahead.popleft()  # hot: see make bench
            if has_holes or entry.offset < position:
                if state.covers(entry.offset, entry.end):
                    self._passed(entry.offset)
                    continue
                ack_sets.tell_acked(entry, state)
            if entry.flags & special and not self._offer(consumer, entry):
                continue
            taken.append(entry)
            size += len(entry.body)
            wanted += entry.wanted if entry.ack_set else entry.record_count
        if taken:
            self._hand_out(consumer, taken, wanted, size)
        return bool(taken)

    def _hand_out(self, consumer: Consumer, taken: list[Entry], wanted: int, size: int) -> None:
        """Send entries to this consumer; `wanted` of their messages are not acknowledged."""
        consumer.permits -= wanted
        consumer.messages_out += wanted
        consumer.bytes_out += size
        self._sent(consumer, taken)
        consumer.send(taken, size)

    def _can_read(self) -> bool:
        """Whether more may be read ahead."""
        return self.stopped_at is None and not self._ahead

    async def _fill(self) -> None:
        """Read ahead, after waiting for records if need be; may return without."""
        position = self._next_wanted(max(self._read_position, self.cursor.position))
        if position >= self.partition.high_watermark:
            await self._pause(position)
            position = self._next_wanted(max(self._read_position, self.cursor.position))
            if position >= self.partition.high_watermark or not self._can_give():
                return
        read = await self._read(position, self._read_bytes)
        if read is not None:
            has_few = read.has_holes and len(self.cursor.state().acked) < HOLES_MAX
            if has_few and (holes := holes_of(read, position)):
                self._pass_holes(holes)
            self._ahead.extend(read.entries)
            self._ahead_bytes = read.size
            self._read_position = read.next_offset
            self._read_bytes = READ_AHEAD_BYTES_FOREIGN if read.is_foreign else READ_AHEAD_BYTES

    @property
    def _reads_compacted(self) -> bool:  # Whether reads come out of the compacted view.
        return False

    def _pass_holes(self, holes: list[tuple[int, int]]) -> None:
        with suppress(BrokerError):  # There is no room to remember them: the position stays.
            self._own_move(partial(self.cursor.ack, holes, lazy=True))

    def _next_wanted(self, position: int) -> int:
        """The first offset from there on that is not acknowledged: what is, is not even read."""
        acked = self.cursor.state().acked
        return acked.next_gap(position) if acked else position

    async def _read(self, position: int, bytes_max: int) -> ids.EntryRead | None:
        """Entries from there on; None if they are no longer wanted, or none can be had."""
        generation = self._generation
        bytes_max = self._budget.may_read(bytes_max, trio.current_time())
        try:
            read = await ids.read_entries(
                self.partition, position, bytes_max, compacted=self._reads_compacted
            )
        except BrokerError as error:
            if generation == self._generation and not self.partition.removed:
                if isinstance(error, OffsetOutOfRange):
                    self._below_start()
                else:
                    self._stop_at(position, error)
            return None
        return read if generation == self._generation else None

    def _stop_at(self, position: int, error: BrokerError) -> None:
        """The log goes on with what cannot be had: everything before it was given out, nothing
        behind it is. Consumers stay, since a new one would get no further: an operator has to act.
        """
        self.stopped_at = position
        if position != self._reported_at:  # Once: each redelivery comes back to the same place.
            self._reported_at = position
            self._report(position, error)

    def _report(self, position: int, error: BrokerError) -> None:
        """Tell the operator of a place that cannot be delivered."""
        log.error(
            "delivery_stopped",
            topic=self.partition.topic.name.full,
            partition=self.partition.index,
            subscription=self.name.decode(errors="backslashreplace"),
            offset=position,
            reason=str(error),
        )

    def _hold(self) -> None:
        """Tell the budget what is held now: pages stay for their last entry."""
        size = self._ahead_bytes if self._ahead else 0
        self._budget.hold(self, size, trio.current_time())

    def _below_start(self) -> None:
        """Retention has passed the cursor: what is gone counts as acknowledged."""
        start = self.partition.log_start_offset
        self._own_move(partial(self.cursor.ack_to, start, lazy=True))
        self._read_position = max(self._read_position, start)

    async def _pause(self, position: int | None = None) -> None:
        """Wait for `wake`, for what falls due, or for records at `position`; one turn at least."""
        if self._is_woken:
            await trio.lowlevel.checkpoint()
        elif position is None and self._due_at() == math.inf:  # Much the most often, and quicker.
            await self._parked.park()
        else:
            await self._await(position, self._due_at())
        self._is_woken = False

    async def _await(self, position: int | None, until: float) -> None:
        with trio.CancelScope(deadline=until) as scope:
            self._pausing = scope
            try:
                if position is not None:
                    await self.partition.wait_for(position)
                # Else, and if it was removed or the broker stops, nothing more comes by itself.
                if position is None or self.partition.high_watermark <= position:
                    await trio.sleep_forever()
            finally:
                self._pausing = None

    # Acknowledging.

    async def acknowledge(
        self,
        consumer: Consumer,
        message_ids: Sequence[EntryId],
        *,
        lazy: bool,
        entries: Sequence[int] = (),
    ) -> int:
        """Acknowledge single entries, or messages of them; ids that name none are passed over.
        Returns a ticket.

        `entries`, whole ones of this partition by their ids, are the fast way for the many that a
        client acknowledges together.
        """
        whole, unknown = self._delivered_ranges(consumer, entries)
        if unknown:
            entries = [entry for entry in entries if entry not in unknown]
            message_ids = [*map(self._id, unknown), *message_ids]
        ranges = list(whole)
        spans: list[Span] = []
        for message_id in message_ids:
            span = self._delivered_span(message_id)
            if span is None:
                await trio.lowlevel.checkpoint()  # A client may name any number of them.
                span = await ids.resolve_individual(self.partition, message_id)
            if span is not None:
                spans.append(span)
                ranges += ack_sets.acked_ranges(span, message_id.ack_set)
        if not ranges:
            return 0
        try:
            return self._own_move(partial(self.cursor.ack, ack_sets.merged(ranges), lazy=lazy))
        finally:  # Some may be taken and others refused for want of room.
            state = self.cursor.state()
            if all(state.covers(start, end) for start, end in whole):
                self._acked_whole(consumer, entries)
            else:
                found = (self._delivered_span(self._id(entry)) for entry in entries)
                spans += [span for span in found if span is not None]
            for span in spans:
                self._acked(consumer, span, state.unacked(span.offset, span.end))

    def _delivered_ranges(
        self, consumer: Consumer, entries: Sequence[int]
    ) -> tuple[list[tuple[int, int]], set[int]]:
        """Offset ranges of those entries that are remembered from their delivery; the others."""
        ranges: list[tuple[int, int]] = []
        unknown: set[int] = set()
        count_of = self._delivered_counts(consumer)
        start = end = -1
        for entry in entries:  # hot: see make bench
            count = count_of(entry)
            if count is None:
                unknown.add(entry)
            elif entry == end:
                end += count
            else:
                if start >= 0:
                    ranges.append((start, end))
                start, end = entry, entry + count
        if start >= 0:
            ranges.append((start, end))
        return ranges, unknown

    def _id(self, entry: int) -> EntryId:
        return EntryId(self.partition.partition_id, entry)

    @abc.abstractmethod
    async def acknowledge_to(self, consumer: Consumer, message_id: EntryId, *, lazy: bool) -> int:
        """Acknowledge everything up to an entry, that one included. Returns a ticket."""

    async def reset(self, position: Callable[[], Awaitable[int]]) -> int:
        """Seek: let every consumer go, forget what they acknowledged, go on at `position`. Returns
        a ticket.
        """
        self.resetting = trio.Event()
        try:
            self.close_consumers()
            ticket = self._own_move(partial(self.cursor.seek, await position()))
            self.rewind()
            return ticket
        finally:
            self.resetting.set()
            self.resetting = None

    def foreign_move(self, *, is_seek: bool) -> None:
        """Another protocol moved this cursor: forward counts as acknowledged, backward closes the
        consumers.
        """
        if self._acking:
            return
        if is_seek:
            self.close_consumers()
            self.rewind()
        else:
            if self.stopped_at is not None and self.stopped_at < self.cursor.position:
                self.stopped_at = None
            self._moved_ahead()
            self.wake()

    def _own_move(self, move: Callable[[], int]) -> int:
        """Move the cursor without hearing of it as another protocol's doing."""
        self._acking = True
        try:
            return move()
        finally:
            self._acking = False
            if self.partition.is_terminated:
                self.wake()

    # What the kinds decide.

    @abc.abstractmethod
    def redeliver(self, consumer: Consumer, message_ids: Sequence[EntryId]) -> None:
        """Send again what this consumer has and did not acknowledge: these entries, or all if none
        are named.
        """

    @abc.abstractmethod
    def _left(self, consumer: Consumer) -> None:
        """A consumer was detached: what it holds comes back."""

    @abc.abstractmethod
    def _sent(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        """These go to a consumer now: remember them, and set their redelivery counts."""

    @abc.abstractmethod
    def _delivered_span(self, message_id: EntryId) -> Span | None:
        """The entry of that id if it is remembered from its delivery."""

    @abc.abstractmethod
    def _delivered_counts(self, consumer: Consumer) -> Callable[[int], int | None]:
        """What tells the record count of an entry of that id, None where it is not remembered from
        its delivery; to be used before anything else happens.
        """

    @abc.abstractmethod
    def _acked_whole(self, consumer: Consumer, entries: Sequence[int]) -> None:
        """Entries of these ids, remembered from their delivery, were acknowledged by a consumer."""

    @abc.abstractmethod
    def _acked(self, consumer: Consumer, span: Span, left: int) -> None:
        """An entry was acknowledged by a consumer but for `left` messages of it."""

    @abc.abstractmethod
    def _moved_ahead(self) -> None:
        """The cursor was moved forward from outside."""

    @abc.abstractmethod
    def _can_give(self) -> bool:
        """Whether any consumer can take anything now."""

    @abc.abstractmethod
    def _give(self) -> bool:
        """Hand out one turn's worth of what is there; False if there was nothing to be done."""

    def _joined(self, consumer: Consumer) -> None:  # noqa: B027 (most kinds need not know)
        """A consumer was attached."""

    def _due_at(self) -> float:
        """When the pump has to look again by itself, in trio's seconds."""
        return math.inf

    def _offer(self, consumer: Consumer, entry: Entry) -> bool:
        """Offer an entry with any of the flags `_special`; False if it has to wait or another
        consumer gets it.
        """
        return True

    def _passed(self, offset: int) -> None:  # noqa: B027 (most kinds keep nothing to forget)
        """An entry was read that is acknowledged already."""
