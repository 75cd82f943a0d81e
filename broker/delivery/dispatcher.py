"""Delivery of a partition to the consumers of a subscription: permits, acknowledging, resets.

A `Dispatcher` exists while consumers are attached. The pump (`pump.py`) reads ahead for all of
them, skips acknowledged entries, and sends entries to consumers. Subclasses choose the consumer of
an entry and the entries that come back. Knows no protocol command and no socket.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from math import ceil

import trio

from braidlog.broker.delivery.consumer import Consumer, SubscriptionKind
from braidlog.broker.delivery.dispatch_context import DispatchSource
from braidlog.broker.delivery.dispatch_rates import RateLimit
from braidlog.broker.delivery.pump import Pump
from braidlog.broker.errors import SubscriptionBusy
from braidlog.broker.positions.cursor_moves import CursorEvent
from braidlog.broker.reading import ack_sets
from braidlog.broker.reading import entries as ids
from braidlog.broker.reading.entries import Entry, EntryId, EntrySpan
from braidlog.broker.topics.client_limits import ClientLimits
from braidlog.storage.formats.api import BatchFlag

CHUNK = int(BatchFlag.CHUNK)  # Ints: operators of a flag class are too slow for each entry.
DELAYED = int(BatchFlag.DELAYED)


class Dispatcher(Pump):
    """The shared part of all kinds: sending, acknowledging, resets.

    Guarantees: nothing at or above the high watermark is delivered, and acknowledged entries are
    not delivered again. Acknowledging and resets wait only for reads from the log.
    """

    kind: SubscriptionKind
    redelivers = True
    is_blocked = False  # At the subscription's limit of unacknowledged messages.
    _special = 0  # Flags of entries that `_offer` decides about.
    _holds_delayed = False  # Entries wait for their delivery times.

    def __init__(self, source: DispatchSource) -> None:
        super().__init__(source)
        self.consumers: list[Consumer] = []
        # Ends with the seek that is under way: new consumers wait until then.
        self.resetting: trio.Event | None = None
        self._seeks = 0  # Number of seeks, including any that we may have missed.
        self._client_limits = ClientLimits()  # The limits that were applied last.
        self._rates: Sequence[RateLimit] = ()

    @property
    def seeks(self) -> int:
        """Number of seeks so far."""
        return self._seeks

    # Limits of the topic's settings.

    def _follow_settings(self) -> None:
        """Apply the limits of the topic's settings, if they changed."""
        limits = self.cursor.subscription.topic.client_limits
        if limits is self._client_limits:
            return
        before, self._client_limits, base = self._client_limits, limits, self._context.limits
        self._limits = replace(
            base,
            unacked_max_consumer=limits.unacked_consumer or base.unacked_max_consumer,
            unacked_max_subscription=limits.unacked_subscription or base.unacked_max_subscription,
        )
        number, traffic = self.partition.partition_id, self.partition.traffic
        of_partition = self._context.rates.of(number, limits.dispatch, traffic)
        rates = [] if of_partition is None else [of_partition]
        if (own := limits.dispatch_to(self.name)) is not None:
            rates.append(RateLimit(own, trio.current_time, traffic))
        self._rates = rates
        for consumer in self.consumers:
            self._unblock(consumer)
        if self._holds_delayed and before.delivery_times != limits.delivery_times:
            self._start_again()

    def _start_again(self) -> None:
        """Disconnect every consumer and begin at the first unacknowledged entry, to look at the
        delivery times again.
        """
        if closed := tuple(self.consumers):
            self.close_consumers()
            self.rewind()
            self._attach_again(closed)

    def _is_slowed(self) -> bool:
        """Return True if delivery has to wait for a rate; the pump goes on by itself."""
        self._follow_settings()
        wait_s = max((rate.wait_s() for rate in self._rates), default=0.0)
        self._slowed_until = trio.current_time() + wait_s if wait_s > 0 else math.inf
        return wait_s > 0

    def _rate_room(self) -> tuple[float, float]:
        """Return the messages and bytes that the rates let pass now."""
        rooms = [rate.room() for rate in self._rates]
        if not rooms:
            return math.inf, math.inf
        return min(room[0] for room in rooms), min(room[1] for room in rooms)

    def _count_delivered(self, messages: int, size: int) -> None:
        """Count delivered messages for the rates."""
        for rate in self._rates:
            rate.spend(messages, size)

    @property
    def reads_header(self) -> bool:
        return self._holds_delayed and self._client_limits.delivery_times[1]

    @property
    def backlog(self) -> int:
        return max(0, self.partition.high_watermark - self.cursor.position)

    @property
    def delayed(self) -> int:
        """Number of messages held until their time."""
        return 0

    # Attaching and detaching consumers.

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer. Raises SubscriptionBusy, InvalidRequest."""
        self.check_room(consumer)
        limits = self.cursor.subscription.topic.client_limits
        if len(self.consumers) >= (limits.subscription_consumers or self._limits.consumers_max):
            raise SubscriptionBusy("Subscription reached max consumers limit")  # Apache's words.
        if not self.consumers:
            self.rewind()
            self._follow_settings()
        self.consumers.append(consumer)
        consumer.is_attached = True
        self._consumer_joined(consumer)
        self.wake()

    def detach(self, consumer: Consumer) -> None:
        """Remove a consumer: sends end, and other consumers get the unacknowledged entries."""
        self.consumers.remove(consumer)
        consumer.is_attached = False
        self._consumer_left(consumer)
        self.wake()

    def leave(self, consumer: Consumer) -> None:
        """As `Delivery.leave`; the registry forgets a dispatcher that then has no consumers."""
        if consumer.is_attached and self.partition.removed:
            self.consumers.remove(consumer)  # Another broker may have the position now.
            consumer.is_attached = False
            consumer.pending.clear()
        elif consumer.is_attached:
            self.detach(consumer)
        self._context.release(self)

    def check_room(self, consumer: Consumer) -> None:
        """Check that this kind of subscription takes another consumer.

        Raises SubscriptionBusy, InvalidRequest.
        """

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Let a consumer take `permits` more messages."""
        consumer.flowed(permits, self._now_us())
        self.wake()

    def take_consumers(self) -> list[Consumer]:
        """Return the consumers, and forget them."""
        consumers, self.consumers = self.consumers, []
        return consumers

    def close_consumers(self) -> None:
        """Detach every consumer and notify its connection."""
        for consumer in list(self.consumers):
            self.detach(consumer)
            consumer.disconnect()

    def close(self) -> None:
        """Close the pump. Acknowledgements under way no longer count.

        A closed dispatcher misses seeks, so late acknowledgements could move the position forward
        over a seek.
        """
        self._seeks += 1
        super().close()

    # Sending.

    def _tell_end(self) -> None:
        """Notify consumers, at most once, that everything of a terminated topic is acknowledged."""
        if self.cursor.position >= self.partition.next_offset:
            for consumer in self.consumers:
                if not consumer.knows_end:
                    consumer.knows_end = True
                    consumer.reached_end()

    def _take(self, consumer: Consumer, room: int, entries_max: int) -> bool:
        """Send a consumer the next read entries, about `room` messages; False if there are none.

        Does not wait, so every taken entry is sent.
        """
        ahead = self._ahead
        if not ahead:
            return False
        handed_out: list[Entry] = []
        size = wanted = 0
        state = self.cursor.state()
        acked_end = state.acked_end
        special, bytes_max = self._special, self._limits.turn_bytes
        if self._rates:
            messages, left = self._rate_room()
            room, bytes_max = ceil(min(room, messages)), ceil(min(bytes_max, left))
        while ahead and wanted < room and len(handed_out) < entries_max and size < bytes_max:
            entry = ahead.popleft()  # hot: see make bench
            if entry.offset < acked_end:
                if state.covers(entry.offset, entry.end):
                    self._passed(entry.offset)
                    continue
                ack_sets.tell_acked(entry, state)
            if entry.flags & special and not self._offer(consumer, entry):
                continue
            handed_out.append(entry)
            size += len(entry.body)
            wanted += entry.wanted if entry.ack_set else entry.record_count
        if handed_out:
            self._hand_out(consumer, handed_out, wanted, size)
        return bool(handed_out)

    def _hand_out(self, consumer: Consumer, entries: list[Entry], wanted: int, size: int) -> None:
        """Send entries to this consumer; `wanted` of their messages are not acknowledged."""
        consumer.permits -= wanted
        consumer.messages_out += wanted
        consumer.bytes_out += size
        self._count_delivered(wanted, size)
        self._sent(consumer, entries)
        consumer.handed(len(entries), self._now_us())
        consumer.send(entries, size)

    # Acknowledging.

    async def acknowledge(
        self,
        consumer: Consumer,
        message_ids: Sequence[EntryId],
        *,
        lazy: bool,
        entries: Sequence[int] = (),
    ) -> int:
        """Acknowledge single entries, or messages of them; ids that name no entry are ignored.
        Returns a ticket.

        `entries` are ids of whole entries of this partition: the fast path for many entries that a
        client acknowledges together.
        """
        whole, unknown = self._delivered_ranges(consumer, entries)
        if unknown:
            entries = [entry for entry in entries if entry not in unknown]
            message_ids = [*map(self._id, unknown), *message_ids]
        ranges = list(whole)
        spans: list[EntrySpan] = []
        seeks = self._seeks
        for message_id in message_ids:
            span = self._delivered_span(message_id)
            if span is None:
                await trio.lowlevel.checkpoint()  # A client may name any number of ids.
                span = await ids.resolve_individual(self.partition, message_id)
            if span is not None:
                spans.append(span)
                ranges += ack_sets.acked_ranges(span, message_id.ack_set)
        if seeks != self._seeks:  # A seek also forgets acknowledgements under way.
            return 0
        return self._acknowledge(consumer, ranges, entries, whole, spans, lazy=lazy)

    def acknowledge_at_once(
        self, consumer: Consumer, entries: Sequence[int], *, lazy: bool
    ) -> int | None:
        """As `Delivery.acknowledge_at_once`: waits for entries whose delivery is not remembered."""
        whole, unknown = self._delivered_ranges(consumer, entries)
        if unknown:
            return None
        return self._acknowledge(consumer, whole, entries, whole, [], lazy=lazy)

    def _acknowledge(
        self,
        consumer: Consumer,
        ranges: list[tuple[int, int]],
        entries: Sequence[int],
        whole: list[tuple[int, int]],
        spans: list[EntrySpan],
        *,
        lazy: bool,
    ) -> int:
        """Acknowledge ranges of offsets: those of whole `entries`, and those of `spans`."""
        if not ranges:
            return 0
        consumer.times.acked_us = self._now_us()
        try:
            return self.cursor.ack(ack_sets.merged(ranges), lazy=lazy)
        finally:  # Some ranges may be accepted and others refused for lack of room.
            acked = self.cursor.remove_acked()
            state = self.cursor.state()
            if all(state.covers(start, end) for start, end in whole):
                self._acked_whole(consumer, entries)
            else:
                delivered = (self._delivered_span(self._id(entry)) for entry in entries)
                spans += [span for span in delivered if span is not None]
            for span in spans:
                self._acked(consumer, span, state.unacked(span.offset, span.end))
            for piece in acked:
                self._acked(consumer, EntrySpan(piece, 1), 0)

    def _delivered_ranges(
        self, consumer: Consumer, entries: Sequence[int]
    ) -> tuple[list[tuple[int, int]], set[int]]:
        """Return offset ranges of the entries remembered from their delivery, and the other ids."""
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
        """Acknowledge everything up to and including an entry. Returns a ticket."""

    async def reset(self, position: Callable[[], Awaitable[int]]) -> int:
        """Seek: disconnect every consumer, forget acknowledgements, continue at the result of
        `position`.

        Returns a ticket.
        """
        self.resetting = trio.Event()
        closed = tuple(self.consumers)
        try:
            self.close_consumers()
            offset = await position()
            self.partition.check_here()  # Another partition may have the number by now.
            ticket = self.cursor.seek(offset)
            self._seeks += 1
            self.rewind()
            return ticket
        finally:
            self._attach_again(closed)
            self.resetting.set()
            self.resetting = None

    async def seek(self, position: Callable[[], Awaitable[int]]) -> int:
        """Seek, as `Delivery.seek`; closed consumers find a position in memory again,
        for a while.
        """
        try:
            return await self.reset(position)
        finally:
            self._context.keep(self)
            self._context.release(self)

    def unsubscribe(self) -> int:
        self._context.release(self)
        if self.cursor.is_durable:
            return self.cursor.subscription.delete_cursor(self.cursor.index)
        return 0

    def stored(self) -> Dispatcher:
        return self

    def cursor_moved(self, event: CursorEvent, is_own: bool) -> None:
        """Follow a change of the cursor. If another client made the change, a move forward counts
        as acknowledged; a move back or a deletion closes the consumers.
        """
        if is_own:
            if self.partition.is_terminated:
                self.wake()  # Consumers may have reached the end.
        elif event is CursorEvent.DELETED:
            if not self.partition.removed:  # Otherwise the registry closes them, a few at a time.
                self.close_consumers()
        elif event is CursorEvent.SOUGHT:
            self._seeks += 1
            closed = tuple(self.consumers)
            self.close_consumers()
            self.rewind()
            self._attach_again(closed)
        else:
            if self.stopped_at is not None and self.stopped_at < self.cursor.position:
                self._go_on()
            self.cursor.remove_acked()
            self._moved_ahead()
            self.wake()

    def _attach_again(self, closed: Sequence[Consumer]) -> None:
        """Attach consumers that a seek closed and that have no connection to reconnect with."""
        if not self.partition.removed:
            for consumer in closed:
                if consumer.stays_after_seek:
                    self.attach(consumer)

    # Methods of the kinds.

    @abc.abstractmethod
    def redeliver(self, consumer: Consumer, message_ids: Sequence[EntryId]) -> None:
        """Send this consumer's unacknowledged entries again: the named entries, or all if none are
        named.
        """

    @abc.abstractmethod
    def _consumer_left(self, consumer: Consumer) -> None:
        """Take back the entries of a detached consumer."""

    @abc.abstractmethod
    def _sent(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        """Remember the entries sent to a consumer now, and set their redelivery counts."""

    @abc.abstractmethod
    def _delivered_span(self, message_id: EntryId) -> EntrySpan | None:
        """Return the entry of that id if remembered from the delivery."""

    @abc.abstractmethod
    def _delivered_counts(self, consumer: Consumer) -> Callable[[int], int | None]:
        """Return a function from an entry's id to a record count; use the function at once.

        The count is None if the entry is not remembered from the delivery.
        """

    @abc.abstractmethod
    def _acked_whole(self, consumer: Consumer, entries: Sequence[int]) -> None:
        """Note acknowledged entries, all remembered from their delivery."""

    @abc.abstractmethod
    def _acked(self, consumer: Consumer, span: EntrySpan, left: int) -> None:
        """Note an acknowledged entry, except for `left` of its messages."""

    @abc.abstractmethod
    def _moved_ahead(self) -> None:
        """Handle a move of the cursor forward by another client."""

    def _unblock(self, consumer: Consumer) -> None:
        """Resume delivery to a consumer below its limit of unacknowledged messages."""

    def _consumer_joined(self, consumer: Consumer) -> None:
        """Handle an attached consumer."""

    def _offer(self, consumer: Consumer, entry: Entry) -> bool:
        """Offer an entry with any of the flags `_special`.

        False if the entry has to wait or another consumer gets the entry.
        """
        return True

    def _passed(self, offset: int) -> None:
        """Handle an entry that was read but is acknowledged already."""
