"""The position that a dispatcher delivers from: the cursor of a subscription.

Pulsar's readers are non-durable: their subscriptions are in memory (`reader_cursor`) and never
enter the names that Kafka and Iggy share. Knows neither consumers nor entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braidlog.broker.limits import STATE_LIMITS
from braidlog.broker.positions.cursor_moves import CursorEvent
from braidlog.broker.positions.subscriptions import Subscription, SubscriptionListener
from braidlog.storage.metadata.memory_positions import MemoryPositions
from braidlog.storage.metadata.ranges import RangeSet

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.metadata.delivery_counts import Run

# Called with each change of a cursor, and with True if the cursor made the change itself.
OnMove = Callable[[CursorEvent, bool], None]


@dataclass(slots=True)
class CursorState:
    """Snapshot of a cursor. Use it at once: the snapshot does not follow later changes."""

    position: int  # Next wanted offset: everything below is acknowledged.
    # Last set by a commit or seek; Pulsar acknowledged everything from here to the position.
    floor: int
    acked: RangeSet  # Acknowledged ranges above the position.

    @property
    def acked_end(self) -> int:
        """Offset from which on nothing is acknowledged."""
        return max(self.position, self.acked.end)

    def covers(self, start: int, end: int) -> bool:
        """Return True if all of `[start, end)` is acknowledged."""
        if end <= self.position:
            return True
        return bool(self.acked) and self.acked.contains(max(start, self.position), end)

    def unacked(self, start: int, end: int) -> int:
        """Return the number of wanted messages in the entry `[start, end)`."""
        if self.covers(start, end):
            return 0
        return end - start - sum(high - low for low, high in self.acked_ranges(start, end))

    def acked_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of the entry `[start, end)` that Pulsar acknowledged.

        If another protocol's commit left the position inside the entry, the committed part is not
        included: the entry is sent whole.
        """
        ranges: list[tuple[int, int]] = []
        low = max(start, self.floor)
        if low < self.position:
            ranges.append((low, min(self.position, end)))
        if self.acked:
            ranges += self.acked.within(max(start, self.position), end)
        return ranges


@dataclass(slots=True)
class _AgainState(CursorState):
    """A `CursorState` with offsets below the position that are wanted again."""

    again: Collection[int] = ()

    def covers(self, start: int, end: int) -> bool:
        """Return True if all of `[start, end)` is acknowledged and no entry there is
        wanted again.
        """
        return start not in self.again and CursorState.covers(self, start, end)


class DispatchCursor:
    """A partition's cursor, already set, of a subscription. Changes return a ticket (0: no wait).

    Other protocols may share a durable subscription. The cursor passes itself as the origin of its
    changes, to distinguish them from other clients' changes.
    """

    def __init__(self, subscription: Subscription, index: int, *, is_durable: bool = True) -> None:
        self.subscription = subscription
        self.index = index
        self.is_durable = is_durable
        # Pieces of chunked messages below the position, which are delivered once more, each with a
        # later piece of its message: it is wanted until that piece is acknowledged.
        self.again: dict[int, int] = {}
        self._on_move: OnMove | None = None

    @property
    def position(self) -> int:
        """Next wanted offset; 0 when another listener has just deleted the cursor."""
        return self.subscription.position(self.index) or 0

    @property
    def is_set(self) -> bool:
        """True until a listener deletes the cursor."""
        return self.subscription.position(self.index) is not None

    def state(self) -> CursorState:
        """Return a snapshot of the cursor."""
        standing = self.subscription.standing(self.index)
        return _AgainState(*standing, self.again) if self.again else CursorState(*standing)

    def remove_acked(self) -> list[int]:
        """Remove the offsets that are no longer wanted from `again`, and return them."""
        if not self.again:
            return []
        state = CursorState(*self.subscription.standing(self.index))
        done = [offset for offset, later in self.again.items() if state.covers(later, later + 1)]
        for offset in done:
            del self.again[offset]
        return done

    def ack(self, ranges: Iterable[tuple[int, int]], *, lazy: bool) -> int:
        """Acknowledge ranges, as `Subscription.ack` does."""
        return self.subscription.ack(self.index, ranges, lazy=lazy, mover=self)

    def ack_to(self, position: int, *, lazy: bool) -> int:
        """Acknowledge everything below `position`, as `Subscription.ack_to` does."""
        return self.subscription.ack_to(self.index, position, lazy=lazy, mover=self)

    def seek(self, position: int) -> int:
        """Continue at `position`, as `Subscription.seek` does."""
        return self.subscription.seek(self.index, position, mover=self)

    def deliveries(self) -> Sequence[Run] | None:
        """Return stored delivery counts, as `Subscription.deliveries` does."""
        return self.subscription.deliveries(self.index)

    def count_deliveries(self, runs: Sequence[Run]) -> None:
        """Store delivery counts, as `Subscription.count_deliveries` does."""
        self.subscription.count_deliveries(self.index, runs)

    def follow(self, on_move: OnMove) -> None:
        """Start listening to the subscription."""
        self._on_move = on_move
        self.subscription.listeners.add(self)

    def unfollow(self) -> None:
        """Stop listening to the subscription."""
        self._on_move = None
        self.subscription.listeners.discard(self)

    def moved(
        self, index: int, event: CursorEvent, mover: SubscriptionListener | None = None
    ) -> None:
        """Pass on a change of this partition's cursor."""
        if index == self.index and self._on_move is not None:
            self._on_move(event, mover is self)


def reader_cursor(topic: Topic, name: bytes, index: int, position: int) -> DispatchCursor:
    """Return a cursor for a reader without a durable subscription: its position is in memory only,
    and ends with the cursor. Raises TopicNotFound, PartitionNotFound, InvalidName.
    """
    subscription = Subscription(topic, name, MemoryPositions(), lambda _: None, STATE_LIMITS)
    subscription.seek(index, position)
    return DispatchCursor(subscription, index, is_durable=False)
