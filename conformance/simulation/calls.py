"""A disk that records every call that changes or syncs data, and fails on demand.

Files and folders get a number at creation: a call stays with its file even if the file is renamed.
Syncs do nothing: `medium.py` computes the state after a power cut from the record.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from braidlog.storage.log.disk import Buffer, Disk
from braidlog.storage.log.file_system import FileSystem

WRITE, TRUNCATE, SYNC_FILE = "write", "truncate", "sync_data"
CREATE, UNLINK, RENAME = "create", "unlink", "rename"
MAKE_FOLDER, REMOVE_FOLDER, SYNC_FOLDER = "make_folder", "remove_folder", "sync_folder"
SYNC_ALL = "sync_file_system"
READ, ALLOCATE = "read", "allocate"

SYNCS = (SYNC_FILE, SYNC_FOLDER, SYNC_ALL)
ROOT = 0  # Number of the root folder.


@dataclass(slots=True)
class DiskCall:
    """A call. `node` is the file, or the folder whose names change; `child` is the object of
    `name`.

    A write is doubtful if its sync failed: the read bytes may never reach the disk.
    """

    kind: str
    node: int
    name: str = ""
    child: int = -1
    data: bytes = b""
    pos: int = 0
    to_node: int = -1
    to_name: str = ""
    failed: bool = False
    is_doubtful: bool = False

    def __str__(self) -> str:
        text = f"{self.kind} {self.node}"
        if self.name:
            text += f" {self.name!r}={self.child}"
        if self.to_name:
            text += f" to {self.to_node} {self.to_name!r}"
        if self.data or self.kind in (WRITE, TRUNCATE):
            text += f" {len(self.data)} bytes at {self.pos}"
        return text + (" (failed)" if self.failed else "")


@dataclass(slots=True)
class Names:
    """The present names: paths to numbers. `next_number` is for the next new object."""

    numbers: dict[str, int] = field(default_factory=dict)
    next_number: int = ROOT + 1

    def take(self, path: str) -> int:
        """Give a number to a new object at that path."""
        number = self.numbers[path] = self.next_number
        self.next_number += 1
        return number

    def move(self, path: str, new_path: str) -> None:
        """Rename an object and its contents."""
        inside = path + os.sep
        for known in [
            known_path
            for known_path in self.numbers
            if known_path == path or known_path.startswith(inside)
        ]:
            self.numbers[new_path + known[len(path) :]] = self.numbers.pop(known)


class CallRefused(Exception):
    """The failure of a call.

    With `number`, a write fails after `bytes_first` bytes; with 0, the write is only short.
    """

    def __init__(self, number: int, bytes_first: int = 0) -> None:
        super().__init__(number)
        self.number = number
        self.bytes_first = bytes_first

    def error(self, path: str) -> OSError:
        return OSError(self.number, os.strerror(self.number), path)


Plan = Callable[[str, str], CallRefused | None]


def never(kind: str, path: str) -> None:
    """Let every call succeed: the plan of a disk without faults."""


class TracedDisk(Disk):
    """The real disk without its syncs, recorded in `calls`.

    `plan(kind, path)` decides the failure before each call, reads included.
    """

    def __init__(self, root: str, plan: Plan = never) -> None:
        self.root = root
        self.plan = plan
        self.calls: list[DiskCall] = []
        self.refused = 0
        self.refused_reads = 0
        self.names = Names({root: ROOT})
        self._of_fd: dict[int, int] = {}
        for folder, folders, files in os.walk(root):
            for name in sorted(folders + files):
                self.names.take(os.path.join(folder, name))

    @contextmanager
    def without_faults(self) -> Iterator[None]:
        """Make no call fail, and do not ask the plan."""
        plan, self.plan = self.plan, never
        try:
            yield
        finally:
            self.plan = plan

    def _ask(self, kind: str, path: str) -> CallRefused | None:
        refusal = self.plan(kind, path)
        self.refused += refusal is not None
        self.refused_reads += refusal is not None and kind == READ
        if refusal is not None and not (kind == WRITE and refusal.bytes_first):
            raise refusal.error(path)
        return refusal

    def _name_call(self, kind: str, path: str, child: int) -> DiskCall:
        folder, name = os.path.split(path)
        call = DiskCall(kind, self.names.numbers[folder], name, child)
        self.calls.append(call)
        return call

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._ask(CREATE, path)
            fd = super().open(path, flags)
            self._name_call(CREATE, path, self.names.take(path))
        else:
            fd = super().open(path, flags)
        self._of_fd[fd] = self.names.numbers[path]
        return fd

    def close(self, path: str, fd: int) -> None:
        del self._of_fd[fd]
        super().close(path, fd)

    def close_left(self) -> None:
        """Close the open files, as the end of a process does."""
        for fd in self._of_fd:
            os.close(fd)
        self._of_fd.clear()

    def write(self, path: str, fd: int, parts: Sequence[Buffer], pos: int) -> int:
        refusal = self._ask(WRITE, path)
        data = b"".join(parts)
        if refusal is not None:
            data = data[: max(refusal.bytes_first, 1)]
        written = super().write(path, fd, [data], pos)
        self.calls.append(DiskCall(WRITE, self._of_fd[fd], data=data[:written], pos=pos))
        return written

    def read(self, path: str, fd: int, size: int, pos: int) -> bytes:
        self._ask(READ, path)
        return super().read(path, fd, size, pos)

    def read_into(self, path: str, fd: int, into: memoryview, pos: int) -> int:
        self._ask(READ, path)
        return super().read_into(path, fd, into, pos)

    def truncate(self, path: str, fd: int, size: int) -> None:
        self._ask(TRUNCATE, path)
        super().truncate(path, fd, size)
        self.calls.append(DiskCall(TRUNCATE, self._of_fd[fd], pos=size))

    def allocate(self, path: str, fd: int, size: int, pos: int) -> None:
        self._ask(ALLOCATE, path)
        super().allocate(path, fd, size, pos)
        if pos + size == os.fstat(fd).st_size:  # To the disk, this is a cut that adds zeros.
            self.calls.append(DiskCall(TRUNCATE, self._of_fd[fd], pos=pos + size))

    def sync_data(self, path: str, fd: int) -> None:
        self._sync(DiskCall(SYNC_FILE, self._of_fd[fd]), path)

    def sync_folder(self, path: str) -> None:
        if path not in self.names.numbers:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._sync(DiskCall(SYNC_FOLDER, self.names.numbers[path]), path)

    def sync_file_system(self, file_system: FileSystem) -> None:
        self._sync(DiskCall(SYNC_ALL, ROOT), self.root)

    def _sync(self, call: DiskCall, path: str) -> None:
        refusal = self.plan(call.kind, path)
        call.failed = refusal is not None
        self.refused += call.failed
        self.calls.append(call)
        if refusal is not None:
            raise refusal.error(path)

    def rename(self, path: str, new_path: str) -> None:
        self._ask(RENAME, path)
        super().rename(path, new_path)
        self.names.numbers.pop(new_path, None)
        call = self._name_call(RENAME, path, self.names.numbers[path])
        folder, call.to_name = os.path.split(new_path)
        call.to_node = self.names.numbers[folder]
        self.names.move(path, new_path)

    def unlink(self, path: str) -> None:
        self._ask(UNLINK, path)
        super().unlink(path)
        self._name_call(UNLINK, path, self.names.numbers.pop(path))

    def make_folder(self, path: str) -> None:
        self._ask(MAKE_FOLDER, path)
        super().make_folder(path)
        self._name_call(MAKE_FOLDER, path, self.names.take(path))

    def remove_folder(self, path: str) -> None:
        self._ask(REMOVE_FOLDER, path)
        super().remove_folder(path)
        self._name_call(REMOVE_FOLDER, path, self.names.numbers.pop(path))
