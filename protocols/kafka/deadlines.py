"""Deadlines of the members of a group, the soonest first. Knows no clock and no group.

A deadline may move: the heap holds a time that is no later than the deadline, and the holder says
what follows once that time has come.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

Thing = TypeVar("Thing")

# The heap is rebuilt if it holds this many entries more than twice the things: entries of things
# that are gone stay in the heap until their time.
SPARE_ENTRIES_MAX = 64


class Deadlines(Generic[Thing]):
    """Things, each with a time at which its holder must look at the thing."""

    def __init__(self, is_live: Callable[[Thing], bool]) -> None:
        """Start empty. `is_live` tells if the holder still has a thing."""
        self._is_live = is_live
        self._heap: list[tuple[float, int, Thing]] = []
        self._numbers = count()  # Orders entries of the same time.

    def add(self, at: float, thing: Thing, live: int) -> None:
        """Look at a thing at a time. `live` is the number of things that the holder has."""
        heapq.heappush(self._heap, (at, next(self._numbers), thing))
        if len(self._heap) > 2 * live + SPARE_ENTRIES_MAX:
            self._rebuild()

    def next_due(self) -> float:
        """Return the next time at which the holder must look; infinity without any."""
        heap = self._heap
        while heap and not self._is_live(heap[0][2]):
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def take_due(self, now: float) -> list[Thing]:
        """Remove and return the live things whose time has come, each once."""
        heap = self._heap
        due: dict[int, Thing] = {}
        while heap and heap[0][0] <= now:
            thing = heapq.heappop(heap)[2]
            if self._is_live(thing):
                due[id(thing)] = thing
        return list(due.values())

    def _rebuild(self) -> None:
        """Keep the soonest entry of each live thing."""
        soonest: dict[int, tuple[float, int, Thing]] = {}
        for entry in sorted(self._heap, key=lambda entry: entry[:2]):
            if self._is_live(entry[2]):
                soonest.setdefault(id(entry[2]), entry)
        self._heap = list(soonest.values())  # A sorted list is a heap.
