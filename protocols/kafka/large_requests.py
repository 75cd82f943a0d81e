"""Limits the memory of requests that name many topics and partitions.

A request of one megabyte that names 45,000 of them becomes thirty megabytes of objects while it is
served, and a fetch may wait for half a minute. So the entries of large requests are counted, over
all connections, from before they are decoded until they are answered. Knows no request's meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import trio

from braidlog.broker.server.fair_semaphore import FairSemaphore
from braidlog.protocols.kafka.fields import ENTRIES_FEW_MAX

# Of all large requests together; an entry takes up to 2 KB while it is served. A request with more
# runs alone.
LARGE_ENTRIES_MAX = 20_000
# The shortest entry of a frame: a partition's number.
ENTRY_BYTES_MIN = 4
NOTHING = nullcontext()  # Around the wait of a small fetch.


class LargeRequests:
    """Counts the entries of large requests under way."""

    def __init__(self) -> None:
        """None yet."""
        self._gate = FairSemaphore(LARGE_ENTRIES_MAX, self._end_waits)
        self._fetches: dict[trio.CancelScope, int] = {}  # that wait for records

    @property
    def held(self) -> int:
        """Entries of all large requests under way."""
        return self._gate.held

    def enter_now(self, frame_bytes: int) -> int:
        """Start a large request of which only the frame size is known. Returns how many entries it
        counts as, to be given back with `keep`; 0 if there is no room: then use `enter`.
        """
        count = _most_entries(frame_bytes)
        return count if self._gate.enter_now(count) else 0

    async def enter(self, frame_bytes: int) -> int:
        """Start it once there is room, in order of arrival. To make room, fetches that wait for
        records are answered early, the largest first.
        """
        count = _most_entries(frame_bytes)
        await self._gate.enter(count)
        return count

    def keep(self, held: int, count: int) -> int:
        """Reduce the `held` entries to `count`; return `count`."""
        self._gate.leave(held - count)
        return count

    def waiting_fetch(self, count: int) -> AbstractContextManager[None]:
        """Wrap the wait of a fetch of `count` partitions; it ends early if others need room."""
        return NOTHING if count <= ENTRIES_FEW_MAX else self._large_fetch(count)

    @contextmanager
    def _large_fetch(self, count: int) -> Iterator[None]:
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
    """The count of all Kafka listeners in this run of the event loop."""
    try:
        return _requests.get()
    except LookupError:
        instance = LargeRequests()
        _requests.set(instance)
        return instance
