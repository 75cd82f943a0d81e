"""Twins of the disk under the file layer: a disk that records calls, a failing disk, a small disk,
and a disk that stops at a test's request.
"""

import errno
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from braidlog.storage.log.disk import Disk
from tests.waiting import HANG_S

BLOCK_BYTES = 4096


@dataclass(slots=True, frozen=True)
class SystemCall:
    """A system call with an effect: its name, the file, and its arguments."""

    name: str
    path: str
    data: bytes = b""
    pos: int = 0

    @property
    def file_name(self) -> str:
        return os.path.basename(self.path)


class InlineQueue:
    """A sync queue whose syncs are the disk's own `sync_data`, finished at once."""

    def __init__(self, disk, eventfd):
        self.disk = disk
        self.eventfd = eventfd
        self.over = []

    def submit(self, files):
        for path, fd in files:
            try:
                self.disk.sync_data(path, fd)
            except OSError as error:
                self.over.append((path, error.errno))
            else:
                self.over.append((path, 0))
            os.eventfd_write(self.eventfd, 1)
        return len(files)

    def results(self):
        over, self.over = self.over, []
        return over

    def close(self, seconds):
        return True


@dataclass
class RecordingDisk(Disk):
    """The real disk; `calls` are the changing and syncing calls, in order."""

    calls: list[SystemCall] = field(default_factory=list)

    def names(self, *wanted: str) -> list[str]:
        """Return the names of the calls so far, optionally only the wanted names."""
        return [call.name for call in self.calls if not wanted or call.name in wanted]

    def open(self, path, flags):
        if flags & os.O_CREAT:
            self.calls.append(SystemCall("create", path))
        return super().open(path, flags)

    def write(self, path, fd, parts, pos):
        written = super().write(path, fd, parts, pos)
        self.calls.append(SystemCall("write", path, b"".join(parts)[:written], pos))
        return written

    def truncate(self, path, fd, size):
        self.calls.append(SystemCall("truncate", path, pos=size))
        super().truncate(path, fd, size)

    def sync_data(self, path, fd):
        self.calls.append(SystemCall("sync_data", path))
        super().sync_data(path, fd)

    def sync_queue(self, eventfd):
        return InlineQueue(self, eventfd)

    def sync_folder(self, path):
        self.calls.append(SystemCall("sync_folder", path))
        super().sync_folder(path)

    def sync_file_system(self, file_system):
        self.calls.append(SystemCall("sync_file_system", ""))
        super().sync_file_system(file_system)

    def rename(self, path, new_path):
        self.calls.append(SystemCall("rename", path, os.fsencode(new_path)))
        super().rename(path, new_path)

    def unlink(self, path):
        self.calls.append(SystemCall("unlink", path))
        super().unlink(path)

    def make_folder(self, path):
        self.calls.append(SystemCall("make_folder", path))
        super().make_folder(path)


