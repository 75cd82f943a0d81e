"""Shared delivery: entries go round the consumers that have permits; what one does not acknowledge
goes to another.

Order is not kept. Redeliveries are counted per entry, in memory, until it is acknowledged or the
last consumer leaves. The pieces of a chunked message go to one consumer, since another could not
put them together.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from broker.delivery import entries as ids
from broker.delivery.consumer import Consumer, Pending, SubscriptionKind
from broker.delivery.dispatcher import CHUNK, READ_AHEAD_BYTES, Dispatcher, tell_acked
from broker.delivery.entries import Entry, EntryId, Span
from broker.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from broker.delivery.cursor import Cursor
    from broker.topics.partition import Partition

# Messages a consumer may hold; Apache's default, goes on at half of it.
UNACKED_MAX_CONSUMER = 50_000
UNACKED_MAX_SUBSCRIPTION = 200_000  # All consumers together, likewise.
# Chunked messages whose last piece is not delivered yet; the oldest is forgotten beyond.
CHUNKED_MAX = 1000


class SharedDispatcher(Dispatcher):
    """Delivers to any number of consumers in turns."""

    kind = SubscriptionKind.SHARED

    def __init__(self, partition: Partition, name: bytes, cursor: Cursor) -> None:
        """`name` is the subscription's."""
        super().__init__(partition, name, cursor)
        self._replay: set[int] = set()  # Entries to be sent again, lowest first.
        self._replay_heap: list[int] = []  # The same, and some that are no longer in the set.
        self._redeliveries: dict[int, int] = {}  # Times an entry came back, where that is not 0.
        self._chunk_consumer: dict[bytes, Consumer] = {}  # By chunk uuid, oldest first.
        self._unacked = 0
        self._is_blocked = False

    def rewind(self) -> None:
        """Start again at the first entry that is not acknowledged. Only without consumers, which
        hold entries.
        """
        assert not any(consumer.pending for consumer in self.consumers)
        self._replay.clear()
        self._replay_heap.clear()
        self._redeliveries.clear()
        self._chunk_consumer.clear()
        super().rewind()

    async def acknowledge_to(self, consumer: Consumer, message_id: EntryId, *, lazy: bool) -> int:
        """Nothing: a cumulative acknowledgement has no meaning where order is not kept; Apache
        ignores it too.
        """
        return 0

    def redeliver(self, consumer: Consumer, message_ids: Sequence[EntryId]) -> None:
        """Return these entries of the consumer, or all of them, and count it."""
        pending = consumer.pending
        if message_ids:
            ledger = self.partition.partition_id
            wanted = {m.entry for m in message_ids if m.ledger == ledger and m.entry in pending}
            offsets = self._with_all_chunks(pending, wanted)
        else:
            offsets = set(pending)
        for offset in offsets:
            consumer.messages_redelivered += pending[offset].wanted
            self._redeliveries[offset] = self._redeliveries.get(offset, 0) + 1
            self._release(consumer, offset)
        self._send_again(offsets)
        self._unblock(consumer)

    @staticmethod
    def _with_all_chunks(pending: dict[int, Pending], offsets: set[int]) -> set[int]:
        """The offsets, and those of all other pieces of the chunked messages among them."""
        uuids = {pending[offset].chunk_uuid for offset in offsets} - {b""}
        if not uuids:
            return offsets
        return offsets | {offset for offset, p in pending.items() if p.chunk_uuid in uuids}

    # Reading: what comes back goes before what is new.

    async def _fill(self) -> None:
        first = self._first_replay()
        if first is None:
            await super()._fill()
            return
        generation = self._generation
        read = await self._read_again(first)
        if generation == self._generation:
            again = [entry for entry in read.entries if entry.offset in self._replay]
            self._replay.difference_update(entry.offset for entry in again)
            self._replay.discard(first)  # Retention or compaction may have taken it.
            self._ahead.extendleft(reversed(again))

    async def _read_again(self, offset: int) -> ids.EntryRead:
        try:
            return await ids.read_entries(self.partition, offset, READ_AHEAD_BYTES)
        except OffsetOutOfRange:
            return ids.EntryRead([], offset)

    def _first_replay(self) -> int | None:
        heap = self._replay_heap
        while heap and heap[0] not in self._replay:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _send_again(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            if offset not in self._replay:
                self._replay.add(offset)
                heapq.heappush(self._replay_heap, offset)
        self._interrupt()

    async def _take_own(self, consumer: Consumer) -> list[Entry]:
        """The next pieces of chunked messages that this consumer has begun."""
        first = min(consumer.own)
        read = await self._read_again(first)
        taken: list[Entry] = []
        state = self.cursor.state()
        for entry in read.entries:
            if entry.offset in consumer.own and consumer.can_take:
                consumer.own.discard(entry.offset)
                if state.covers(entry.offset, entry.end):
                    self._passed(entry)
                else:
                    tell_acked(entry, state)
                    self._hand_out(consumer, [entry], entry.wanted, len(entry.body))
                    taken.append(entry)
        if not taken:
            consumer.own.discard(first)
        return taken

    # Accounting.

    def _is_for(self, consumer: Consumer, entry: Entry) -> bool:
        chunk = ids.entry_chunk(entry)
        if chunk is None:
            return True
        owner = self._chunk_consumer.setdefault(chunk.uuid, consumer)
        if chunk.chunk_id == chunk.chunk_count - 1:
            del self._chunk_consumer[chunk.uuid]
        elif len(self._chunk_consumer) > CHUNKED_MAX:
            del self._chunk_consumer[next(iter(self._chunk_consumer))]
        if owner is consumer:
            return True
        owner.own.add(entry.offset)
        owner.wake()
        return False

    def _room(self, consumer: Consumer) -> int:
        left = UNACKED_MAX_CONSUMER - consumer.unacked, UNACKED_MAX_SUBSCRIPTION - self._unacked
        return min(consumer.permits, *left)

    def _sent(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        pending, redeliveries = consumer.pending, self._redeliveries
        total = 0
        for entry in entries:  # hot: see make bench
            uuid = b""
            if entry.flags & CHUNK and (chunk := ids.entry_chunk(entry)) is not None:
                uuid = chunk.uuid
            wanted = entry.wanted if entry.ack_set else entry.record_count
            pending[entry.offset] = Pending(entry.record_count, wanted, uuid)
            total += wanted
            if redeliveries:
                entry.redelivery_count = redeliveries.get(entry.offset, 0)
        self._count_unacked(consumer, total)
        consumer.is_blocked = consumer.is_blocked or consumer.unacked >= UNACKED_MAX_CONSUMER
        self._is_blocked = self._is_blocked or self._unacked >= UNACKED_MAX_SUBSCRIPTION

    def _may_send(self) -> bool:
        return not self._is_blocked

    def _passed(self, entry: Entry) -> None:
        self._redeliveries.pop(entry.offset, None)

    def _give_back(self, consumer: Consumer) -> None:
        offsets = set(consumer.pending)
        for offset in offsets:
            self._release(consumer, offset)
        self._send_again(offsets | consumer.own)
        consumer.own.clear()
        for uuid in [u for u, owner in self._chunk_consumer.items() if owner is consumer]:
            del self._chunk_consumer[uuid]
        self._unblock(consumer)

    def _delivered_span(self, message_id: EntryId) -> Span | None:
        if message_id.ledger != self.partition.partition_id:
            return None
        for consumer in self.consumers:
            pending = consumer.pending.get(message_id.entry)
            if pending is not None:
                return Span(message_id.entry, pending.record_count)
        return None

    def _delivered_counts(self, consumer: Consumer) -> Callable[[int], int | None]:
        own, others = consumer.pending, [c.pending for c in self.consumers if c is not consumer]

        def count_of(entry: int) -> int | None:
            pending = own.get(entry)
            if pending is None:
                pending = next((held[entry] for held in others if entry in held), None)
            return None if pending is None else pending.record_count

        return count_of

    def _acked_whole(self, consumer: Consumer, entries: Sequence[int]) -> None:
        redeliveries, release = self._redeliveries, consumer.pending.pop
        wanted = 0
        for entry in entries:  # hot: see make bench
            pending = release(entry, None)
            if pending is None:  # Another consumer's, or named twice.
                self._acked(consumer, Span(entry, 1), 0)
                continue
            wanted += pending.wanted
            if redeliveries:
                redeliveries.pop(entry, None)
        consumer.messages_acked += wanted
        self._count_unacked(consumer, -wanted)
        self._unblock(consumer)

    def _acked(self, consumer: Consumer, span: Span, left: int) -> None:
        owner = consumer
        if span.offset not in consumer.pending:  # Another consumer's entry may be acknowledged too.
            holders = (c for c in self.consumers if span.offset in c.pending)
            owner = next(holders, consumer)
        pending = owner.pending.get(span.offset)
        if pending is None:
            return
        consumer.messages_acked += pending.wanted - left
        if left == 0:
            self._redeliveries.pop(span.offset, None)
            self._release(owner, span.offset)
        else:
            self._count_unacked(owner, left - pending.wanted)
            pending.wanted = left
        self._unblock(owner)

    def _moved_ahead(self) -> None:
        position = self.cursor.position
        for consumer in self.consumers:
            for offset, pending in list(consumer.pending.items()):
                if offset + pending.record_count <= position:
                    self._redeliveries.pop(offset, None)
                    self._release(consumer, offset)
            self._unblock(consumer)

    def _release(self, consumer: Consumer, offset: int) -> None:
        """The consumer no longer holds that entry."""
        pending = consumer.pending.pop(offset)
        self._count_unacked(consumer, -pending.wanted)

    def _count_unacked(self, consumer: Consumer, change: int) -> None:
        consumer.unacked += change
        self._unacked += change

    def _unblock(self, consumer: Consumer) -> None:
        """Let go on what was stopped by a limit, once half of it is free."""
        if consumer.is_blocked and consumer.unacked <= UNACKED_MAX_CONSUMER // 2:
            consumer.is_blocked = False
            consumer.wake()
        if self._is_blocked and self._unacked <= UNACKED_MAX_SUBSCRIPTION // 2:
            self._is_blocked = False
            for other in self.consumers:
                other.wake()
