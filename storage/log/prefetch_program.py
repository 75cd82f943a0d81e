"""Reads the bytes that a start needs into the page cache: a separate program, beside the start.

A thread of the starting process would hold the interpreter's lock between two reads, and the start
needs that lock all the time. Reads lines from standard input, each a JSON list of folders, and
answers each with a line: the number of 512-byte blocks that were read from the disk. Ends when the
input ends. The program only reads, and imports only the standard library.
"""

import json
import os
import resource
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

THREADS = 16  # Requests at a time that a disk needs to reach its full speed.
SHARE_FOLDERS = 4  # Folders given to a thread at a time.

LOG_SUFFIX = ".log"

# A start reads the beginning of each small file, and the end of the last segment.
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
    """Read the parts of these folders that a start needs into the page cache; return the number of
    512-byte blocks read from the disk.
    """
    before = blocks_read()
    for folder in folders:
        with suppress(OSError):  # The start opens the file too and reports the error.
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
