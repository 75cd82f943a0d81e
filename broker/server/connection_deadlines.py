"""ConnectionDeadlines of all connections, kept by one task. Knows no protocol and no socket.

A task for each connection took a third of the time to open and to close a connection.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import Protocol

import trio

# Connections called in a turn. Thousands of clients that connect together are due together.
DUE_TOGETHER = 100
# Removed connections leave entries in the heap; the heap is made anew when more than half of its
# entries are such entries, and more than these.
STALE_MIN = 100


class Timed(Protocol):
    """A connection with a deadline."""

    id: int

    def keep_time(self, now: float) -> float:
        """Act if the deadline was reached; return the next. Neither waits nor raises."""


class ConnectionDeadlines:
    """Calls connections at their deadlines, in `trio.current_time()` seconds.

    `_due` has the deadline of each watched connection; the heap has that entry, and entries of
    removed connections. No connection is called early.
    """

    def __init__(self) -> None:
        self._watched: dict[int, Timed] = {}
        self._due: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._sleep = trio.CancelScope()

    def watch(self, timed: Timed, due: float) -> None:
        """Call `keep_time` at `due`, and then at each deadline that it returns."""
        self._watched[timed.id] = timed
        self._set(timed.id, due)

    def unwatch(self, timed: Timed) -> None:
        """Call the connection no more. Does nothing if it is not watched."""
        if self._watched.pop(timed.id, None) is None:
            return
        del self._due[timed.id]
        if len(self._heap) > 2 * len(self._due) + STALE_MIN:
            self._heap = [(due, number) for number, due in self._due.items()]
            heapify(self._heap)

    async def run(self) -> None:
        """Call connections that are due, until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next()) as self._sleep:
                await trio.sleep_forever()
            called = 0
            while self._next() <= trio.current_time():
                self._call_next(trio.current_time())
                called += 1
                if called % DUE_TOGETHER == 0:
                    await trio.lowlevel.checkpoint()

    def _set(self, number: int, due: float) -> None:
        self._due[number] = due
        heappush(self._heap, (due, number))
        if due < self._sleep.deadline:
            self._sleep.deadline = due

    def _next(self) -> float:
        """Return the time of the first entry; the entry may be of a removed connection."""
        return self._heap[0][0] if self._heap else math.inf

    def _call_next(self, now: float) -> None:
        due, number = heappop(self._heap)
        if self._due.get(number) == due:
            following = self._watched[number].keep_time(now)
            if number in self._watched:  # The call may have ended the connection.
                self._set(number, following)
