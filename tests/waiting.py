"""Waiting for what sockets, threads and other processes are about to do, however slow the machine.

`wait_all_tasks_blocked` alone says only that no task can run at this moment: bytes may be on their
way between two sockets, and a thread may be at work.
"""

import time
from collections.abc import Callable

from trio.testing import wait_all_tasks_blocked

HANG_S = 60.0  # A test that waits so long hangs: nothing here is about speed.
PAUSE_S = 0.001  # Between two looks.


async def until(is_so: Callable[[], object]) -> None:
    """Wait until that is so, without moving trio's clock, in a test that jumps it either."""
    deadline = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        await wait_all_tasks_blocked(cushion=PAUSE_S)


def until_seen(is_so: Callable[[], object]) -> None:
    """The same for tests of another process, which run no trio."""
    deadline = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(PAUSE_S)
