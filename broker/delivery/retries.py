"""Unreadable places of a log, and the time of each retry. Knows no entry.

A disk may fail for a moment, and an operator may change the topic's setting for unreadable records.
So every place is tried again, each time after twice the wait, as Apache's dispatchers do.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

READ_AGAIN_S = 1.0  # Before the second try; the shared store needs seconds to come back, too.
READ_AGAIN_S_MAX = 60.0  # As Apache's dispatcherReadFailureBackoffMaxTimeInMs.


def longer_wait(seconds: float) -> float:
    """Return the wait that follows a wait of `seconds`; the first wait follows 0."""
    return min(max(2 * seconds, READ_AGAIN_S), READ_AGAIN_S_MAX)


class Retries:
    """Offsets that failed. Each waits, then is tried, and either fails again or is forgotten."""

    def __init__(self) -> None:
        """Begin with no offsets."""
        self._waits_s: dict[int, float] = {}  # The last wait of every offset that is not forgotten.
        self._waiting: set[int] = set()
        self._due: list[tuple[float, int]] = []  # A heap of (time, offset), in trio's seconds.

    def __contains__(self, offset: object) -> bool:
        """Return True if the offset waits now."""
        return offset in self._waiting

    def __bool__(self) -> bool:
        """Return True if any offset waits now."""
        return bool(self._waiting)

    @property
    def due_at(self) -> float:
        """Return the time of the next retry."""
        return self._due[0][0] if self._due else math.inf

    def failed(self, offset: int, now: float) -> bool:
        """Let an offset wait that does not wait yet. Returns True at its first failure."""
        last_s = self._waits_s.get(offset, 0.0)
        self._waits_s[offset] = wait_s = longer_wait(last_s)
        self._waiting.add(offset)
        heapq.heappush(self._due, (now + wait_s, offset))
        return not last_s

    def pop_due(self, now: float) -> Iterator[int]:
        """Remove and yield offsets whose wait is over: they are to be tried now."""
        while self._due and self._due[0][0] <= now:
            _, offset = heapq.heappop(self._due)
            self._waiting.remove(offset)
            yield offset

    def forget(self, offset: int) -> None:
        """Forget an offset that was read at a retry, or is gone."""
        self._waits_s.pop(offset, None)

    def clear(self) -> None:
        """Forget all."""
        self._waits_s.clear()
        self._waiting.clear()
        self._due.clear()
