"""`braidlog` with a wall clock that a run sets while the broker works.

A file holds how far the clock is ahead, in microseconds. Steady clocks go on, as they do when a
machine's time is set.
"""

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final

CLOCK_FILE: Final = "CRASH_RUN_CLOCK"  # Environment variable with the path of the file.
AHEAD: Final = struct.Struct("<q")


class RemoteClock:
    """The wall clock of brokers in other processes."""

    def __init__(self, path: Path) -> None:
        """Create the file; the clock is right."""
        path.write_bytes(AHEAD.pack(0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), AHEAD.size)
        self.environment = {CLOCK_FILE: str(path)}

    def set(self, ahead_us: int) -> None:
        """Set the clock that far ahead of the right time; a negative number sets it back."""
        AHEAD.pack_into(self._shared, 0, ahead_us)


def follow(path: str) -> None:
    """Have this process tell the time of a file's clock."""
    with open(path, "rb") as file:
        shared = mmap.mmap(file.fileno(), AHEAD.size, prot=mmap.PROT_READ)
    right_ns = time.time_ns

    def time_ns() -> int:
        return right_ns() + 1000 * int(AHEAD.unpack_from(shared)[0])

    vars(time).update(time_ns=time_ns, time=lambda: time_ns() / 1e9)


if __name__ == "__main__":
    follow(os.environ[CLOCK_FILE])
    # Some modules take `time_ns` out of its module when they are imported.
    from braidlog.broker.cli.main import main

    main()
