"""Records that members of a share group hold: the acquisition locks of a partition.

Keeps ranges of offsets with their holder, delivery count and deadline. Knows no record and no
cursor.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from braidlog.broker.delivery.consumer import Consumer


class Lock(msgspec.Struct):
    """A held range `[first, end)`."""

    first: int
    end: int
    holder: Consumer
    count: int  # Deliveries of each record, this one included.
    due: float  # Time at which the lock ends, in trio's seconds.
    # True for records that the holder cannot be shown. They go with the record at `end`.
    is_hidden: bool = False


class Locks:
    """The locks of a partition, disjoint and sorted by offset."""

    def __init__(self) -> None:
        """Begin without locks."""
        self._firsts: list[int] = []
        self._locks: list[Lock] = []
        self.records = 0
        """Number of locked records, without hidden records."""
        self.due_at = math.inf
        """No lock ends before this time."""

    def __len__(self) -> int:
        return len(self._locks)

    def __iter__(self) -> Iterator[Lock]:
        return iter(self._locks)

    def add(self, lock: Lock) -> None:
        """Add a lock of offsets that no lock holds."""
        place = bisect_left(self._firsts, lock.first)
        self._firsts.insert(place, lock.first)
        self._locks.insert(place, lock)
        self.due_at = min(self.due_at, lock.due)
        if not lock.is_hidden:
            self.records += lock.end - lock.first

    def overlaps(self, start: int, end: int) -> bool:
        """Return True if some offset of `[start, end)` is locked."""
        place = bisect_left(self._firsts, end)
        return place > 0 and self._locks[place - 1].end > start

    def are_of(self, holder: Consumer, start: int, end: int) -> bool:
        """Return True if `holder` holds every offset of `[start, end)`."""
        place = bisect_right(self._firsts, start) - 1
        while start < end:
            if not 0 <= place < len(self._locks):
                return False
            lock = self._locks[place]
            if lock.holder is not holder or not lock.first <= start < lock.end:
                return False
            start, place = lock.end, place + 1
        return True

    def with_hidden(self, start: int) -> int:
        """Return the first of the hidden records that go with the record at `start`."""
        place = bisect_left(self._firsts, start) - 1
        while place >= 0 and self._locks[place].is_hidden and self._locks[place].end == start:
            start, place = self._locks[place].first, place - 1
        return start

    def within(self, start: int, end: int) -> list[Lock]:
        """Return the locks that overlap `[start, end)`, each cut to that range."""
        low = bisect_right(self._firsts, start)
        if low and self._locks[low - 1].end > start:
            low -= 1
        high = bisect_left(self._firsts, end, low)
        return [
            Lock(
                max(lock.first, start),
                min(lock.end, end),
                lock.holder,
                lock.count,
                lock.due,
                lock.is_hidden,
            )
            for lock in self._locks[low:high]
        ]

    def take(self, start: int, end: int) -> list[Lock]:
        """Remove the locks of `[start, end)`; return them, each cut to that range."""
        ended = self.within(start, end)
        if not ended:
            return ended
        low = bisect_right(self._firsts, start)
        if low and self._locks[low - 1].end > start:
            low -= 1
        high = bisect_left(self._firsts, end, low)
        first, last = self._locks[low], self._locks[high - 1]
        left = []
        if first.first < start:
            left.append(_cut(first, first.first, start))
        if last.end > end:
            left.append(_cut(last, end, last.end))
        self._locks[low:high] = left
        self._firsts[low:high] = [lock.first for lock in left]
        self.records -= sum(lock.end - lock.first for lock in ended if not lock.is_hidden)
        return ended

    def take_of(self, holder: Consumer) -> list[Lock]:
        """Remove and return all locks of a holder."""
        return self._take([lock for lock in self._locks if lock.holder is holder])

    def take_due(self, now: float) -> list[Lock]:
        """Remove and return the locks whose time is over."""
        if self.due_at > now:
            return []
        due = self._take([lock for lock in self._locks if lock.due <= now])
        self.due_at = min((lock.due for lock in self._locks), default=math.inf)
        return due

    def _take(self, locks: list[Lock]) -> list[Lock]:
        return [part for lock in locks for part in self.take(lock.first, lock.end)]

    def clear(self) -> None:
        """End all locks."""
        self._firsts.clear()
        self._locks.clear()
        self.records, self.due_at = 0, math.inf


def _cut(lock: Lock, first: int, end: int) -> Lock:
    return Lock(first, end, lock.holder, lock.count, lock.due, lock.is_hidden)
