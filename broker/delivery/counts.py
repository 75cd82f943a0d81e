"""Delivery counts of a queue's partition: the number of times that records were given out.

Only records that came back unacknowledged have a count. A queue that has or had members of a share
group counts, and then limits the deliveries of each record. Knows no consumer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.storage.metadata.delivery_counts import Run

# Offsets with a count in a partition's queue. Beyond them the counts of the lowest offsets are
# forgotten: those records may then be delivered more often.
COUNTED_MAX: Final = 500_000


class DeliveryCounts:
    """Counts by offset."""

    def __init__(self, counted_max: int = COUNTED_MAX) -> None:
        """Begin without counts."""
        self.is_counting = False
        """True once a member of a share group has joined."""
        self._counts: dict[int, int] = {}
        self._counted_max = counted_max

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, offset: int) -> int:
        """Return how often the record was given out and came back."""
        return self._counts.get(offset, 0)

    def begin(self) -> None:
        """Count from now on."""
        self.is_counting = True

    def load(self, runs: Sequence[Run]) -> None:
        """Take over stored counts of a queue that counts."""
        self.is_counting = True
        for start, end, count in runs:
            self.came_back(start, end, count)

    def all_runs(self) -> list[Run]:
        """Return all counts, sorted."""
        runs: list[Run] = []
        start = end = count = -1
        for offset in sorted(self._counts):
            if offset != end or self._counts[offset] != count:
                if end > start:
                    runs.append((start, end, count))
                start, count = offset, self._counts[offset]
            end = offset + 1
        if end > start:
            runs.append((start, end, count))
        return runs

    def came_back(self, start: int, end: int, count: int) -> None:
        """Note that the records of `[start, end)` came back after `count` deliveries."""
        counts = self._counts
        counts.update(dict.fromkeys(range(start, end), count))
        while len(counts) > self._counted_max:
            del counts[next(iter(counts))]

    def runs(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield `[start, end)` in parts with an equal count: start, end, count."""
        counts = self._counts
        if not counts:
            yield start, end, 0
            return
        count = counts.get(start, 0)
        for offset in range(start + 1, end):
            following = counts.get(offset, 0)
            if following != count:
                yield start, offset, count
                start, count = offset, following
        yield start, end, count

    def forget(self, start: int, end: int) -> None:
        """Forget the counts of acknowledged records."""
        counts = self._counts
        if end - start > len(counts):
            for offset in [offset for offset in counts if start <= offset < end]:
                del counts[offset]
        else:
            for offset in range(start, end) if counts else ():
                counts.pop(offset, None)

    def clear(self) -> None:
        """Forget all counts, after a seek."""
        self._counts.clear()
