"""What a process used, read from the kernel, and load from processes of our own. Knows nothing of
the broker."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads so far, ended ones too: the process's CPU clock."""
    clock_id = (~pid << 3) | 2  # As clock_getcpuclockid(3) makes it; 2: time on the scheduler.
    return time.clock_gettime(clock_id)


def family_seconds(pid: int) -> dict[int, float]:
    """Processor time of a process and of all that live below it, by process id."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # It has just ended.
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    family = [pid]
    for one in family:
        family += [child for child, parent in parents.items() if parent == one]
    found = {}
    for one in family:
        with suppress(OSError):
            found[one] = cpu_seconds(one)
    return found


@contextmanager
def in_background(works: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Run each of `works` in its own process; processes that still run at the end are killed."""
    children = []
    for work in works:
        child = os.fork()
        if not child:
            try:
                work()
            finally:
                os._exit(0)
        children.append(child)
    try:
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
