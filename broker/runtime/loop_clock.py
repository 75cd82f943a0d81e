"""trio's clock, and a hook to work while trio would sleep. Knows no socket of a client.

When no task has work, trio asks the clock how long trio may sleep. A function that sleeps at that
moment instead of trio can serve plain sockets without a turn of trio's loop for each socket. The
function must return when trio has work again: when a task was scheduled, when the deadline has
come, or when trio's epoll is readable.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import trio

# Turns of the loop that may pass before trio's epoll is found, while a task waits for a descriptor.
LOOKS_MAX = 10
PROC = Path("/proc/self")
EPOLL = "anon_inode:[eventpoll]"


class LoopClock(trio.abc.Clock):
    """The time of a trio run, and the way trio sleeps. Pass an instance to `trio.run`."""

    def __init__(self) -> None:
        self.epoll_fd: int | None = None  # trio's epoll; None while unknown
        self._sleep: Callable[[float], None] | None = None

    def sleep_by(self, sleep: Callable[[float], None] | None) -> None:
        """Call `sleep` with seconds when no task is scheduled; it returns once a task is or may be
        scheduled, or after that time, and must not raise. None: trio sleeps by itself.
        """
        self._sleep = sleep

    def start_clock(self) -> None:
        """See trio.abc.Clock."""

    def current_time(self) -> float:
        """See trio.abc.Clock."""
        return perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """See trio.abc.Clock."""
        seconds = deadline - perf_counter()
        if self._sleep is None or seconds <= 0:
            return seconds
        self._sleep(seconds)
        return 0.0

    async def find_epoll(self) -> None:
        """Find trio's epoll: the epoll that watches a descriptor for which a task waits (proc(5),
        /proc/pid/fdinfo). Call this early: the search visits all open descriptors.
        """
        probe = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.lowlevel.wait_readable, probe)
                for _ in range(LOOKS_MAX):
                    await trio.lowlevel.checkpoint()
                    self.epoll_fd = _epoll_with(probe)
                    if self.epoll_fd is not None:
                        break
                nursery.cancel_scope.cancel()
        finally:
            os.close(probe)


def _epoll_with(fd: int) -> int | None:
    """Return this process's epoll that watches a descriptor; None if the system has no such
    information.
    """
    try:
        for path in (PROC / "fd").iterdir():
            if path.is_symlink() and os.readlink(path) == EPOLL:
                lines = (PROC / "fdinfo" / path.name).read_text().splitlines()
                watched = [line.split()[1] for line in lines if line.startswith("tfd:")]
                if str(fd) in watched:
                    return int(path.name)
    except OSError:  # No /proc.
        return None
    return None
