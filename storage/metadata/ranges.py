"""Sets of offsets as sorted ranges: the acknowledged offsets above a subscription's position.

Knows nothing of subscriptions. Two flat arrays of int64, searched by bisection: 16 bytes a range.
The lowest ranges go first when a position moves on, so these ranges are only stepped over (`_head`)
and cut off from time to time.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Self

# Ranges in a set. 16 MiB, ten times the number that Pulsar's clients leave unacknowledged by
# default; an insertion then moves 8 MiB at worst (0.1 ms). A full set refuses a range that touches
# no other: see `RangeSet.add`.
RANGES_MAX: Final = 1 << 20
RANGE_BYTES: Final = 16
STALE_MAX: Final = 64  # Fewer passed ranges than this are never worth a cut.


class RangeSet:
    """Sorted, disjoint ranges `[start, end)` of offsets; adjoining ranges are merged."""

    __slots__ = ("_ends", "_head", "_starts", "ranges_max", "total")

    def __init__(self, *, ranges_max: int = RANGES_MAX) -> None:
        self._starts = array("q")
        self._ends = array("q")
        self._head = 0
        self.ranges_max = ranges_max
        self.total = 0
        """Number of offsets in the set."""

    def __len__(self) -> int:
        return len(self._starts) - self._head

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(
            islice(self._starts, self._head, None),
            islice(self._ends, self._head, None),
            strict=True,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # Mutable.

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    @property
    def end(self) -> int:
        """End of the last range; 0 without ranges."""
        return self._ends[-1] if len(self._ends) > self._head else 0

    def add(self, start: int, end: int) -> bool:
        """Add `[start, end)`; return False if the set refused the range.

        A set refuses only a range that touches no other, if the set has `ranges_max`: the offsets
        then count as not acknowledged and are delivered again. No range in the set is dropped, and
        nothing is ever skipped.
        """
        assert 0 <= start < end
        starts, ends = self._starts, self._ends
        low = bisect_left(ends, start, self._head)  # The first range that ends at or above start.
        high = bisect_right(starts, end, low)  # The first that begins above end.
        if low == high:
            if len(self) >= self.ranges_max:
                return False
            starts.insert(low, start)
            ends.insert(low, end)
            self.total += end - start
            return True
        start, end = min(start, starts[low]), max(end, ends[high - 1])
        self.total += end - start - self._covered(low, high)
        starts[low], ends[low] = start, end
        if high - low > 1:
            del starts[low + 1 : high], ends[low + 1 : high]
        return True

    def update(self, other: "RangeSet") -> None:
        """Add all ranges of another set, as far as `add` takes them."""
        if len(self) + len(other) <= self.ranges_max and (
            not other or not self or self._ends[-1] < other._starts[other._head]
        ):
            self._starts += other._starts[other._head :]
            self._ends += other._ends[other._head :]
            self.total += other.total
            return
        for start, end in other:
            self.add(start, end)

    def touches(self, start: int, end: int) -> bool:
        """Return True if `[start, end)` overlaps or adjoins a range: then `add` never
        refuses it.
        """
        low = bisect_left(self._ends, start, self._head)
        return low < len(self._starts) and self._starts[low] <= end

    def contains(self, start: int, end: int) -> bool:
        """Return True if every offset of `[start, end)` is in the set."""
        place = bisect_right(self._starts, start, self._head) - 1
        return place >= self._head and self._ends[place] >= end

    def next_gap(self, offset: int) -> int:
        """Return the first offset at or above `offset` that is not in the set."""
        place = bisect_right(self._starts, offset, self._head) - 1
        return max(offset, self._ends[place]) if place >= self._head else offset

    def gap_before(self, end: int) -> int:
        """Return the highest offset below `end` that is not in the set."""
        place = bisect_left(self._ends, end, self._head)
        is_covered = place < len(self._starts) and self._starts[place] < end
        return self._starts[place] - 1 if is_covered else end - 1

    def gap_end(self, offset: int, end: int) -> int:
        """Return the end of the gap that contains `offset`, at most `end`."""
        place = bisect_right(self._starts, offset, self._head)
        return min(end, self._starts[place]) if place < len(self._starts) else end

    def remove(self, start: int, end: int) -> None:
        """Drop the offsets of `[start, end)`."""
        assert 0 <= start < end
        starts, ends = self._starts, self._ends
        low = bisect_right(ends, start, self._head)
        high = bisect_left(starts, end, low)
        if low == high:
            return
        left = [(starts[low], start)] if starts[low] < start else []
        if ends[high - 1] > end:
            left.append((end, ends[high - 1]))
        remaining = sum(last - first for first, last in left)
        self.total += remaining - self._covered(low, high)
        starts[low:high] = array("q", [first for first, _ in left])
        ends[low:high] = array("q", [last for _, last in left])

    def remove_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Drop the offsets of ascending, disjoint ranges; the set is copied once, however many
        they are.
        """
        starts, ends, count = self._starts, self._ends, len(self._starts)
        left_starts, left_ends = array("q"), array("q")
        place = self._head  # Of the next range to copy; `rest` is its start, if its head is gone.
        rest: int | None = None
        for start, end in ranges:
            low = bisect_right(ends, start, place)
            if low > place:
                left_starts.append(starts[place] if rest is None else rest)
                left_starts += starts[place + 1 : low]
                left_ends += ends[place:low]
                place, rest = low, None
            while place < count and (first := starts[place] if rest is None else rest) < end:
                if first < start:
                    left_starts.append(first)
                    left_ends.append(start)
                self.total -= min(end, ends[place]) - max(start, first)
                if ends[place] > end:
                    rest = end
                    break
                place, rest = place + 1, None
        if place < count:
            left_starts.append(starts[place] if rest is None else rest)
            left_starts += starts[place + 1 :]
            left_ends += ends[place:]
        self._starts, self._ends, self._head = left_starts, left_ends, 0

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of `[start, end)` that are in the set, ascending."""
        low = bisect_right(self._ends, start, self._head)
        high = bisect_left(self._starts, end, low)
        return [
            (max(start, self._starts[place]), min(end, self._ends[place]))
            for place in range(low, high)
        ]

    def count_within(self, start: int, end: int) -> int:
        """Return the number of offsets of `[start, end)` in the set."""
        low = bisect_right(self._ends, start, self._head)
        high = bisect_left(self._starts, end, low)
        if low == high:
            return 0
        below = max(0, start - self._starts[low])
        above = max(0, self._ends[high - 1] - end)
        if low == self._head and high == len(self._starts):
            return self.total - below - above
        return self._covered(low, high) - below - above

    def pop_below(self, position: int) -> int:
        """Drop offsets below `position`; return `position`, or the end of the range that contains
        it.
        """
        place = bisect_right(self._starts, position, self._head)
        if place == self._head:
            return position
        position = max(position, self._ends[place - 1])
        self.total -= self._covered(self._head, place)
        self._head = place
        if place > STALE_MAX and place * 2 > len(self._starts):
            del self._starts[:place], self._ends[:place]
            self._head = 0
        return position

    def clear(self) -> None:
        """Drop everything."""
        del self._starts[:], self._ends[:]
        self._head = self.total = 0

    def pieces(self, count: int) -> Iterator["RangeSet"]:
        """Yield the set as several sets of at most `count` ranges each, ascending."""
        for low in range(self._head, len(self._starts), count):
            yield self._of(self._starts[low : low + count], self._ends[low : low + count])

    def to_bytes(self) -> bytes:
        """Return all starts, then all ends, int64 little-endian each."""
        return _little_endian(self._starts[self._head :] + self._ends[self._head :]).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the set that `to_bytes` stored. Raises ValueError if the size is impossible."""
        if len(data) % RANGE_BYTES:
            raise ValueError(f"{len(data)} bytes hold no whole number of ranges")
        flat = array("q")
        flat.frombytes(data)
        _little_endian(flat)
        count = len(flat) // 2
        return cls._of(flat[:count], flat[count:])

    @classmethod
    def _of(cls, starts: "array[int]", ends: "array[int]") -> Self:
        ranges = cls()
        ranges._starts = starts
        ranges._ends = ends
        ranges.total = sum(ends) - sum(starts)
        return ranges

    def _covered(self, low: int, high: int) -> int:
        """Return the number of offsets in the ranges `low` to `high - 1` of the arrays."""
        if high - low == 1:
            return self._ends[low] - self._starts[low]
        return sum(self._ends[low:high]) - sum(self._starts[low:high])


def _little_endian(flat: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        flat.byteswap()
    return flat
