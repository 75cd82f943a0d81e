"""Attaches consumers over HTTP to delivery, with an `HttpConsumer` for each partition of a topic.

The only module of this listener that attaches to dispatchers. A consumer takes entries while a
fetch is open. The consumer stores their offsets and no bytes: the fetch reads the records. Knows no
request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from braidlog.broker.delivery.consumer import Consumer, SubscriptionKind
from braidlog.broker.delivery.consumer_attach import join
from braidlog.broker.delivery.exclusive import OrderedDispatcher
from braidlog.broker.reading.chunks import piece_offsets
from braidlog.broker.reading.entries import EntryId, entry_at_or_before

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.delivery.dispatcher import Dispatcher
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.reading.entries import Entry
    from braidlog.broker.topics.partition import Partition


@dataclass(slots=True)
class ReceivedEntry:
    """An entry that delivery gave to a consumer: its place and its unacknowledged messages."""

    offset: int
    record_count: int
    ack_set: tuple[int, ...]
    redelivery_count: int
    size: int
    skip: int = 0  # Number of messages that earlier fetches returned.

    @property
    def end(self) -> int:
        return self.offset + self.record_count

    def has(self, offset: int) -> bool:
        """Return True if the message at the offset belongs to the entry."""
        return self.offset <= offset < self.end

    def wants(self, offset: int) -> bool:
        """Return True if the entry's message at the offset is not acknowledged."""
        place = offset - self.offset
        word = place // 64
        return word >= len(self.ack_set) or bool(self.ack_set[word] >> (place % 64) & 1)


class ConsumerOfPartitions(Protocol):
    """The consumer that clients know, with all its partitions."""

    id: str

    @property
    def wants_more(self) -> bool:
        """True while a fetch with room is open."""

    def take(self, consumer: HttpConsumer, entry: ReceivedEntry, wanted: int) -> None:
        """Take an entry from delivery, with `wanted` unacknowledged messages."""

    def touch(self) -> None:
        """Record that the consumer is in use."""

    async def is_alive(self) -> bool:
        """Return True if the consumer is in use."""

    def dropped(self, consumer: HttpConsumer) -> None:
        """Drop a partition's entries: a seek or a deletion has detached the consumer from the
        partition.
        """


@dataclass(slots=True, eq=False, kw_only=True)
class HttpConsumer(Consumer):
    """The part of a consumer that reads one partition."""

    protocol = "rest"

    owner: ConsumerOfPartitions
    partition: Partition
    # The dispatcher of the attached consumer; after a close, the previous dispatcher.
    dispatcher: Dispatcher | None = None
    sent: dict[int, float] = field(default_factory=dict)
    """When entries that were given out come back unless they are acknowledged, oldest first."""

    @property
    def identity(self) -> str:
        """The consumer's id, which outlives connections."""
        return self.owner.id

    @property
    def stays_after_seek(self) -> bool:
        """True until the end of the consumer, which also exists between two fetches."""
        return self.dispatcher is not None

    def send(self, entries: Sequence[Entry], size: int) -> None:
        """Store the places of entries."""
        for entry in entries:
            held_entry = ReceivedEntry(
                entry.offset,
                entry.record_count,
                entry.ack_set,
                entry.redelivery_count,
                len(entry.body),
            )
            self.owner.take(self, held_entry, entry.wanted)

    def takes_more(self) -> bool:
        """Return True if the consumer takes more entries: only while a fetch with room is open."""
        return self.owner.wants_more

    def disconnect(self) -> None:
        """Drop the entries held: a seek, which attaches the consumer again, or a deletion has
        detached it.
        """
        self.sent.clear()
        self.owner.dropped(self)

    async def is_alive(self) -> bool:
        """Return True if the consumer is in use."""
        return await self.owner.is_alive()

    def holds(self, entry: int) -> bool:
        """Return True if this consumer holds the entry and no acknowledgement is known."""
        return entry in self.pending or entry in self.sent

    def forget(self, entry: int) -> None:
        """Forget an acknowledged entry."""
        self.sent.pop(entry, None)

    async def pass_over(self, skipped: Sequence[int]) -> None:
        """Acknowledge held entries at offsets that the topic's settings exclude from delivery. No
        client ever will.

        Earlier pieces of a chunked message are acknowledged with the last piece.
        """
        ledger = self.partition.partition_id
        done: list[int] = []
        for start in skipped:
            span = await entry_at_or_before(self.partition, start)
            if span is not None:
                done += [span.offset, *await piece_offsets(self.partition, span.offset)]
        ids = [EntryId(ledger, offset) for offset in done]
        if self.dispatcher is not None and self.is_attached:
            await self.dispatcher.acknowledge(self, ids, lazy=True)
            for offset in done:
                self.forget(offset)

    def still_wants(self, offset: int) -> bool:
        """Return True if the entry, which was given to this consumer, is not acknowledged."""
        return self.is_attached and self._is_wanted(offset)

    def open(self, permits: int) -> None:
        """Take up to `permits` messages."""
        if self.dispatcher is not None and self.is_attached:
            self.permits = 0
            self.dispatcher.flow(self, permits)

    def close(self) -> None:
        """Take no more entries until the next `open`."""
        self.permits = 0

    def put_back(self, offsets: Sequence[int]) -> None:
        """Return entries for immediate redelivery; the delivery count of each rises."""
        for offset in offsets:
            self.sent.pop(offset, None)
        if self.dispatcher is not None and self.is_attached:
            ledger = self.partition.partition_id
            held = [offset for offset in offsets if self._is_wanted(offset)]
            if held:
                self.dispatcher.redeliver(self, [EntryId(ledger, offset) for offset in held])

    def _is_wanted(self, offset: int) -> bool:
        if offset in self.pending:
            return True
        # Exclusive and Failover dispatchers remember less: there only the cursor knows.
        dispatcher = self.dispatcher
        return isinstance(dispatcher, OrderedDispatcher) and not dispatcher.is_acked(offset)


async def attach(
    broker: Broker,
    consumer: HttpConsumer,
    subscription: Subscription,
    kind: SubscriptionKind,
    initial: Callable[[Partition], int],
) -> None:
    """Join the subscription's delivery of the consumer's partition, as `consumer_attach.join`."""
    joined = await join(broker, consumer, consumer.partition, subscription, kind, initial)
    if joined is not None:
        consumer.dispatcher = joined


def detach(broker: Broker, consumer: HttpConsumer) -> None:
    """Leave the delivery of the partition; entries held are redelivered, unless the partition was
    removed.

    A consumer that a deletion has closed must still release its dispatcher.
    """
    dispatcher = consumer.dispatcher
    if dispatcher is None:
        return
    if consumer.is_attached and not dispatcher.partition.removed:
        consumer.put_back(list(consumer.pending))
    consumer.dispatcher = None
    dispatcher.leave(consumer)
