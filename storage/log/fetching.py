"""Reads what a start will look at into the page cache: a separate program, beside the start.

A thread of the starting process would hold the interpreter's lock between two reads, and the start
needs that all the time. Reads lines from standard input, each a JSON list of folders, and answers
each with a line: how many blocks of 512 bytes the disk was asked for. Ends when its input ends. It
only reads, and imports nothing but the standard library.
"""

import json
import os
import resource
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

THREADS = 16  # Requests at a time that a disk needs to reach its full speed.
SHARE_FOLDERS = 4  # Given to one thread at a time.

LOG_SUFFIX = ".log"

# What a start looks at: the beginning of each small file, and the end of the last segment.
HEAD_BYTES = 4096
TAIL_BYTES = 64 * 1024


def main() -> None:
    """Serve until the input ends."""
    with ThreadPoolExecutor(THREADS) as pool:
        for line in sys.stdin.buffer:
            folders = json.loads(line)
            shares = [
                folders[begin : begin + SHARE_FOLDERS]
                for begin in range(0, len(folders), SHARE_FOLDERS)
            ]
            print(sum(pool.map(fetch_folders, shares)), flush=True)


def fetch_folders(folders: Sequence[str]) -> int:
    """Read what a start looks at in these into the page cache; return how many blocks the disk was
    asked for.
    """
    before = blocks_read()
    for folder in folders:
        with suppress(OSError):  # Whoever opens it will say what is wrong.
            _fetch_folder(folder)
    return blocks_read() - before


def blocks_read() -> int:
    """Blocks that this thread has had read from a disk so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


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


if __name__ == "__main__":
    main()
