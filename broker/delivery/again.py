"""Offsets of entries that wait to be read once more: given back, held up by another entry of their
lane, or delayed until now.

A lane is what goes to one consumer in order: a key's slot, or the pieces of a chunked message;
`ANYBODY` is the lane of everything else. An entry that could not be read is put off: what follows
it in its lane waits behind it, but nothing does in the lane `ANYBODY`. Keeps no entry, only
offsets. Knows no consumer.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from braidlog.broker.delivery.retries import Retries

Lane = int | bytes
ANYBODY: Final = b""


class Again:
    """A set of offsets by lane, lowest first."""

    def __init__(self) -> None:
        self._lane_of: dict[int, Lane] = {}
        self._heaps: dict[Lane, list[int]] = {}  # Offsets of a lane; some no longer wait.
        self._counts: dict[Lane, int] = {}  # How many of a lane wait; never 0.
        self._retries = Retries()
        self._put_off: set[int] = set()  # Of `ANYBODY`: in no lane until they are brought back.

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
        self._retries.settled(offset)
        self._remove(offset)

    def _remove(self, offset: int) -> None:
        lane = self._lane_of.pop(offset, None)
        if lane is None:
            return
        self._counts[lane] -= 1
        if not self._counts[lane]:
            del self._counts[lane], self._heaps[lane]

    def put_off(self, offset: int, now: float) -> bool:
        """Try an offset later that waits and could not be read; each time after a longer wait.
        Returns whether this is its first failure.
        """
        if self._lane_of[offset] == ANYBODY:
            self._remove(offset)
            self._put_off.add(offset)
        return self._retries.failed(offset, now)

    def is_put_off(self, lane: Lane) -> bool:
        """Whether the lowest offset of a lane is to be tried later."""
        return bool(self._retries) and self.first(lane) in self._retries

    def bring_back(self, now: float) -> None:
        """Let those be tried again whose wait is over."""
        for offset in self._retries.pop_due(now):
            if offset in self._put_off:
                self._put_off.remove(offset)
                self.add((offset,), ANYBODY)

    @property
    def due_at(self) -> float:
        """When `bring_back` has something to do."""
        return self._retries.due_at

    def clear(self) -> None:
        """Forget all."""
        self._retries.clear()
        self._put_off.clear()
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
