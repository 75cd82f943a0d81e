"""Offsets of entries to read once more: returned entries, entries held up behind another entry of
their lane, and entries whose delay has ended.

A lane is a sequence that one consumer must receive in order: the slot of a key, or the pieces of a
chunked message. `ANYBODY` is the lane of all other entries. An unreadable entry is put off, and the
entries behind it in its lane wait; in the lane `ANYBODY` nothing waits for it. Stores offsets only,
no entries. Knows no consumer.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from braidlog.broker.delivery.retries import Retries

Lane = int | bytes
ANYBODY: Final = b""


class WaitingOffsets:
    """Sets of offsets by lane, lowest first."""

    def __init__(self) -> None:
        self._lane_of: dict[int, Lane] = {}
        self._heaps: dict[Lane, list[int]] = {}  # Offsets by lane; some may no longer wait.
        self._counts: dict[Lane, int] = {}  # Number of waiting offsets by lane; never 0.
        self._retries = Retries()
        # Offsets of `ANYBODY` that `bring_back` returns to their lane.
        self._put_off: set[int] = set()

    def __len__(self) -> int:
        return len(self._lane_of)

    def __contains__(self, offset: int) -> bool:
        return offset in self._lane_of

    @property
    def lanes(self) -> Collection[Lane]:
        """Lanes with waiting offsets."""
        return self._counts.keys()

    def add(self, offsets: Sequence[int], lane: Lane) -> None:
        """Add waiting offsets to a lane."""
        lane_of = self._lane_of
        new = [offset for offset in offsets if offset not in lane_of]
        if not new:
            return
        heap = self._heaps.setdefault(lane, [])
        if len(new) == 1:
            heapq.heappush(heap, new[0])
        else:
            heap += new
            heapq.heapify(heap)
        lane_of.update(dict.fromkeys(new, lane))
        self._counts[lane] = self._counts.get(lane, 0) + len(new)

    def discard(self, offset: int) -> None:
        """Remove an offset if present."""
        self._retries.forget(offset)
        self._remove(offset)

    def _remove(self, offset: int) -> None:
        lane = self._lane_of.pop(offset, None)
        if lane is None:
            return
        self._counts[lane] -= 1
        if not self._counts[lane]:
            del self._counts[lane], self._heaps[lane]

    def put_off(self, offset: int, now: float) -> bool:
        """Try a waiting, unreadable offset later; each failure makes the wait longer. Return True
        on the first failure of the offset.
        """
        if self._lane_of[offset] == ANYBODY:
            self._remove(offset)
            self._put_off.add(offset)
        return self._retries.failed(offset, now)

    def is_put_off(self, lane: Lane) -> bool:
        """Return True if the lowest offset of a lane is put off."""
        return bool(self._retries) and self.first(lane) in self._retries

    def bring_back(self, now: float) -> None:
        """Return the put-off offsets whose wait is over to their lanes."""
        for offset in self._retries.pop_due(now):
            if offset in self._put_off:
                self._put_off.remove(offset)
                self.add((offset,), ANYBODY)

    @property
    def due_at(self) -> float:
        """Time at which `bring_back` next has work."""
        return self._retries.due_at

    def clear(self) -> None:
        """Forget all offsets."""
        self._retries.clear()
        self._put_off.clear()
        self._lane_of.clear()
        self._heaps.clear()
        self._counts.clear()

    def first(self, lane: Lane) -> int | None:
        """Return the lowest offset of a lane."""
        heap = self._heaps.get(lane)
        if heap is None:
            return None
        while self._lane_of.get(heap[0]) != lane:
            heapq.heappop(heap)
        return heap[0]

    def lowest(self, lanes: Iterable[Lane]) -> int | None:
        """Return the lowest offset of these lanes."""
        return min((o for lane in lanes if (o := self.first(lane)) is not None), default=None)

    def lane(self, offset: int) -> Lane:
        """Return the lane of a waiting offset."""
        return self._lane_of[offset]
