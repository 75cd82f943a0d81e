"""Waits for sockets, threads and other processes, on a machine of any speed.

`wait_all_tasks_blocked` alone only says that no task can run at this moment: bytes may be in
transit between two sockets, and a thread may be at work.
"""

import time
from collections.abc import Callable

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

HANG_S = 60.0  # A test that waits longer hangs: this is no check of speed.
PAUSE_S = 0.001  # Between two checks.


async def until(is_so: Callable[[], object], *, step_s: float = 0.0) -> None:
    """Wait until `is_so` is true.

    A jumping trio clock stands still meanwhile, except `step_s` between two checks: a thread's work
    takes none of the clock's time.
    """
    deadline = time.monotonic() + HANG_S
    jumps = isinstance(trio.lowlevel.current_clock(), MockClock)
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        if jumps:
            await wait_all_tasks_blocked(cushion=PAUSE_S)
        await trio.sleep(step_s if jumps else PAUSE_S)


def until_seen(is_so: Callable[[], object]) -> None:
    """Wait until `is_so` is true, in a test of another process, without trio."""
    deadline = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(PAUSE_S)
