"""Shared delivery: consumers with permits take turns; a returned entry goes to any consumer.

Order is not kept. Redeliveries are counted per entry, in memory, until the entry is acknowledged or
the last consumer leaves. The pieces of a chunked message go to the same consumer, which joins them.
Delayed entries are held until they are due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import trio

from braidlog.broker.delivery.consumer import Consumer, Pending, SubscriptionKind, with_all_chunks
from braidlog.broker.delivery.consumer_turns import ConsumerTurns
from braidlog.broker.delivery.cursor import CursorState
from braidlog.broker.delivery.delays import Delays
from braidlog.broker.delivery.delivery_times import due_of
from braidlog.broker.delivery.dispatch_context import DispatchSource
from braidlog.broker.delivery.dispatcher import CHUNK, DELAYED, Dispatcher
from braidlog.broker.delivery.entry_reads import EntryRead, read_entries
from braidlog.broker.delivery.retries import READ_AGAIN_S
from braidlog.broker.delivery.returning import Returning
from braidlog.broker.delivery.turn_batches import TurnBatches
from braidlog.broker.delivery.waiting_offsets import ANYBODY, Lane, WaitingOffsets
from braidlog.broker.errors import BrokerError, OffsetOutOfRange, StorageFull
from braidlog.broker.reading import ack_sets
from braidlog.broker.reading import entries as ids
from braidlog.broker.reading.entries import Entry, EntryId, EntrySpan

if TYPE_CHECKING:
    from braidlog.broker.runtime.output_budget import OutputReservation

# Chunked messages before delivery of the last piece; beyond this number the oldest is forgotten.
CHUNKED_MAX = 1000
DUE_CHECK_S = 60.0  # The wall clock may be changed: check the time at least this often.


class SharedDispatcher(Dispatcher):
    """Delivers to any number of consumers in turns."""

    kind = SubscriptionKind.SHARED
    _special = CHUNK | DELAYED
    _holds_delayed = True

    def __init__(self, source: DispatchSource) -> None:
        super().__init__(source)
        self._turns = ConsumerTurns()
        self._again = WaitingOffsets()
        self._returning = Returning(self._limits.returned_together)
        self._again_bytes = 1  # For the next read of waiting entries; 1 reads a single batch.
        self._delays = Delays(self._limits.delayed_max)
        self._redeliveries: dict[int, int] = {}  # Number of returns of an entry, if not 0.
        self._chunk_consumer: dict[bytes, Consumer] = {}  # By chunk uuid, oldest first.
        self._unacked = 0

    @property
    def delayed(self) -> int:
        """Number of messages that are held until their time."""
        return self._delays.messages

    def rewind(self) -> None:
        """Start again at the first unacknowledged entry. Only while no consumer holds entries."""
        assert not any(consumer.pending for consumer in self.consumers)
        self._again.clear()
        self._returning.clear()
        self._unacked, self.is_blocked = 0, False
        self._delays.clear()
        self._redeliveries.clear()
        self._chunk_consumer.clear()
        super().rewind()

    def flow(self, consumer: Consumer, permits: int) -> None:
        super().flow(consumer, permits)
        self._turns.ready(consumer)

    async def acknowledge_to(self, consumer: Consumer, message_id: EntryId, *, lazy: bool) -> int:
        """Do nothing: a cumulative acknowledgement has no meaning without order; Apache Pulsar
        ignores it too.
        """
        return 0

    def redeliver(self, consumer: Consumer, message_ids: Sequence[EntryId]) -> None:
        """Take these entries back from the consumer, or all of them, and count the redeliveries."""
        pending = consumer.pending
        if message_ids:
            ledger = self.partition.partition_id
            wanted = {m.entry for m in message_ids if m.ledger == ledger and m.entry in pending}
            offsets = with_all_chunks(pending, wanted)
        else:
            offsets = set(pending)
        for offset in offsets:
            consumer.messages_redelivered += pending[offset].wanted
            self._redeliveries[offset] = self._redeliveries.get(offset, 0) + 1
        self._give_back(consumer, sorted(offsets))
        self.wake()

    @property
    def _released(self) -> Callable[[Pending], None] | None:
        """Callback for each entry that a consumer no longer holds, or None."""
        return None

    def _give_back(self, consumer: Consumer, offsets: Sequence[int]) -> None:
        """Take these entries back from the consumer: at once, or in pieces if there are many."""
        if len(offsets) > self._limits.returned_together:
            pending = consumer.pending
            chunks = [offset for offset in offsets if pending[offset].chunk_uuid]
            self._send_again(consumer, chunks)  # No consumer may get a later piece before these.
            self._returning.add(consumer, offsets)
        else:
            self._send_again(consumer, offsets)
        self._unblock(consumer)

    def _return_some(self) -> None:
        """Take back the next piece."""
        consumer, offsets = self._returning.take()
        self._send_again(consumer, offsets)
        self._unblock(consumer)
        self.wake()

    def _send_again(self, consumer: Consumer, offsets: Iterable[int]) -> None:
        """Take these entries from the consumer; they wait to be sent again."""
        by_lane: dict[Lane, list[int]] = {}
        pending, released, wanted = consumer.pending, self._released, 0
        for offset in offsets:
            held = pending.pop(offset)
            wanted += held.wanted
            if released is not None:
                released(held)
            lane = self._lane_of(held)
            if lane in by_lane:
                by_lane[lane].append(offset)
            else:
                by_lane[lane] = [offset]
        self._count_unacked(consumer, -wanted)
        for lane, entries in by_lane.items():
            self._wait(entries, lane)

    def _wait(self, offsets: Sequence[int], lane: Lane) -> None:
        """Let entries of that lane wait for another read, until a consumer may have them."""
        self._again.add(offsets, lane)

    def _lane_of(self, pending: Pending) -> Lane:
        return pending.chunk_uuid or ANYBODY

    # The pump: returned entries go before new entries.

    def _get_ready(self) -> bool:
        self._collect_due()
        self._again.bring_back(trio.current_time())
        if self._returning:
            self._return_some()
        if self._is_slowed() or self.is_blocked:
            return False
        return self._turns.are_ready

    def _give(self) -> bool:
        return not self._ready_lanes() and self._give_ahead()

    def _give_ahead(self) -> bool:
        if not self._ahead:
            return False
        entries_max = (
            self._limits.turn_entries_shared
            if len(self.consumers) > 1
            else self._limits.turn_entries
        )
        gave = False
        for _ in range(self._limits.turn_entries // entries_max):
            consumer = self._next()
            if consumer is None or not self._take(consumer, self._room(consumer), entries_max):
                break
            gave = True
        return gave

    def _next(self) -> Consumer | None:
        """Return the next consumer with room: best priority first, then longest without a turn."""
        consumer = None if self.is_blocked else self._turns.first()
        if consumer is not None:
            self._turns.had(consumer)
        return consumer

    def _can_read(self) -> bool:
        return bool(self._ready_lanes()) or (super()._can_read() and not self._delays.is_full)

    async def _fill(self) -> None:
        if not self._ready_lanes():
            await super()._fill()
            return
        with await self._reserve(self._again_bytes) as room:
            if lanes := self._ready_lanes():  # The wait for memory may have been long.
                await self._give_again(lanes, room)

    @property
    def _holds_back(self) -> bool:
        return bool(self._again)

    def _ready_lanes(self) -> Sequence[Lane]:
        """Return the lanes with waiting entries that can be sent now."""
        if not self._again:
            return ()
        owner_of = self._chunk_consumer.get
        lanes: list[Lane] = []
        for lane in self._again.lanes:
            owner = owner_of(lane) if isinstance(lane, bytes) else None
            can_take = owner is None or (owner.can_take and owner.takes_more())
            if can_take and not self._again.is_put_off(lane):
                lanes.append(lane)
                if len(lanes) >= self._limits.ready_lanes_max:
                    break
        return lanes

    async def _give_again(self, lanes: Sequence[Lane], room: OutputReservation) -> None:
        """Read the lowest waiting entry and other entries close by, and send them. `room` is
        reserved until the entries are in outboxes.
        """
        first = self._again.lowest(lanes)
        assert first is not None
        generation = self._generation
        read = EntryRead([], first)
        try:
            read = await read_entries(self.partition, first, self._again_bytes, memory=room)
        except OffsetOutOfRange:
            if generation == self._generation and not self.partition.removed:
                self._below_start()
        except StorageFull:  # As in `_read`.
            await trio.sleep(READ_AGAIN_S)
            return
        except BrokerError as error:
            is_wanted = generation == self._generation and not self.partition.removed
            if is_wanted and self._again.put_off(first, trio.current_time()):
                self._report(first, error)
            return
        if generation != self._generation:
            return
        wanted = self._waiting(read.entries)
        if not wanted or wanted[0].offset != first:
            self._again.discard(first)  # Retention or compaction removed the entry.
            gone_to = read.entries[0].offset if read.entries else read.next_offset
            if gone_to > first:  # No consumer can acknowledge the entry any more.
                self._pass_holes([(first, gone_to)])
        self._last_read_bytes = read.size
        self._again_bytes = (
            self._limits.read_again_bytes if 2 * len(wanted) > len(read.entries) else 1
        )
        self._give_found(wanted)

    def _waiting(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that wait to be sent again."""
        return [entry for entry in entries if entry.offset in self._again]

    def _give_found(self, entries: Sequence[Entry]) -> None:
        """Send each entry to a consumer that may have the entry; the others keep waiting."""
        batches = TurnBatches(
            self._limits.turn_entries_shared
            if len(self.consumers) > 1
            else self._limits.turn_entries
        )
        state = self.cursor.state()
        for entry in entries:
            offset = entry.offset
            if state.covers(offset, entry.end):
                self._again.discard(offset)
                self._passed(offset)
                continue
            lane = self._again.lane(offset)
            if lane == ANYBODY and entry.flags & CHUNK:
                lane = self._to_its_lane(entry)
            if lane != ANYBODY and self._again.first(lane) != offset:
                continue  # A lane keeps its order.
            consumer = self._target(lane, batches)
            if consumer is not None:
                self._again.discard(offset)
                entry.slot = lane if isinstance(lane, int) else 0
                self._share(batches, consumer, entry, state)
        batches.send(self._now_us())

    def _to_its_lane(self, entry: Entry) -> Lane:
        """Let a due piece of a chunked message wait with the message."""
        chunk = ids.entry_chunk(entry)
        if chunk is None:
            return ANYBODY
        self._again.discard(entry.offset)
        self._again.add((entry.offset,), chunk.uuid)
        return chunk.uuid

    def _target(self, lane: Lane, batches: TurnBatches) -> Consumer | None:
        """Return the consumer that may have the lane's next entry now; None: no consumer yet."""
        owner = self._chunk_consumer.get(lane) if isinstance(lane, bytes) else None
        if owner is not None:
            return owner if owner.can_take and batches.takes_more(owner) else None
        if batches.current is None or not batches.current.can_take or batches.is_full:
            batches.begin(self._next())
        return batches.current

    def _share(
        self, batches: TurnBatches, consumer: Consumer, entry: Entry, state: CursorState
    ) -> None:
        """Count an entry for the consumer, to be sent at the end of the turn."""
        ack_sets.tell_acked(entry, state)
        wanted = entry.wanted
        consumer.permits -= wanted
        consumer.messages_out += wanted
        consumer.bytes_out += len(entry.body)
        self._count_delivered(wanted, len(entry.body))
        if entry.flags & CHUNK:
            self._chunk_given(consumer, entry)
        self._sent(consumer, (entry,))
        batches.add(consumer, entry)

    # Delayed delivery.

    def _collect_due(self) -> None:
        """Release the delayed entries that are due."""
        if not self._delays or len(self._again) >= self._limits.due_max:
            return
        now_ms, start = self._now_us() // 1000, self.partition.log_start_offset
        self._delays.forget_below(max(self.cursor.position, start), now_ms)
        if due := self._delays.pop_due(now_ms, self._limits.due_max):
            self._release_due(due)

    def _release_due(self, due: Sequence[tuple[int, int, int]]) -> None:
        """Let due entries wait for a consumer; each has offset, end and slot."""
        for offset, _, slot in due:
            self._wait((offset,), self._due_lane(slot))

    def _due_lane(self, slot: int) -> Lane:
        return ANYBODY

    def _due_at(self) -> float:
        first_ms, due_at = self._delays.first_ms, min(super()._due_at(), self._again.due_at)
        if first_ms is None or len(self._again) >= self._limits.due_max:
            return due_at
        left_s = first_ms / 1000 - self._now_us() / 1_000_000
        return min(due_at, trio.current_time() + min(max(left_s, 0.0), DUE_CHECK_S))

    def _hold_early(self, entry: Entry, due_ms: int, slot: int) -> bool:
        """Hold an entry that is to be delivered later; return False if its time has come.

        Due entries are not collected at once: an entry that is due after a held entry waits behind
        it. The entry may be the next piece of the same chunked message.
        """
        first_ms = self._delays.first_ms
        is_next = first_ms is None or due_ms < first_ms
        if is_next and due_ms <= self._now_us() // 1000:
            return False
        self._delays.add(due_ms, entry.offset, entry.end, slot)
        return True

    def _offer(self, consumer: Consumer, entry: Entry) -> bool:
        metadata = ids.entry_metadata(entry.body)
        is_delayed = entry.flags & DELAYED and self._client_limits.delays
        if is_delayed and self._hold_early(entry, due_of(entry), 0):
            return False
        if metadata.num_chunks_from_msg <= 1:
            return True
        owner, lanes = self._chunk_consumer.get(metadata.uuid, consumer), self._again.lanes
        if owner is consumer and metadata.uuid not in lanes:
            self._chunk_given(consumer, entry)
            return True
        self._wait((entry.offset,), metadata.uuid)
        return False

    def _chunk_given(self, consumer: Consumer, entry: Entry) -> None:
        """Note that the consumer has a piece of a chunked message, and so gets the others too."""
        chunk = ids.entry_chunk(entry)
        if chunk is None:
            return
        if chunk.chunk_id == chunk.chunk_count - 1:
            self._chunk_consumer.pop(chunk.uuid, None)
            return
        self._chunk_consumer[chunk.uuid] = consumer
        if len(self._chunk_consumer) > CHUNKED_MAX:
            del self._chunk_consumer[next(iter(self._chunk_consumer))]

    # Accounting.

    def _room(self, consumer: Consumer) -> int:
        left = (
            self._limits.unacked_max_consumer - consumer.unacked,
            self._limits.unacked_max_subscription - self._unacked,
        )
        return min(consumer.permits, *left)

    def _sent(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        pending, redeliveries, total = consumer.pending, self._redeliveries, 0
        for entry in entries:  # hot: see make bench
            uuid = b""
            if entry.flags & CHUNK and (chunk := ids.entry_chunk(entry)) is not None:
                uuid = chunk.uuid
            wanted = entry.wanted if entry.ack_set else entry.record_count
            pending[entry.offset] = Pending(entry.record_count, wanted, uuid, entry.slot)
            total += wanted
            if redeliveries:
                entry.redelivery_count = redeliveries.get(entry.offset, 0)
        self._count_unacked(consumer, total)
        consumer.is_blocked = (
            consumer.is_blocked or consumer.unacked >= self._limits.unacked_max_consumer
        )
        self.is_blocked = self.is_blocked or self._unacked >= self._limits.unacked_max_subscription

    def _passed(self, offset: int) -> None:
        self._redeliveries.pop(offset, None)

    def _consumer_joined(self, consumer: Consumer) -> None:
        self._turns.add(consumer)

    def _consumer_left(self, consumer: Consumer) -> None:
        self._turns.remove(consumer)
        for uuid in [u for u, owner in self._chunk_consumer.items() if owner is consumer]:
            del self._chunk_consumer[uuid]
        self._give_back(consumer, list(consumer.pending))

    def _delivered_span(self, message_id: EntryId) -> EntrySpan | None:
        if message_id.ledger != self.partition.partition_id:
            return None
        for consumer in self.consumers:
            pending = consumer.pending.get(message_id.entry)
            if pending is not None:
                return EntrySpan(message_id.entry, pending.record_count)
        return None

    def _delivered_counts(self, consumer: Consumer) -> Callable[[int], int | None]:
        own, consumers = consumer.pending, self.consumers

        def count_of(entry: int) -> int | None:
            pending = own.get(entry)
            if pending is None:  # Another consumer's.
                pending = next((c.pending[entry] for c in consumers if entry in c.pending), None)
            return None if pending is None else pending.record_count

        return count_of

    def _acked_whole(self, consumer: Consumer, entries: Sequence[int]) -> None:
        redeliveries, release = self._redeliveries, consumer.pending.pop
        released = self._released
        wanted = 0
        for entry in entries:  # hot: see make bench
            pending = release(entry, None)
            if pending is None:  # Another consumer's, or named twice.
                self._acked(consumer, EntrySpan(entry, 1), 0)
                continue
            wanted += pending.wanted
            if redeliveries:
                redeliveries.pop(entry, None)
            if released is not None:
                released(pending)
        consumer.messages_acked += wanted
        self._count_unacked(consumer, -wanted)
        self._unblock(consumer)

    def _acked(self, consumer: Consumer, span: EntrySpan, left: int) -> None:
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
        position, again = self.cursor.position, self.cursor.again
        for consumer in self.consumers:
            for offset, pending in list(consumer.pending.items()):
                if offset + pending.record_count <= position and offset not in again:
                    self._redeliveries.pop(offset, None)
                    self._release(consumer, offset)
            self._unblock(consumer)

    def _release(self, consumer: Consumer, offset: int) -> None:
        """Note that the consumer no longer holds that entry."""
        pending = consumer.pending.pop(offset)
        self._count_unacked(consumer, -pending.wanted)
        released = self._released
        if released is not None:
            released(pending)

    def _count_unacked(self, consumer: Consumer, change: int) -> None:
        consumer.unacked += change
        self._unacked += change

    def _unblock(self, consumer: Consumer) -> None:
        """Resume delivery that a limit stopped, once half of the limit is free."""
        if consumer.is_blocked and consumer.unacked <= self._limits.unacked_max_consumer // 2:
            consumer.is_blocked = False
            self._turns.ready(consumer)
            self.wake()
        if self.is_blocked and self._unacked <= self._limits.unacked_max_subscription // 2:
            self.is_blocked = False
            self.wake()
