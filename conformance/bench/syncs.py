"""`python -m conformance.bench.syncs [--files N...] [--rounds N] [--folder PATH]`: the time until
appends to many files are on the disk, by several system calls.

Each round appends a kilobyte to each of so many files, then makes all of them durable in one of
these ways, which take turns: fdatasync one after the other, by threads, by AIO and by io_uring with
all files under way at once, and syncfs. Prints medians. Knows nothing of the broker.
"""

import argparse
import ctypes
import os
import select
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from mmap import mmap

from braidlog.storage.log.sync_queue import AioQueue
from conformance.ending import end_on_signals

PIECE = bytes(1024)
IO_URING_SETUP, IO_URING_ENTER = 425, 426  # On every machine.
RING_AT, ENTRIES_AT = 0, 0x10000000  # Offsets for mmap: IORING_OFF_SQ_RING, IORING_OFF_SQES.
GETEVENTS, OP_FSYNC, FSYNC_DATASYNC = 1, 3, 1
ENTRY = struct.Struct("<BBHiQQIIQ24x")  # struct io_uring_sqe
PARAMETERS = struct.Struct("<10I10I10I")  # struct io_uring_params
COMPLETION_BYTES = 16

Sync = Callable[[Sequence[int]], object]


class UringSyncs:
    """fdatasync by io_uring, all files of a call under way at once."""

    def __init__(self, size: int) -> None:
        """Raises OSError if there is no io_uring here."""
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        parameters = ctypes.create_string_buffer(PARAMETERS.size)
        self._fd = self._checked(self._call(IO_URING_SETUP, size, parameters))
        fields = PARAMETERS.unpack(parameters)
        entries, completions = fields[0], fields[1]
        _, self._tail, self._mask, _, _, _, self._array = fields[10:17]
        self._done, _, _, _, _, self._results = fields[20:26]
        ring_bytes = max(self._array + 4 * entries, self._results + COMPLETION_BYTES * completions)
        self._ring = mmap(self._fd, ring_bytes, offset=RING_AT)
        self._entries = mmap(self._fd, entries * ENTRY.size, offset=ENTRIES_AT)
        self._size = entries

    def sync(self, files: Sequence[int]) -> None:
        """Sync the files. Raises OSError."""
        (tail,) = struct.unpack_from("<I", self._ring, self._tail)
        for number, fd in enumerate(files):
            place = (tail + number) % self._size
            ENTRY.pack_into(
                self._entries, place * ENTRY.size, OP_FSYNC, 0, 0, fd, 0, 0, 0, FSYNC_DATASYNC, 0
            )
            struct.pack_into("<I", self._ring, self._array + 4 * place, place)
        struct.pack_into("<I", self._ring, self._tail, (tail + len(files)) & 0xFFFFFFFF)
        count = len(files)
        self._checked(self._call(IO_URING_ENTER, self._fd, count, count, GETEVENTS, None, 0))
        done, end = struct.unpack_from("<II", self._ring, self._done)
        assert end - done == count
        for number in range(done, end):
            place = self._results + COMPLETION_BYTES * (number % (2 * self._size))
            (result,) = struct.unpack_from("<i", self._ring, place + 8)
            assert result == 0, os.strerror(-result)
        struct.pack_into("<I", self._ring, self._done, end)

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


class AioSyncs:
    """fdatasync by AIO, all files of a call under way at once."""

    def __init__(self, size: int) -> None:
        """Raises OSError if there is no AIO here."""
        self._eventfd = os.eventfd(0)
        self._queue = AioQueue(self._eventfd, size)

    def sync(self, files: Sequence[int]) -> None:
        """Sync the files."""
        left = len(files)
        assert self._queue.submit([("", fd) for fd in files]) == left
        while left:
            select.select([self._eventfd], (), ())
            left -= os.eventfd_read(self._eventfd)
        assert not any(number for _, number in self._queue.results())


def one_by_one(files: Sequence[int]) -> None:
    """Sync the files, one after the other."""
    for fd in files:
        os.fdatasync(fd)


def by_threads(pool: ThreadPoolExecutor) -> Sync:
    """Return a function that syncs files in the threads of the pool."""
    return lambda files: list(pool.map(os.fdatasync, files))


def all_at_once(folder: str) -> Sync:
    """Return a function that syncs the folder's file system."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    syncfs = ctypes.CDLL(None, use_errno=True).syncfs

    def sync(_: Sequence[int]) -> None:
        assert syncfs(fd) == 0

    return sync


def measure(folder: str, count: int, rounds: int) -> None:
    """Print the median milliseconds of each way for so many files."""
    with ExitStack() as held:
        files = []
        for number in range(count):
            fd = os.open(os.path.join(folder, f"{count}-{number}"), os.O_RDWR | os.O_CREAT)
            held.callback(os.close, fd)
            files.append(fd)
        pools = [held.enter_context(ThreadPoolExecutor(threads)) for threads in (4, 16)]
        ways: dict[str, Sync] = {"one by one": one_by_one}
        ways |= {"4 threads": by_threads(pools[0]), "16 threads": by_threads(pools[1])}
        ways |= {"AIO": AioSyncs(count).sync, "syncfs": all_at_once(folder)}
        try:
            ways["io_uring"] = UringSyncs(count).sync
        except OSError as error:
            print(f"no io_uring here: {error}")
        spent_ms: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            for name, sync in ways.items():
                for fd in files:
                    os.pwrite(fd, PIECE, number * len(PIECE))
                begun = time.perf_counter()
                sync(files)
                spent_ms[name].append((time.perf_counter() - begun) * 1000)
    row = ", ".join(f"{name} {statistics.median(spent):.2f}" for name, spent in spent_ms.items())
    print(f"{count} files, ms: {row}", flush=True)


def main() -> None:
    """Measure each number of files."""
    parser = argparse.ArgumentParser(prog="python -m conformance.bench.syncs", description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1, 8, 16, 100, 500])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", help="where the files are made; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for count in options.files:
            measure(folder, count, options.rounds)


if __name__ == "__main__":
    end_on_signals()
    main()
