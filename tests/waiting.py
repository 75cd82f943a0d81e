"""Waiting for what sockets, threads and other processes are about to do, however slow the machine.

`wait_all_tasks_blocked` alone says only that no task can run at this moment: bytes may be on their
way between two sockets, and a thread may be at work.
"""

import time
from collections.abc import Callable

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

HANG_S = 60.0  # A test that waits so long hangs: nothing here is about speed.
PAUSE_S = 0.001  # Between two looks.


async def until(is_so: Callable[[], object], *, step_s: float = 0.0) -> None:
    """Wait until that is so. Where trio's clock jumps it stands still meanwhile, but for `step_s`
    between two looks: what a thread does takes none of its time.
    """
    deadline = time.monotonic() + HANG_S
    jumps = isinstance(trio.lowlevel.current_clock(), MockClock)
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        if jumps:
            await wait_all_tasks_blocked(cushion=PAUSE_S)
        await trio.sleep(step_s if jumps else PAUSE_S)


def until_seen(is_so: Callable[[], object]) -> None:
    """The same for tests of another process, which run no trio."""
    deadline = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(PAUSE_S)
