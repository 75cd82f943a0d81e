"""The system calls under the log, and nothing else: tests replace them by calls that record, wait
or fail.
"""

import os
from collections.abc import Sequence
from typing import Final

from braidlog.storage.log.file_system import FileSystem
from braidlog.storage.log.page_cache import PageCache
from braidlog.storage.log.sync_queue import AioQueue, SyncQueue

Buffer = bytes | bytearray | memoryview


class Disk:
    """The system calls, a method each, raising OSError. Paths are passed so that a test's
    replacement can report the path.
    """

    _page_cache = PageCache()

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, path: str, fd: int) -> None:
        os.close(fd)

    def write(self, path: str, fd: int, parts: Sequence[Buffer], pos: int) -> int:
        return os.pwritev(fd, parts, pos)

    def read(self, path: str, fd: int, size: int, pos: int) -> bytes:
        return os.pread(fd, size, pos)

    def read_into(self, path: str, fd: int, into: memoryview, pos: int) -> int:
        return os.preadv(fd, [into], pos)

    def read_cached(self, path: str, fd: int, into: memoryview, pos: int) -> int:
        return os.preadv(fd, [into], pos, os.RWF_NOWAIT)

    def is_cached(self, path: str, fd: int, size: int, pos: int) -> bool:
        return self._page_cache.holds(fd, pos, size)

    def duplicate(self, path: str, fd: int) -> int:
        return os.dup(fd)

    def send(self, path: str, fd: int, sock_fd: int, size: int, pos: int) -> int:
        return os.sendfile(sock_fd, fd, pos, size)

    def truncate(self, path: str, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def allocate(self, path: str, fd: int, size: int, pos: int) -> None:
        os.posix_fallocate(fd, pos, size)

    def sync_data(self, path: str, fd: int) -> None:
        os.fdatasync(fd)

    def sync_queue(self, eventfd: int) -> SyncQueue:
        return AioQueue(eventfd)

    def sync_folder(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_file_system(self, file_system: FileSystem) -> None:
        file_system.sync()

    def rename(self, path: str, new_path: str) -> None:
        os.rename(path, new_path)

    def set_time(self, path: str, time_us: int) -> None:
        os.utime(path, ns=(time_us * 1000, time_us * 1000))

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        os.mkdir(path, 0o755)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    @property
    def writes_plainly(self) -> bool:
        """True if `write` is the system call alone, so that a caller may write by itself."""
        return type(self).write is PLAIN_WRITE


PLAIN_WRITE: Final = Disk.write