class FailingDisk(Disk):
    """The real disk, but calls fail that are named here, or later to `fail`, with that errno.

    `bytes_first`: the number of bytes that a failing write still takes before the next write fails.
    `under`: the only folder whose files fail; without a folder, all files fail.
    """

    def __init__(self, *failing, number=errno.EIO):
        self.failing = dict.fromkeys(failing, number)
        self.bytes_first = 0
        self.under = ""

    def fail(self, name, number, *, bytes_first=0, under=""):
        self.failing[name] = number
        self.bytes_first = bytes_first
        self.under = str(under)

    def heal(self):
        self.failing = {}
        self.under = ""

    def _check(self, name, path):
        if name in self.failing and str(path).startswith(self.under):
            number = self.failing[name]
            raise OSError(number, os.strerror(number), path)

    def open(self, path, flags):
        self._check("create" if flags & os.O_CREAT else "open", path)
        return super().open(path, flags)

    def write(self, path, fd, parts, pos):
        if "write" in self.failing and self.bytes_first:
            part = b"".join(parts)[: self.bytes_first]
            self.bytes_first = 0
            return super().write(path, fd, [part], pos)
        self._check("write", path)
        return super().write(path, fd, parts, pos)

    def read(self, path, fd, size, pos):
        self._check("read", path)
        return super().read(path, fd, size, pos)

    def read_into(self, path, fd, into, pos):
        self._check("read", path)
        return super().read_into(path, fd, into, pos)

    def read_cached(self, path, fd, into, pos):
        """Read as if the whole file were in the page cache, which tmpfs and overlayfs cannot
        report.
        """
        self._check("read_cached", path)
        return os.preadv(fd, [into], pos)

    def truncate(self, path, fd, size):
        self._check("truncate", path)
        super().truncate(path, fd, size)

    def allocate(self, path, fd, size, pos):
        self._check("allocate", path)
        super().allocate(path, fd, size, pos)

    def sync_data(self, path, fd):
        self._check("sync_data", path)
        super().sync_data(path, fd)

    def sync_queue(self, eventfd):
        return InlineQueue(self, eventfd)

    def sync_folder(self, path):
        self._check("sync_folder", path)
        super().sync_folder(path)

    def sync_file_system(self, file_system):
        self._check("sync_file_system", "")
        super().sync_file_system(file_system)

    def unlink(self, path):
        self._check("unlink", path)
        super().unlink(path)


class LimitedDisk(Disk):
    """The real disk with `blocks` blocks below `root`; a folder takes a block."""

    def __init__(self, root, blocks):
        self.root = os.fspath(root)
        self.blocks = blocks

    @property
    def blocks_free(self):
        """Return the number of free blocks."""
        used = 0
        for folder, folders, files in os.walk(self.root):
            used += len(folders)
            for name in files:
                with suppress(FileNotFoundError):  # Another thread has removed the file.
                    used += blocks_of(os.path.getsize(os.path.join(folder, name)))
        return self.blocks - used

    def fill(self):
        """Use up all free blocks."""
        self.blocks -= self.blocks_free

    def _grow(self, fd, size):
        if blocks_of(size) - blocks_of(os.fstat(fd).st_size) > self.blocks_free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, path, fd, parts, pos):
        self._grow(fd, max(os.fstat(fd).st_size, pos + sum(map(len, parts))))
        return super().write(path, fd, parts, pos)

    def allocate(self, path, fd, size, pos):
        self._grow(fd, max(os.fstat(fd).st_size, pos + size))
        super().allocate(path, fd, size, pos)

    def make_folder(self, path):
        if self.blocks_free < 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().make_folder(path)


class StoppingDisk(Disk):
    """The real disk, which stops in calls of that name until the test releases them.

    Only files whose paths end with `ending` are affected. Files with stopping reads are not in the
    page cache.
    """

    def __init__(self, ending, call="sync_data"):
        self.ending = ending
        self.call = call
        self.stopped = threading.Event()
        self.go_on = threading.Event()

    def _stop(self, call, path):
        if call == self.call and path.endswith(self.ending):
            self.stopped.set()
            assert self.go_on.wait(HANG_S)

    def sync_data(self, path, fd):
        self._stop("sync_data", path)
        super().sync_data(path, fd)

    def read(self, path, fd, size, pos):
        self._stop("read", path)
        return super().read(path, fd, size, pos)

    def read_into(self, path, fd, into, pos):
        self._stop("read", path)
        return super().read_into(path, fd, into, pos)

    def rename(self, path, new_path):
        self._stop("rename", path)
        super().rename(path, new_path)

    def read_cached(self, path, fd, into, pos):
        if self.call == "read" and path.endswith(self.ending):
            raise BlockingIOError
        return super().read_cached(path, fd, into, pos)


def blocks_of(size):
    """Return the number of blocks of a file of that size."""
    return -(-size // BLOCK_BYTES)
