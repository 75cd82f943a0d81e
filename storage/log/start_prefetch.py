"""Reads ahead of a start that opens many folders, if they have to come from the disk.

A start opens a folder after the other. Each folder takes a handful of small reads, most of which
are known only then. From memory a read takes microseconds, and a helper would only be in the way.
From a disk a read takes a tenth of a millisecond or more: then another process
(`prefetch_program.py`) fetches the next folders. Knows names of folders, not their contents.
"""

import json
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from braidlog.storage.log import prefetch_program
from braidlog.storage.log.prefetch_program import blocks_read as blocks_read_by_us

# Folders between two looks at the number of blocks read from the disk.
LOOK_FOLDERS = 64

# From this many blocks of 512 bytes per folder on, a start waits mainly for the disk. A folder with
# nothing in memory takes 40.
COLD_BLOCKS = 8

# Folders fetched ahead: a tenth of a second of a fast disk.
AHEAD_FOLDERS = 1024
SHARE_FOLDERS = 256  # Asked for at a time: each of the program's threads then has some.


def read_ahead(
    folders: Sequence[str],
    *,
    fetch: Callable[[Sequence[str]], int] | None = None,
    blocks_read: Callable[[], int] | None = None,
) -> Iterator[str]:
    """Yield each folder in order, for a caller who opens the folder before asking for the next.
    Meanwhile the following folders are fetched into the page cache, as long as reads come from the
    disk.

    Read-ahead leaves unreadable files to the caller. `fetch` fetches some folders and returns the
    number of 512-byte blocks read from the disk; `blocks_read` does the same for the caller's
    thread.
    """
    fetcher = Fetcher()
    pool = ThreadPoolExecutor(1, "read-ahead")
    ahead = _Ahead(folders, pool, fetch or fetcher.fetch, blocks_read or blocks_read_by_us)
    try:
        for number, folder in enumerate(folders):
            if number % LOOK_FOLDERS == 0:
                ahead.look(number)
            yield folder
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        fetcher.end()  # Nobody waits any more for the requested folders.
        pool.shutdown()
        fetcher.close()


class _Ahead:
    """Which folders were given to threads, and whether to give more."""

    def __init__(
        self,
        folders: Sequence[str],
        pool: ThreadPoolExecutor,
        fetch: Callable[[Sequence[str]], int],
        blocks_read: Callable[[], int],
    ) -> None:
        self._folders = folders
        self._pool = pool
        self._fetch = fetch
        self._blocks_read = blocks_read
        self._blocks = blocks_read()
        self._handed_out = 0  # Folders below this number were given to threads, or are behind us.
        self._shares: deque[Future[int]] = deque()

    def look(self, number: int) -> None:
        """Fetch more folders if the last ones had to wait for the disk."""
        blocks, before = self._blocks_read(), self._blocks
        self._blocks = blocks
        is_cold = blocks - before >= COLD_BLOCKS * LOOK_FOLDERS
        while self._shares and self._shares[0].done():
            is_cold |= self._shares.popleft().result() >= COLD_BLOCKS * SHARE_FOLDERS
        if is_cold:
            begun, end = (
                max(number, self._handed_out),
                min(number + AHEAD_FOLDERS, len(self._folders)),
            )
            if end < len(self._folders):
                end -= (end - begun) % SHARE_FOLDERS  # Each share interrupts the start.
            for begin in range(begun, end, SHARE_FOLDERS):
                share = self._folders[begin : min(begin + SHARE_FOLDERS, end)]
                self._shares.append(self._pool.submit(self._fetch, share))
                self._handed_out = end


class Fetcher:
    """The program `prefetch_program.py`, started with the first folders; if the program cannot run,
    nothing is fetched. The program ends with this process, because its input ends.
    """

    def __init__(self, path: str = prefetch_program.__file__) -> None:
        self._path = path
        self._program: subprocess.Popen[bytes] | None = None
        self._ended = False

    def fetch(self, folders: Sequence[str]) -> int:
        """Fetch folders as `read_ahead` describes; one caller at a time."""
        try:
            if self._program is None and not self._ended:
                self._program = self._begun()
            if self._ended or self._program is None:
                return 0
            stdin, stdout = self._program.stdin, self._program.stdout
            assert stdin is not None and stdout is not None
            stdin.write(json.dumps(folders).encode() + b"\n")
            stdin.flush()
            return int(stdout.readline() or 0)
        except (OSError, ValueError):
            self._ended = True
            return 0

    def _begun(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-I", "-S", self._path]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def end(self) -> None:
        """Kill the program, so that nobody goes on waiting for its answer. In any thread."""
        self._ended = True
        if self._program is not None:
            self._program.kill()

    def close(self) -> None:
        """End the program. Nobody may be in `fetch`."""
        self.end()
        if self._program is not None:
            with suppress(OSError), self._program:  # It did not read all that was written.
                pass
