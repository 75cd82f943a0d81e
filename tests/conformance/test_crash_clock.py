"""The wall clock that a crash run sets for a broker in another process."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

from conformance.crash.clocked import RemoteClock

YEAR_US = 365 * 86_400_000_000
PROGRAM = """
import os, sys, time
from conformance.crash.clocked import CLOCK_FILE, follow
follow(os.environ[CLOCK_FILE])
for _ in sys.stdin:
    print(time.time_ns() // 1000, int(time.time() * 1e6), flush=True)
"""


@contextmanager
def other_process(clock):
    """Yield a function that gives the times of another process, in microseconds."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | clock.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def times():
            process.stdin.write("\n")
            process.stdin.flush()
            return [int(number) for number in process.stdout.readline().split()]

        yield times
        process.stdin.close()


def test_a_process_tells_the_time_to_which_its_clock_was_set_last(tmp_path):
    clock = RemoteClock(tmp_path / "clock")
    with other_process(clock) as times:
        for ahead_us in (0, YEAR_US, -YEAR_US, 0):
            clock.set(ahead_us)
            before = time.time_ns() // 1000
            times_us = times()
            after = time.time_ns() // 1000
            # A float of 1.7e9 seconds is a fraction of a microsecond off.
            assert all(before - 1 <= time_us - ahead_us <= after + 1 for time_us in times_us)
