"""Key_Shared delivery: like Shared, but the entries of a key go to a single consumer at a time, in
order.

Each key has a slot, each slot an owner among the consumers: by a hash ring, or by the ranges that
the consumers request. If an entry cannot go to its owner yet, the dispatcher stores only the offset
and reads the entry again later. A slot with unacknowledged entries at a consumer goes to no other
consumer until the entries are acknowledged or returned. So a key is never at two consumers, even
while consumers connect and leave, unless the consumers allow delivery out of order. Other slots are
not delayed. PIP-119, PIP-379.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from braidlog.broker.delivery.consumer import Consumer, Pending, SubscriptionKind
from braidlog.broker.delivery.delivery_times import due_of
from braidlog.broker.delivery.dispatch_context import DispatchSource
from braidlog.broker.delivery.dispatcher import CHUNK, DELAYED
from braidlog.broker.delivery.key_slots import KeyPolicy
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.delivery.turn_batches import TurnBatches
from braidlog.broker.delivery.waiting_offsets import Lane
from braidlog.broker.reading import ack_sets
from braidlog.broker.reading import entries as ids
from braidlog.broker.reading.entries import Entry

if TYPE_CHECKING:
    from braidlog.broker.delivery.cursor import CursorState
    from braidlog.broker.delivery.entry_reads import EntryRead

# Reads for more consumers than these are larger, so that a consumer receives several entries.
MANY_CONSUMERS: Final = 100
KNOWN_KEYS_MAX: Final = 10_000  # Keys with a cached slot: hashing costs half a microsecond.


@dataclass(slots=True)
class _Holder:
    """The consumer with unacknowledged entries of a slot, and their number."""

    consumer: Consumer
    count: int


@dataclass(slots=True)
class _Share:
    """Entries that a consumer receives in a single send."""

    room: int  # Number of messages that the consumer may receive.
    wanted: int = 0  # Number of wanted messages in the entries.
    size: int = 0
    entries: list[Entry] = field(default_factory=list)


class KeySharedDispatcher(SharedDispatcher):
    """Delivers each key to one consumer."""

    kind = SubscriptionKind.KEY_SHARED

    def __init__(self, source: DispatchSource, *, policy: KeyPolicy, in_order: bool = True) -> None:
        """With `in_order`, a slot waits until no other consumer holds entries of the slot."""
        super().__init__(source)
        self.policy = policy
        self.in_order = in_order
        self._holders: dict[int, _Holder] = {}
        self._slots: dict[bytes, int] = {}  # Slots of recently seen keys.
        # Owners by slot, cached until the policy changes.
        self._owners: dict[int, Consumer | None] = {}
        # Slots with waiting entries, by the consumer that may receive them.
        self._ready: dict[Consumer, dict[Lane, None]] = {}
        self._unsorted: list[Lane] = []  # Slots to check again after a change of owners.
        # Entries whose consumer is decided, and which are not sent yet.
        self._shares: dict[Consumer, _Share] = {}
        self._shared_out = 0  # Number of wanted messages in the shares.
        self._sends_shares = False  # No entry joins the shares until all of them are sent.

    def check_room(self, consumer: Consumer) -> None:
        """Raise InvalidRequest for invalid ranges, or ranges of another consumer."""
        self.policy.check(consumer.key_ranges)

    def rewind(self) -> None:
        """Start again at the first unacknowledged entry."""
        self._ready.clear()
        self._unsorted.clear()
        self._holders.clear()
        self._forget_shares()
        super().rewind()

    def close(self) -> None:
        self._forget_shares()
        super().close()

    def drop_ahead(self) -> None:
        """As `Pump.drop_ahead`; the unsent entries of the shares are read again, too."""
        for share in self._shares.values():
            self._put_back(share)
        self._forget_shares()
        super().drop_ahead()

    def _consumer_joined(self, consumer: Consumer) -> None:
        super()._consumer_joined(consumer)
        self.policy.add(consumer)
        self._share_out_slots()

    def _consumer_left(self, consumer: Consumer) -> None:
        self.policy.remove(consumer)
        self._owners.clear()
        if (share := self._shares.pop(consumer, None)) is not None:
            self._put_back(share)
        super()._consumer_left(consumer)
        self._share_out_slots()

    def _share_out_slots(self) -> None:
        """Clear the cached owners, because owners may have changed. Waiting slots are sorted in
        pieces.
        """
        self._owners.clear()
        self._ready.clear()
        self._unsorted = list(self._again.lanes)

    def _get_ready(self) -> bool:
        for _ in range(min(len(self._unsorted), self._limits.returned_together)):
            if (slot := self._unsorted.pop()) in self._again.lanes:
                self._note_ready(slot)
        if self._unsorted:
            self.wake()
        return super()._get_ready()

    # Owners of slots.

    def _owner(self, slot: int) -> Consumer | None:
        owners = self._owners
        if slot not in owners:
            owners[slot] = self.policy.owner(slot)
        return owners[slot]

    def _free_owner(self, slot: Lane) -> Consumer | None:
        """Return the owner of a slot, unless another consumer still holds entries of the slot, or
        the owner still gives back entries, which go before later entries of their keys.
        """
        assert isinstance(slot, int)
        owner, holder = self._owner(slot), self._holders.get(slot)
        if holder is None:
            return owner
        return None if holder.consumer is not owner or owner in self._returning else owner

    def _target(self, lane: Lane, batches: TurnBatches) -> Consumer | None:
        owner = self._free_owner(lane)
        if owner is None or not owner.can_take or not batches.takes_more(owner):
            return None
        return owner

    def _lane_of(self, pending: Pending) -> Lane:
        return pending.slot

    def _due_lane(self, slot: int) -> Lane:
        return slot

    def _return_some(self) -> None:
        super()._return_some()
        if not self._returning:
            self._unsorted = list(self._again.lanes)

    def _wait(self, offsets: Sequence[int], lane: Lane) -> None:
        super()._wait(offsets, lane)
        self._note_ready(lane)

    def _note_ready(self, slot: Lane) -> None:
        """Add a slot with waiting entries to the consumer that may receive them, if any."""
        owner = self._free_owner(slot)
        if owner is not None:
            self._ready.setdefault(owner, {})[slot] = None

    def _ready_lanes(self) -> Sequence[Lane]:
        if not self._again:
            return ()
        lanes: list[Lane] = []
        first: Consumer | None = None
        for consumer, slots in self._ready.items():
            if slots and consumer.can_take and consumer.takes_more():
                lanes += self._some_waiting(slots)
                first = first or consumer
                if len(lanes) >= self._limits.ready_lanes_max:
                    break
        # Move this consumer to the end, so that the others come first next time.
        if first is not None:
            self._ready[first] = self._ready.pop(first)
        return lanes

    def _some_waiting(self, slots: dict[Lane, None]) -> Sequence[Lane]:
        """Return some of the slots; remove slots without waiting entries."""
        lanes: list[Lane] = []
        for slot in list(slots):
            if slot not in self._again.lanes:
                del slots[slot]
            elif len(lanes) < self._limits.ready_lanes_max:
                if not self._again.is_put_off(slot):
                    lanes.append(slot)
            else:
                break
        return lanes

    # Delivery. A send costs far more than an entry, and a turn's entries may be for hundreds of
    # consumers. So the turns of a read share its entries out, and the sends follow, in pieces.

    def _give(self) -> bool:
        if self._shares and (self._sends_shares or self._ready_lanes()):
            self._send_shares()  # First, so that no later entry of a key overtakes.
            return True
        return super()._give()

    def _take_in(self, read: EntryRead, position: int) -> None:
        super()._take_in(read, position)
        if len(self.consumers) > MANY_CONSUMERS and not read.is_foreign:
            self._read_bytes = self._limits.read_ahead_bytes_many

    @property
    def _holds_back(self) -> bool:
        return bool(self._shares) or super()._holds_back

    @property
    def _keeps_page(self) -> bool:
        return bool(self._shares) or super()._keeps_page

    def _give_ahead(self) -> bool:
        state = self.cursor.state()
        acked_end = state.acked_end
        ahead, waiting, slot_of = self._ahead, self._again.lanes, self._slot
        count = size = 0
        entries_max: float = self._limits.turn_entries
        bytes_max: float = self._limits.turn_bytes
        if self._rates:
            messages, left = self._rate_room()
            entries_max, bytes_max = min(entries_max, messages), min(bytes_max, left)
        while ahead and count < entries_max and size < bytes_max:
            entry = ahead[0]  # hot: see make bench
            if entry.offset < acked_end:
                if state.covers(entry.offset, entry.end):
                    self._passed(entry.offset)
                    ahead.popleft()
                    continue
                ack_sets.tell_acked(entry, state)
            slot = slot_of(entry)
            if not (entry.flags & DELAYED and self._hold_delayed(entry, slot)):
                owner = None if slot in waiting else self._free_owner(slot)
                if owner is None or not self._add(owner, entry):
                    if self._is_full:
                        break
                    self._wait((entry.offset,), slot)
            ahead.popleft()
            count += 1
            size += len(entry.body)
        if self._shares and not (count and self._waits_for_more()):
            self._send_shares()
            return True
        return count > 0

    def _waits_for_more(self) -> bool:
        """Return True if the shares are small, and the next turn adds to them."""
        count, limits = self._shared_out, self._limits
        return (
            bool(self._ahead)
            and not self._rates
            and count < min(limits.shared_out_max, len(self._shares) * limits.turn_entries_shared)
            and self._unacked + count < limits.unacked_max_subscription
        )

    def _add(self, owner: Consumer, entry: Entry) -> bool:
        """Add an entry to the consumer's share; return False if the consumer accepts no more."""
        share = self._shares.get(owner)
        if share is None:
            if not (owner.can_take and owner.takes_more() and (room := self._room(owner)) > 0):
                return False
            share = self._shares[owner] = _Share(room)
        elif share.wanted >= share.room:
            return False
        share.entries.append(entry)
        share.size += len(entry.body)
        wanted = entry.wanted if entry.ack_set else entry.record_count
        share.wanted += wanted
        self._shared_out += wanted
        if self.in_order:
            self._hold_slot(entry.slot, owner)
        return True

    def _send_shares(self) -> None:
        """Send a turn's number of shares; the next turn sends more."""
        shares, state, size = self._shares, self.cursor.state(), 0
        for consumer in list(islice(shares, self._limits.turn_entries)):
            share = shares.pop(consumer)
            if consumer in self._returning:
                self._put_back(share)
                continue
            size += share.size
            self._remove_overtaken(share, state)
            self._hand_out_share(consumer, share)
            if size >= self._limits.turn_bytes:
                break
        self._sends_shares = bool(shares)
        if not shares:
            self._shared_out = 0

    def _remove_overtaken(self, share: _Share, state: CursorState) -> None:
        """Remove the entries that were acknowledged since the turn that shared them out, and
        those with an earlier entry of their slot that a consumer has returned since.
        """
        entries, again = share.entries, self._again
        lanes = again.lanes
        if not lanes and entries[0].offset >= state.acked_end:
            return
        left: list[Entry] = []
        for entry in entries:
            offset, slot = entry.offset, entry.slot
            if offset < state.acked_end and state.covers(offset, entry.end):
                self._passed(offset)
                self._release_slot(slot)
            elif slot in lanes and (first := again.first(slot)) is not None and first < offset:
                self._release_slot(slot)
                self._wait((offset,), slot)
            else:
                ack_sets.tell_acked(entry, state)
                left.append(entry)
        if len(left) < len(entries):
            share.entries = left
            share.size = sum([len(entry.body) for entry in left])
        share.wanted = sum([e.wanted if e.ack_set else e.record_count for e in left])

    def _hand_out_share(self, consumer: Consumer, share: _Share) -> None:
        if share.entries:
            for entry in share.entries:
                if entry.flags & CHUNK:
                    self._chunk_given(consumer, entry)
            self._hand_out(consumer, share.entries, share.wanted, share.size)

    def _put_back(self, share: _Share) -> None:
        """Let the entries of a share wait for another read."""
        for entry in share.entries:
            self._release_slot(entry.slot)
            self._wait((entry.offset,), entry.slot)
        self._shared_out -= share.wanted

    def _forget_shares(self) -> None:
        self._shares.clear()
        self._shared_out, self._sends_shares = 0, False

    def _slot(self, entry: Entry) -> int:
        """Return the slot of an entry's key, and set the slot in the entry."""
        key = ids.entry_key(entry.body)
        slot = self._slots.get(key)
        if slot is None:
            if len(self._slots) >= KNOWN_KEYS_MAX:
                self._slots.clear()
            slot = self._slots[key] = self.policy.slot(key)
        entry.slot = slot
        return slot

    def _hold_delayed(self, entry: Entry, slot: int) -> bool:
        """Hold an entry for later delivery; return False if the entry is due."""
        return self._client_limits.delays and self._hold_early(entry, due_of(entry), slot)

    def _hold_slot(self, slot: int, consumer: Consumer) -> None:
        """Count another entry of a slot that the consumer holds."""
        holder = self._holders.get(slot)
        if holder is None:
            self._holders[slot] = _Holder(consumer, 1)
        else:
            holder.count += 1

    @property
    def _is_full(self) -> bool:
        """True if no more entries may wait for their key's consumer."""
        return len(self._again) >= self._limits.look_ahead_max

    def _share(
        self, batches: TurnBatches, consumer: Consumer, entry: Entry, state: CursorState
    ) -> None:
        if self.in_order:
            self._hold_slot(entry.slot, consumer)
        super()._share(batches, consumer, entry, state)

    @property
    def _released(self) -> Callable[[Pending], None] | None:
        # Not stored: a bound method refers to its object, a cycle that only the collector frees.
        return self._slot_released if self.in_order else None

    def _slot_released(self, pending: Pending) -> None:
        self._release_slot(pending.slot)

    def _release_slot(self, slot: int) -> None:
        """Note that the holder of a slot has an entry less of it."""
        if not self.in_order:
            return
        holder = self._holders[slot]
        holder.count -= 1
        if not holder.count:
            del self._holders[slot]
            if slot in self._again.lanes:
                self._note_ready(slot)
                self.wake()
            elif self._is_full:  # The entries read ahead may begin with this slot.
                self.wake()
