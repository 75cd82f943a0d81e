"""Reading ahead of a start that opens many folders, where they have to come from the disk.

A start opens one folder after the other, and each takes a handful of small reads, of which most are
known only then. From memory that takes microseconds, and threads would be in the way. From a disk
each takes a tenth of a millisecond and more: then threads fetch what the next folders hold. Knows
names of files, nothing of what is in them.
"""

import os
import resource
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from storage.log.segment_names import LOG_SUFFIX

# Folders between two looks at what the disk was asked for.
LOOK_FOLDERS = 64

# Blocks of 512 bytes for each folder from which on the disk is what a start waits for. A folder of
# which nothing is in memory takes 40.
COLD_BLOCKS = 8

# So many folders are fetched ahead: a tenth of a second of a fast disk.
AHEAD_FOLDERS = 1024
SHARE_FOLDERS = 16  # Of one thread at a time.
THREADS = 16  # As many requests as a disk needs at a time to be as fast as it can be.

# What a start looks at: the beginning of each small file, and the end of the last segment.
HEAD_BYTES = 4096
TAIL_BYTES = 64 * 1024


def read_ahead(
    folders: Sequence[str],
    *,
    fetch: Callable[[Sequence[str]], int] | None = None,
    blocks_read: Callable[[], int] | None = None,
) -> Iterator[str]:
    """Each folder in order, for a caller who opens it before asking for the next. The ones behind
    it are fetched into the page cache meanwhile, as long as reads come from the disk.

    It only reads; what cannot be read is left to the caller. `fetch` fetches some folders and says,
    as `blocks_read` does for the caller's thread, how many blocks of 512 bytes the disk was asked
    for.
    """
    with ThreadPoolExecutor(THREADS, "read-ahead") as pool:
        ahead = _Ahead(folders, pool, fetch or fetch_folders, blocks_read or _blocks_read)
        try:
            for number, folder in enumerate(folders):
                if number % LOOK_FOLDERS == 0:
                    ahead.look(number)
                yield folder
        finally:
            pool.shutdown(cancel_futures=True)


class _Ahead:
    """Which folders were given to threads, and whether more are to be."""

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
        self._given = 0  # Folders below this number were given to threads, or are behind us.
        self._shares: deque[Future[int]] = deque()

    def look(self, number: int) -> None:
        """Have more folders fetched, if the disk was what the last ones waited for."""
        blocks, before = self._blocks_read(), self._blocks
        self._blocks = blocks
        is_cold = blocks - before >= COLD_BLOCKS * LOOK_FOLDERS
        while self._shares and self._shares[0].done():
            is_cold |= self._shares.popleft().result() >= COLD_BLOCKS * SHARE_FOLDERS
        if is_cold:
            end = min(number + AHEAD_FOLDERS, len(self._folders))
            for begin in range(max(number, self._given), end, SHARE_FOLDERS):
                share = self._folders[begin : min(begin + SHARE_FOLDERS, end)]
                self._shares.append(self._pool.submit(self._fetch, share))
                self._given = end


def fetch_folders(folders: Sequence[str]) -> int:
    """Have the page cache hold what a start looks at in these; how many blocks the disk was asked
    for.
    """
    before = _blocks_read()
    for folder in folders:
        with suppress(OSError):  # Whoever opens it will say what is wrong.
            _fetch_folder(folder)
    return _blocks_read() - before


def _fetch_folder(folder: str) -> None:
    names = os.listdir(folder)
    last = max((name for name in names if name.endswith(LOG_SUFFIX)), default=None)
    for name in names:
        if name == last or not name.endswith(LOG_SUFFIX):
            _fetch_file(f"{folder}/{name}")


def _fetch_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.pread(fd, HEAD_BYTES, 0)
        tail_pos = os.fstat(fd).st_size - TAIL_BYTES
        os.pread(fd, TAIL_BYTES, max(tail_pos, HEAD_BYTES))
    finally:
        os.close(fd)


def _blocks_read() -> int:
    """Blocks that this thread has had read from a disk so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock
