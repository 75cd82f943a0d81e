"""Where bodies are unpacked and packed: in threads, a few at a time, for any caller.

One body may unpack to 64 MiB however small it is, so the number of threads bounds the memory that
all clients together can make the broker take. Knows no format and no partition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from braidlog.broker.limits import UNPACKING_THREADS_MAX
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage.formats.compression import taking_turns

T = TypeVar("T")

_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("unpacking")


async def run_unpacking(work: Callable[[], T]) -> T:
    """Run `work` in a thread as soon as one is free for it; first come, first served.

    Raises what the work raises.
    """

    def in_turns() -> T:
        with taking_turns():
            return work()

    return await run_in_thread(in_turns, limiter=unpacking_limiter())


def unpacking_limiter() -> trio.CapacityLimiter:
    """Limits the threads that unpack at the same time; one for each run of the loop."""
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(UNPACKING_THREADS_MAX)
        _limiter.set(limiter)
        return limiter
