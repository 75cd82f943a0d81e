"""How much may be in memory of requests that name many topics and partitions.

A megabyte that names 45,000 of them becomes thirty of objects for as long as it is served, and a
fetch may wait for half a minute. So what large requests name is counted, all connections together,
from before they are decoded until they are answered. Knows no request's meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from broker.server.gate import Gate
from protocols.kafka.fields import ENTRIES_FEW_MAX

# All large requests together; each entry takes up to 2 KB while it is served. One that names more
# is alone.
LARGE_ENTRIES_MAX = 20_000
# The fewest bytes of a frame that name something: a partition's number.
ENTRY_BYTES_MIN = 4


class LargeRequests:
    """Counts the entries of large requests under way."""

    def __init__(self) -> None:
        """None yet."""
        self._gate = Gate(LARGE_ENTRIES_MAX, self._end_waits)
        self._fetches: dict[trio.CancelScope, int] = {}  # that wait for records

    @property
    def held(self) -> int:
        """Entries of all that are under way."""
        return self._gate.held

    def enter_now(self, frame_bytes: int) -> int:
        """Begin with a large request, of whose frame only the size is known; how many entries it
        is counted as, 0 if there is no room: use `enter`. Give them back with `keep`.
        """
        count = _most_entries(frame_bytes)
        return count if self._gate.enter_now(count) else 0

    async def enter(self, frame_bytes: int) -> int:
        """The same once there is room; requests come in order. Fetches that wait for records are
        answered for it, the largest first.
        """
        count = _most_entries(frame_bytes)
        await self._gate.enter(count)
        return count

    def keep(self, held: int, count: int) -> int:
        """Of `held` entries only `count` are held from now on; returns that."""
        self._gate.leave(held - count)
        return count

    @contextmanager
    def waiting_fetch(self, count: int) -> Iterator[None]:
        """While a fetch of so many partitions waits for records; left early if others need room."""
        if count <= ENTRIES_FEW_MAX:
            yield
            return
        with trio.CancelScope() as scope:
            self._fetches[scope] = count
            self._end_waits()
            try:
                yield
            finally:
                self._fetches.pop(scope, None)

    def _end_waits(self) -> None:
        missing = self._gate.missing
        if not missing:
            return
        for scope in sorted(self._fetches, key=self._fetches.__getitem__, reverse=True):
            missing -= self._fetches.pop(scope)
            scope.cancel()
            if missing <= 0:
                return


def _most_entries(frame_bytes: int) -> int:
    return min(frame_bytes // ENTRY_BYTES_MIN, LARGE_ENTRIES_MAX)


_requests: trio.lowlevel.RunVar[LargeRequests] = trio.lowlevel.RunVar("large_requests")


def large_requests() -> LargeRequests:
    """Those of all Kafka listeners, in one run of the loop."""
    try:
        return _requests.get()
    except LookupError:
        found = LargeRequests()
        _requests.set(found)
        return found
