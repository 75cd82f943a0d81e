"""Offsets of entries that wait to be read once more: given back, held up by another entry of their
lane, or delayed until now.

A lane is what goes to one consumer in order: a key's slot, or the pieces of a chunked message;
`ANYBODY` is the lane of everything else. Keeps no entry, only offsets. Knows no consumer.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import Final

Lane = int | bytes
ANYBODY: Final = b""


class Again:
    """A set of offsets by lane, lowest first."""

    def __init__(self) -> None:
        self._lane_of: dict[int, Lane] = {}
        self._heaps: dict[Lane, list[int]] = {}  # Offsets of a lane; some no longer wait.
        self._counts: dict[Lane, int] = {}  # How many of a lane wait; never 0.

    def __len__(self) -> int:
        return len(self._lane_of)

    def __contains__(self, offset: int) -> bool:
        return offset in self._lane_of

    @property
    def lanes(self) -> Collection[Lane]:
        """The lanes in which something waits."""
        return self._counts.keys()

    def add(self, offsets: Sequence[int], lane: Lane) -> None:
        """Let entries of that lane wait."""
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
        """Let an offset wait no longer, if it did."""
        lane = self._lane_of.pop(offset, None)
        if lane is None:
            return
        self._counts[lane] -= 1
        if not self._counts[lane]:
            del self._counts[lane], self._heaps[lane]

    def clear(self) -> None:
        """Forget all."""
        self._lane_of.clear()
        self._heaps.clear()
        self._counts.clear()

    def first(self, lane: Lane) -> int | None:
        """The lowest offset of a lane."""
        heap = self._heaps.get(lane)
        if heap is None:
            return None
        while self._lane_of.get(heap[0]) != lane:
            heapq.heappop(heap)
        return heap[0]

    def lowest(self, lanes: Iterable[Lane]) -> int | None:
        """The lowest offset of these lanes."""
        return min((o for lane in lanes if (o := self.first(lane)) is not None), default=None)

    def lane(self, offset: int) -> Lane:
        """The lane of an offset that waits."""
        return self._lane_of[offset]
