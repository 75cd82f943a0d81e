"""Delivery of one partition to the Pulsar consumers of one subscription: permits, turns, read-
ahead, redelivery.

A `Dispatcher` exists while consumers are attached. Each consumer's connection runs one task that
pulls: it waits for permits and for its turn, and takes what may go now in one step without a wait,
so that a cancelled task loses nothing. The consumer whose turn it is reads for all. Subclasses
decide what may go and what comes back. Knows no protocol command and no socket.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from broker.delivery import ack_sets
from broker.delivery import entries as ids
from broker.delivery.consumer import Consumer, SubscriptionKind
from broker.delivery.cursor import Cursor, CursorState
from broker.delivery.entries import Entry, EntryId, Span
from broker.errors import DamagedLog, OffsetOutOfRange, UnreadableRecord
from storage.codecs.api import BatchFlag

if TYPE_CHECKING:
    from broker.topics.partition import Partition

READ_AHEAD_BYTES = 512 * 1024  # One read of a dispatcher; small reads cost half the throughput.
# The same where entries are made of records of another format: more than these are not made at once
# (`entries.FOREIGN_RECORDS_MAX`), and what is left would be read again.
READ_AHEAD_BYTES_FOREIGN = 128 * 1024
# Entries a consumer takes before the next one has its turn, as in Apache Pulsar.
TURN_ENTRIES_SHARED = 20
TURN_ENTRIES = 200  # The same where no other consumer waits: one send for all of them.
CHUNK = int(BatchFlag.CHUNK)  # Operators of a flag class cost more than an entry may.
# A turn ends with the entry that reaches this: the connection's buffer holds 1 MiB.
TURN_BYTES = 256 * 1024

log = structlog.get_logger()


class Dispatcher(abc.ABC):
    """What every kind shares: turns, reading ahead, acknowledging, resets."""

    kind: SubscriptionKind

    def __init__(self, partition: Partition, name: bytes, cursor: Cursor) -> None:
        """`name` is the subscription's."""
        self.partition = partition
        self.name = name
        self.cursor = cursor
        self.consumers: list[Consumer] = []
        self.resetting: trio.Event | None = None  # A seek is under way: newcomers wait for it.
        self._turns: deque[Consumer] = deque()  # The first one may take; the others wait behind it.
        self._ahead: deque[Entry] = deque()
        self._read_position = cursor.position
        self._read_bytes = READ_AHEAD_BYTES
        self._generation = 0  # Grows when what is being read is no longer wanted.
        self._wait: trio.CancelScope | None = None  # Around the wait for new records.
        self._acking = False  # A move of the cursor is our own.
        self._stopped_at = -1  # Where the log could not be read, and the operator was told.

    # Consumers come and go.

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer. Raises SubscriptionBusy."""
        self.check_room()
        if not self.consumers:
            self.rewind()
        self.consumers.append(consumer)
        consumer.is_attached = True

    def detach(self, consumer: Consumer) -> None:
        """Take a consumer off; what it did not acknowledge goes to the others.

        Its task gets nothing from now on, and is to be cancelled.
        """
        self.consumers.remove(consumer)
        consumer.is_attached = False
        self._give_back(consumer)

    def check_room(self) -> None:  # noqa: B027 (most kinds take any number)
        """Raises SubscriptionBusy if the kind takes no further consumer."""

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Let a consumer take `permits` more messages."""
        consumer.permits += permits
        consumer.wake()

    def close_consumers(self) -> None:
        """Let every consumer go, and tell each one's connection."""
        for consumer in list(self.consumers):
            self.detach(consumer)
            consumer.let_go()

    # Delivery.

    async def pull(self, consumer: Consumer) -> list[Entry]:
        """What this consumer is to be sent next: at least one entry.

        Where the log goes on with what is damaged, or with a record that Pulsar cannot be given,
        it waits there: until the cursor is moved past it, or for ever. The consumer stays, so that
        what it was sent before can be acknowledged and sent again.
        """
        while True:
            while not (consumer.can_take and self._may_send()):
                await consumer.changed()
            if consumer.own:
                taken = await self._take_own(consumer)
            else:
                taken = await self._take_turn(consumer)
            if taken:
                return taken

    async def _take_turn(self, consumer: Consumer) -> list[Entry]:
        self._turns.append(consumer)
        try:
            while consumer.can_take and self._may_send() and not consumer.own:
                if self._turns[0] is not consumer:
                    await consumer.changed()
                elif taken := self._take(consumer):
                    return taken
                else:
                    await self._fill()
            return []
        finally:
            self._turns.remove(consumer)
            if self._turns:
                self._turns[0].wake()

    async def _take_own(self, consumer: Consumer) -> list[Entry]:
        raise AssertionError(f"{self.kind} gives no entry to one consumer alone")

    def _take(self, consumer: Consumer) -> list[Entry]:
        """Take what may go to this consumer now out of what was read. No wait: what is taken gets
        sent.
        """
        turn_entries = TURN_ENTRIES_SHARED if len(self.consumers) > 1 else TURN_ENTRIES
        taken: list[Entry] = []
        size = wanted = 0
        room = self._room(consumer)
        ahead = self._ahead
        state = self.cursor.state()
        position, has_holes = state.position, bool(state.acked)
        while ahead and wanted < room and len(taken) < turn_entries and size < TURN_BYTES:
            entry = ahead.popleft()  # hot: see make bench
            if has_holes or entry.offset < position:
                if state.covers(entry.offset, entry.end):
                    self._passed(entry)
                    continue
                tell_acked(entry, state)
            if entry.flags & CHUNK and not self._is_for(consumer, entry):
                continue
            taken.append(entry)
            size += len(entry.body)
            wanted += entry.wanted if entry.ack_set else entry.record_count
        self._hand_out(consumer, taken, wanted, size)
        return taken

    def _hand_out(self, consumer: Consumer, taken: list[Entry], wanted: int, size: int) -> None:
        """Account for entries that go to this consumer, of which so many messages are wanted."""
        consumer.permits -= wanted
        consumer.messages_out += wanted
        consumer.bytes_out += size
        self._sent(consumer, taken)

    async def _fill(self) -> None:
        """Read ahead, or wait for records; returns early when something else may have changed."""
        generation = self._generation
        position = max(self._read_position, self.cursor.position)
        if position >= self.partition.high_watermark:
            await self._interruptible(self._arrival(position))
            return
        try:
            read = await ids.read_entries(self.partition, position, self._read_bytes)
        except OffsetOutOfRange:
            self._below_start()
            return
        except (DamagedLog, UnreadableRecord) as error:
            if generation == self._generation:
                await self._stop_at(position, error)
            return
        if generation == self._generation:
            self._ahead.extend(read.entries)
            self._read_position = read.next_offset
            self._read_bytes = READ_AHEAD_BYTES_FOREIGN if read.is_foreign else READ_AHEAD_BYTES

    async def _stop_at(self, position: int, error: DamagedLog | UnreadableRecord) -> None:
        """Nothing can be read there, and nothing is passed over in silence: wait until there is
        something else to deliver.
        """
        if position != self._stopped_at:  # Once: each redelivery comes back to the same place.
            self._stopped_at = position
            log.error(
                "delivery_stopped",
                topic=self.partition.topic.name.full,
                partition=self.partition.index,
                subscription=self.name.decode(errors="backslashreplace"),
                offset=position,
                reason=str(error),
            )
        await self._interruptible(trio.sleep_forever())

    def _below_start(self) -> None:
        """Retention has passed the cursor: what is gone counts as acknowledged."""
        start = self.partition.log_start_offset
        self._own_move(partial(self.cursor.ack_to, start, lazy=True))
        self._read_position = max(self._read_position, start)

    async def _arrival(self, position: int) -> None:
        await self.partition.wait_for(position)
        if self.partition.high_watermark <= position:  # Removed, or the broker stops: that was all.
            await trio.sleep_forever()

    async def _interruptible(self, waiting: Awaitable[None]) -> None:
        with trio.CancelScope() as scope:
            self._wait = scope
            try:
                await waiting
            finally:
                self._wait = None

    def _interrupt(self) -> None:
        """Something to deliver that does not come from the end of the log."""
        if self._wait is not None:
            self._wait.cancel()

    def rewind(self) -> None:
        """Start again at the first entry that is not acknowledged."""
        self._generation += 1
        self._ahead.clear()
        self._read_position = self.cursor.position
        self._interrupt()

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
                span = await ids.resolve_individual(self.partition, message_id)
            if span is not None:
                spans.append(span)
                ranges += ack_sets.acked_ranges(span, message_id.ack_set)
        if not ranges:
            return 0
        try:
            return self._own_move(partial(self.cursor.ack, _merged(ranges), lazy=lazy))
        finally:  # Some may be taken and others refused for want of room.
            state = self.cursor.state()
            if all(state.covers(start, end) for start, end in whole):
                self._acked_whole(consumer, entries)
            else:
                found = (self._delivered_span(self._id(entry)) for entry in entries)
                spans += [span for span in found if span is not None]
            for span in spans:
                self._acked(consumer, span, _left(span, state))

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
            self._moved_ahead()
            self._interrupt()  # A wait at what cannot be read may have something to go on with.

    def _own_move(self, move: Callable[[], int]) -> int:
        """Move the cursor without hearing of it as another protocol's doing."""
        self._acking = True
        try:
            return move()
        finally:
            self._acking = False

    # What the kinds decide.

    @abc.abstractmethod
    def redeliver(self, consumer: Consumer, message_ids: Sequence[EntryId]) -> None:
        """Send again what this consumer has and did not acknowledge: these entries, or all if none
        are named.
        """

    @abc.abstractmethod
    def _give_back(self, consumer: Consumer) -> None:
        """A consumer leaves."""

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

    def _may_send(self) -> bool:
        """Whether the subscription as a whole is below its limits."""
        return True

    def _room(self, consumer: Consumer) -> int:
        """After how many messages a consumer that can take some takes no more."""
        return consumer.permits

    def _is_for(self, consumer: Consumer, entry: Entry) -> bool:
        """Whether this consumer may have the entry, which is a piece of a chunked message."""
        return True

    def _passed(self, entry: Entry) -> None:  # noqa: B027 (most kinds keep nothing to forget)
        """An entry was read that is acknowledged already."""


def tell_acked(entry: Entry, state: CursorState) -> None:
    """Let the entry say which of its messages are acknowledged."""
    if entry.record_count > 1 and (acked := state.told(entry.offset, entry.end)):
        entry.ack_set = ack_sets.ack_set_of(entry, acked)


def _left(span: Span, state: CursorState) -> int:
    """How many messages of the entry are still wanted."""
    if state.covers(span.offset, span.end):
        return 0
    return span.record_count - sum(end - start for start, end in state.told(span.offset, span.end))


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges, sorted and joined where they touch: one change of the cursor instead of a
    thousand.
    """
    ranges.sort()
    merged = [ranges[0]]
    for start, end in ranges:
        last_start, last_end = merged[-1]
        if start <= last_end:
            merged[-1] = (last_start, max(last_end, end))
        else:
            merged.append((start, end))
    return merged
