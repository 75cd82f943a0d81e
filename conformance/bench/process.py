"""Process figures from the kernel, and load from child processes. Knows nothing of the broker."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads, ended threads included: the process's CPU clock."""
    clock_id = (~pid << 3) | 2  # As clock_getcpuclockid(3) computes the id; 2: scheduler time.
    return time.clock_gettime(clock_id)


def family_seconds(pid: int) -> dict[int, float]:
    """Return the processor time of a process and its living descendants, by process id."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # The process has just ended.
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    family = [pid]
    for process_id in family:
        family += [child for child, parent in parents.items() if parent == process_id]
    seconds_of = {}
    for process_id in family:
        with suppress(OSError):
            seconds_of[process_id] = cpu_seconds(process_id)
    return seconds_of


@contextmanager
def in_background(works: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Run each of `works` in its own process; kill the remaining processes at the end."""
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
