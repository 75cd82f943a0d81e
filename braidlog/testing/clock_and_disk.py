"""Faults below the protocols: a clock that can move, and a disk that can be full.

The product knows nothing of this module: the broker gets the clock and the disk as its own parts.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from braidlog.broker.runtime.clock import SystemClock
from braidlog.storage.log.disk import Disk

Buffer = bytes | bytearray | memoryview

MICROSECOND = 1_000_000


class MovableClock:
    """The wall clock and the monotonic clock of a broker, moved ahead or back on demand.

    Both move together when time goes ahead, as if the time had passed. When the wall clock goes
    back, the monotonic clock stays.
    """

    def __init__(self) -> None:
        self._system = SystemClock()
        self._wall_us = 0
        self._steady_us = 0

    def move(self, seconds: float) -> None:
        """Move the clock by seconds; negative seconds move the wall clock back."""
        self._wall_us += round(seconds * MICROSECOND)
        self._steady_us += max(0, round(seconds * MICROSECOND))

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970."""
        return self._system.now_us() + self._wall_us

    def steady_us(self) -> int:
        """Microseconds of a monotonic clock."""
        return self._system.steady_us() + self._steady_us


class FillableDisk(Disk):
    """The real disk, until it is full: then writes and new files fail with ENOSPC."""

    def __init__(self) -> None:
        self.is_full = False

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._check(path)
        return super().open(path, flags)

    def write(self, path: str, fd: int, parts: Sequence[Buffer], pos: int) -> int:
        self._check(path)
        return super().write(path, fd, parts, pos)

    def allocate(self, path: str, fd: int, size: int, pos: int) -> None:
        self._check(path)
        super().allocate(path, fd, size, pos)

    def _check(self, path: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
