"""Delivery in order to a single active consumer: Exclusive, and the part shared with Failover.

A redelivery starts again at the first unacknowledged entry. Pulsar's readers are Exclusive.
Unacknowledged messages have no limit: only the consumer's permits limit delivery.
"""

from collections.abc import Callable, Sequence
from itertools import repeat

from braidlog.broker.delivery.consumer import Consumer, SubscriptionKind
from braidlog.broker.delivery.dispatcher import Dispatcher
from braidlog.broker.delivery.key_slots import KeyRanges
from braidlog.broker.errors import SubscriptionBusy
from braidlog.broker.reading import entries as ids
from braidlog.broker.reading.entries import Entry, EntryId, EntrySpan


class OrderedDispatcher(Dispatcher):
    """Delivers to the active consumer."""

    active: Consumer | None = None
    _delivered: dict[int, int]  # Record count of delivered entries by offset, oldest first.

    @property
    def _reads_compacted(self) -> bool:
        """True if the active consumer reads the compacted view."""
        return self.active is not None and self.active.reads_compacted

    def _get_ready(self) -> bool:
        active = self.active
        can_take = active is not None and active.can_take and active.takes_more()
        return can_take and not self._is_slowed()

    def _give(self) -> bool:
        assert self.active is not None
        return self._take(self.active, self.active.permits, self._limits.turn_entries)

    def rewind(self) -> None:
        """Start again at the first entry that is not acknowledged."""
        self._delivered = {}
        super().rewind()

    def is_acked(self, offset: int) -> bool:
        """Return True if an entry delivered since the last start is fully acknowledged."""
        return self.cursor.state().covers(offset, offset + self._delivered.get(offset, 1))

    def redeliver(self, consumer: Consumer, message_ids: Sequence[EntryId]) -> None:
        """Send everything unacknowledged again, whichever entries are named, as Apache Pulsar does.

        Only the active consumer has unacknowledged entries.
        """
        if consumer is not self.active:
            return
        consumer.messages_redelivered += sum(self._delivered.values())
        self.rewind()

    async def acknowledge_to(self, consumer: Consumer, message_id: EntryId, *, lazy: bool) -> int:
        """Acknowledge everything up to and including an entry. Returns a ticket."""
        span = self._delivered_span(message_id)
        if span is not None and not message_id.ack_set:
            return self._ack_below(consumer, span.end, lazy=lazy)
        seeks = self._seeks
        covered = await ids.resolve_cumulative(self.partition, message_id)
        # A seek also forgets acknowledgements under way.
        if covered is None or seeks != self._seeks:
            return 0
        ticket = self._ack_below(consumer, covered.position, lazy=lazy)
        if covered.ranges:
            ticket = max(ticket, self.cursor.ack(covered.ranges, lazy=lazy))
        return ticket

    def _ack_below(self, consumer: Consumer, position: int, *, lazy: bool) -> int:
        consumer.messages_acked += max(0, position - self.cursor.position)
        consumer.times.acked_us = self._now_us()
        ticket = self.cursor.ack_to(position, lazy=lazy)
        self.cursor.remove_acked()
        delivered = self._delivered
        while delivered and (first := next(iter(delivered))) < position:
            del delivered[first]
        return ticket

    def _sent(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        """Remember record counts. Redelivery counts stay 0: Apache Pulsar counts on Shared
        subscriptions only.
        """
        delivered = self._delivered
        for entry in entries:  # hot: see make bench
            delivered[entry.offset] = entry.record_count
        while len(delivered) > self._limits.delivered_max:
            del delivered[next(iter(delivered))]

    def _delivered_span(self, message_id: EntryId) -> EntrySpan | None:
        if message_id.ledger != self.partition.partition_id:
            return None
        count = self._delivered.get(message_id.entry)
        return None if count is None else EntrySpan(message_id.entry, count)

    def _delivered_counts(self, consumer: Consumer) -> Callable[[int], int | None]:
        return self._delivered.get

    def _acked_whole(self, consumer: Consumer, entries: Sequence[int]) -> None:
        consumer.messages_acked += sum(map(self._delivered.pop, entries, repeat(0)))

    def _acked(self, consumer: Consumer, span: EntrySpan, left: int) -> None:
        if left == 0:
            self._delivered.pop(span.offset, None)
            consumer.messages_acked += span.record_count

    def _moved_ahead(self) -> None:
        """Undo nothing: acknowledged entries are skipped in their turn."""


class ExclusiveDispatcher(OrderedDispatcher):
    """Delivers to a single consumer.

    A consumer with its own slots (Java's readers may have some) gets only the keys of those slots;
    other keys are skipped, as in Apache Pulsar.
    """

    kind = SubscriptionKind.EXCLUSIVE
    _own_keys: KeyRanges | None = None  # Ranges of a consumer with its own slots.
    _last_own: Entry | None = None  # The last own entry of a read without other entries left.

    def check_room(self, consumer: Consumer) -> None:
        """Raise SubscriptionBusy while a consumer is attached, InvalidRequest for unavailable
        slots.
        """
        if self.consumers:
            raise SubscriptionBusy("Exclusive consumer is already connected")
        if consumer.key_ranges:
            KeyRanges().check(consumer.key_ranges)

    def _consumer_joined(self, consumer: Consumer) -> None:
        self.active = consumer
        if consumer.key_ranges:
            self._own_keys = KeyRanges()
            self._own_keys.add(consumer)

    def _give(self) -> bool:
        if self._own_keys is not None:
            self._pass_other_keys(self._own_keys)
        return super()._give()

    def _pass_other_keys(self, own: KeyRanges) -> None:
        """Drop read entries of other keys: once for each read, which comes whole."""
        ahead = self._ahead
        if not ahead or ahead[-1] is self._last_own:
            return
        own_entries = [entry for entry in ahead if own.owner(own.slot(ids.entry_key(entry.body)))]
        self._last_own = own_entries[-1] if own_entries else None
        ahead.clear()
        ahead.extend(own_entries)

    def _consumer_left(self, consumer: Consumer) -> None:
        self.active = self._own_keys = self._last_own = None
        self.rewind()
