"""The position that a dispatcher delivers from: a cursor of a shared subscription, or one in
memory.

Pulsar's readers are non-durable: their positions live here and never enter the names that Kafka and
Iggy share. Knows neither consumers nor entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from braidlog.broker.positions.cursor_moves import CursorEvent
from braidlog.storage.metadata.ranges import RangeSet

if TYPE_CHECKING:
    from braidlog.broker.positions.subscriptions import Subscription, SubscriptionListener

# Called with each change of a cursor, and with True if the cursor made the change itself.
OnMove = Callable[[CursorEvent, bool], None]


@dataclass(slots=True)
class CursorState:
    """Where a cursor stands. Use it at once: it does not follow later changes."""

    position: int  # The next offset wanted: everything below is acknowledged.
    floor: int  # Last set by a commit or seek; from here to the position Pulsar acknowledged.
    acked: RangeSet  # What is acknowledged above the position.

    def covers(self, start: int, end: int) -> bool:
        """Whether all of `[start, end)` is acknowledged."""
        if end <= self.position:
            return True
        return bool(self.acked) and self.acked.contains(max(start, self.position), end)

    def unacked(self, start: int, end: int) -> int:
        """How many messages of the entry `[start, end)` are still wanted."""
        if self.covers(start, end):
            return 0
        return end - start - sum(high - low for low, high in self.acked_ranges(start, end))

    def acked_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of the entry `[start, end)` that Pulsar acknowledged.

        Where another protocol's commit left the position inside the entry, that part is left out:
        the entry is sent whole.
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
    """As a `CursorState`, where some offsets below the position are wanted once more."""

    again: Collection[int] = ()

    def covers(self, start: int, end: int) -> bool:
        """Whether all of `[start, end)` is acknowledged, and an entry there is not wanted."""
        return start not in self.again and CursorState.covers(self, start, end)


class DispatchCursor(Protocol):
    """What a dispatcher needs of a position. Changes return a ticket (0: nothing to wait for)."""

    is_durable: bool
    again: dict[int, int]
    """Pieces of chunked messages below the position, which are delivered once more, each with a
    later piece of its message: it is wanted until that one is acknowledged."""

    @property
    def position(self) -> int:
        """The next offset wanted."""

    @property
    def is_set(self) -> bool:
        """Whether it is there. One that another client has ended takes no acknowledgements."""

    def state(self) -> CursorState:
        """Where it stands."""

    def settled(self) -> list[int]:
        """Take those out of `again` that are not wanted any more, and return them."""

    def ack(self, ranges: Iterable[tuple[int, int]], *, lazy: bool) -> int:
        """Acknowledge half-open offset ranges; lazy: on disk within the flush interval.

        Raises LimitExceeded after taking those that find room, StorageFull, StorageFailed.
        """

    def ack_to(self, position: int, *, lazy: bool) -> int:
        """Acknowledge everything below `position`; never moves back."""

    def seek(self, position: int) -> int:
        """Forget every acknowledgement and go on at `position`."""

    def follow(self, on_move: OnMove) -> None:
        """Call `on_move` within each change from now on. It must not move the cursor."""

    def unfollow(self) -> None:
        """End `follow`."""


class SubscriptionCursor:
    """One partition's cursor, already set, of a subscription that other protocols may share.

    Names itself as the mover of its changes, and so tells them from those of other clients.
    """

    is_durable = True

    def __init__(self, subscription: Subscription, index: int) -> None:
        self.subscription = subscription
        self.index = index
        self.again: dict[int, int] = {}
        self._on_move: OnMove | None = None

    @property
    def position(self) -> int:
        """The next offset wanted; 0 when another listener has just deleted the cursor."""
        return self.subscription.position(self.index) or 0

    @property
    def is_set(self) -> bool:
        """Whether no listener has deleted it."""
        return self.subscription.position(self.index) is not None

    def state(self) -> CursorState:
        """Where it stands."""
        standing = self.subscription.standing(self.index)
        return _AgainState(*standing, self.again) if self.again else CursorState(*standing)

    def settled(self) -> list[int]:
        """Take those out of `again` that are not wanted any more, and return them."""
        if not self.again:
            return []
        state = CursorState(*self.subscription.standing(self.index))
        done = [one for one, later in self.again.items() if state.covers(later, later + 1)]
        for one in done:
            del self.again[one]
        return done

    def ack(self, ranges: Iterable[tuple[int, int]], *, lazy: bool) -> int:
        """Acknowledge ranges, as `Subscription.ack` does."""
        return self.subscription.ack(self.index, ranges, lazy=lazy, mover=self)

    def ack_to(self, position: int, *, lazy: bool) -> int:
        """Acknowledge everything below, as `Subscription.ack_to` does."""
        return self.subscription.ack_to(self.index, position, lazy=lazy, mover=self)

    def seek(self, position: int) -> int:
        """Go on at `position`, as `Subscription.seek` does."""
        return self.subscription.seek(self.index, position, mover=self)

    def follow(self, on_move: OnMove) -> None:
        """Listen to the subscription."""
        self._on_move = on_move
        self.subscription.listeners.add(self)

    def unfollow(self) -> None:
        """Listen no more."""
        self._on_move = None
        self.subscription.listeners.discard(self)

    def moved(
        self, index: int, event: CursorEvent, mover: SubscriptionListener | None = None
    ) -> None:
        """Pass on a change of this partition's cursor."""
        if index == self.index and self._on_move is not None:
            self._on_move(event, mover is self)


class MemoryCursor:
    """A non-durable position: gone with its last consumer."""

    is_durable = False
    is_set = True

    def __init__(self, position: int) -> None:
        self.position = position
        self.again: dict[int, int] = {}  # Always empty.
        self._floor = position
        self._acked = RangeSet()
        self._on_move: OnMove | None = None

    def state(self) -> CursorState:
        """Where it stands."""
        return CursorState(self.position, self._floor, self._acked)

    def settled(self) -> list[int]:
        """Nothing is wanted once more."""
        return []

    def ack(self, ranges: Iterable[tuple[int, int]], *, lazy: bool) -> int:
        """Acknowledge ranges. Those that find no room count as not acknowledged."""
        for start, end in ranges:
            if end > self.position:
                self._acked.add(max(start, self.position), end)
        self.position = self._acked.pop_below(self.position)
        return self._moved(CursorEvent.ACKED)

    def ack_to(self, position: int, *, lazy: bool) -> int:
        """Acknowledge everything below."""
        if position > self.position:
            self.position = self._acked.pop_below(position)
        return self._moved(CursorEvent.ACKED)

    def seek(self, position: int) -> int:
        """Forget every acknowledgement and go on at `position`."""
        self._acked.clear()
        self.position = self._floor = position
        return self._moved(CursorEvent.SOUGHT)

    def follow(self, on_move: OnMove) -> None:
        """Call `on_move` with each change; nobody else moves the cursor."""
        self._on_move = on_move

    def unfollow(self) -> None:
        """End `follow`."""
        self._on_move = None

    def _moved(self, event: CursorEvent) -> int:
        if self._on_move is not None:
            self._on_move(event, True)
        return 0  # Nothing to wait for.
