"""The files of a local file system: every open, write, rename, cut, removal and sync.

`LocalFiles` creates `LocalFile`s and keeps the number of open descriptors within a budget;
`LocalFile` is a file with the error rules of the log; `Disk` (disk.py) makes the system calls and
nothing else. Knows nothing of segments, offsets or formats.
"""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import thread_time_ns

from braidlog.storage.errors import StorageFailed, StorageFull, WouldBlock
from braidlog.storage.log.descriptors import Result, idle_handles_max, with_descriptor
from braidlog.storage.log.disk import Buffer, Disk
from braidlog.storage.log.file_part import Leases
from braidlog.storage.log.file_system import FileSystem
from braidlog.storage.log.files import FileGone, storage_error
from braidlog.storage.log.read_buffers import LARGE_BYTES, POOLED_BYTES_MIN, ReadBuffers
from braidlog.storage.log.sync_queue import SyncQueue

# A single pwritev takes no more pieces than this (IOV_MAX of Linux).
PARTS_MAX = 1024

# Reads of fewer bytes are not timed: they take little time however slow they are.
TIMED_BYTES_MIN = 128 * 1024
# A read is slow if it takes more processor time than this, and more than a nanosecond a byte: five
# times the time for pages that were read before.
SLOW_READ_NS_MIN = 500_000

# Errors of file systems that cannot preallocate, if the C library does not emulate it.
CANNOT_ALLOCATE = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class LocalFile:
    """A file on the disk. Its descriptor may be closed and opened again while nobody holds the
    file. Implements `File`.
    """

    __slots__ = ("_files", "fd", "gone", "holds", "path", "read_only")

    def __init__(self, files: "LocalFiles", path: str) -> None:
        self._files = files
        self.path = path
        self.fd = -1
        self.holds = 0
        self.gone = False
        self.read_only = False
        """True if the descriptor can only read, because the file system is read-only."""

    def hold(self) -> int:
        return self._files.hold(self)

    def hold_to_read(self) -> int:
        return self._files.hold(self, to_read=True)

    def release(self) -> None:
        self._files.release(self)

    def write_at(self, parts: Sequence[Buffer], pos: int) -> None:
        self.hold()
        try:
            self.write_held(parts, pos, sum(map(len, parts)))
        finally:
            self.release()

    def write_held(self, parts: Sequence[Buffer], pos: int, size: int) -> None:
        """As `File.write_held`.  # hot"""
        disk = self._files.disk
        try:
            if len(parts) > PARTS_MAX or disk.write(self.path, self.fd, parts, pos) != size:
                # Part of it may be written: the same bytes will be written to the same place again.
                write_parts(disk, self.path, self.fd, parts, pos)
        except OSError as error:
            failure = storage_error(error, "write to", self.path)
            try:
                self._cut_back(self.fd, pos)
            except OSError as second:
                raise StorageFailed(f"{failure}, nor cut it back: {second.strerror}") from error
            raise failure from error

    def _cut_back(self, fd: int, size: int) -> None:
        """Cut off the bytes that a failed write left behind; on a read-only disk there are none."""
        if os.fstat(fd).st_size > size:
            self._files.disk.truncate(self.path, fd, size)

    def overwrite_at(self, data: Buffer, pos: int) -> None:
        fd = self.hold()
        try:
            write_parts(self._files.disk, self.path, fd, [data], pos)
        except OSError as error:
            raise storage_error(error, "write to", self.path) from error
        finally:
            self.release()

    def read_at(self, size: int, pos: int, *, wait: bool = True) -> bytes | memoryview:
        fd = self.hold_to_read()
        try:
            if wait or not self._files.reads_cached:
                return self._read(fd, size, pos)
            try:
                return self._read_cached(fd, size, pos)
            except BlockingIOError:
                raise WouldBlock(self.path) from None
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                # This file system always has it in memory, or cannot say.
                self._files.reads_cached = False
                return self._read(fd, size, pos)
        finally:
            self.release()

    def _read(self, fd: int, size: int, pos: int) -> bytes | memoryview:
        """Read, waiting for the disk. Large reads reuse memory. Raises OSError."""
        files = self._files
        if not POOLED_BYTES_MIN <= size <= LARGE_BYTES:
            return files.disk.read(self.path, fd, size, pos)
        into = files.read_buffers.take(size)
        return into[: files.disk.read_into(self.path, fd, into, pos)]

    def _read_cached(self, fd: int, size: int, pos: int) -> memoryview:
        """Read from memory. Raises OSError; WouldBlock too if the copy took so long that the kernel
        has most likely read the pages for it, or reads them ahead: the first copy of such pages
        takes up to thirty times as long as the next.
        """
        into = self._files.read_buffers.take(size)
        if size < TIMED_BYTES_MIN:
            return into[: self._files.disk.read_cached(self.path, fd, into, pos)]
        begun_ns = thread_time_ns()
        count = self._files.disk.read_cached(self.path, fd, into, pos)
        if thread_time_ns() - begun_ns > max(SLOW_READ_NS_MIN, size):
            raise WouldBlock(self.path)
        return into[:count]

    def truncate(self, size: int) -> None:
        fd = self.hold()
        try:
            self._files.disk.truncate(self.path, fd, size)
        except OSError as error:
            raise storage_error(error, "cut", self.path) from error
        finally:
            self.release()

    def allocate(self, size: int, pos: int) -> None:
        fd = self.hold()
        try:
            self._files.disk.allocate(self.path, fd, size, pos)
        except OSError as error:
            if error.errno in CANNOT_ALLOCATE:
                raise StorageFull(f"cannot allocate {self.path}", errno.EOPNOTSUPP) from error
            raise storage_error(error, "allocate", self.path) from error
        finally:
            self.release()

    def datasync(self) -> None:
        fd = self.hold()
        try:
            self._files.disk.sync_data(self.path, fd)
        except OSError as error:
            raise StorageFailed(f"cannot sync {self.path}: {error.strerror or error}") from error
        finally:
            self.release()

    def size(self) -> int:
        """As `File.size`. From the file system."""
        fd = self.hold_to_read()
        try:
            return os.fstat(fd).st_size
        finally:
            self.release()

    def move_to(self, path: str) -> None:
        self.path = path

    def close(self) -> None:
        self._files.forget(self)


def write_parts(disk: Disk, path: str, fd: int, parts: Sequence[Buffer], pos: int) -> None:
    """Write all parts at `pos`, continuing after short writes. Raises OSError."""
    if len(parts) > PARTS_MAX:
        parts = [b"".join(parts)]
    total = sum(map(len, parts))
    written = disk.write(path, fd, parts, pos)
    while written < total:
        if written <= 0:
            raise OSError(errno.EIO, "a write took no bytes")
        rest = memoryview(b"".join(parts))[written:]
        total -= written
        pos += written
        parts = [rest]
        written = disk.write(path, fd, parts, pos)


class LocalFiles:
    """Makes `LocalFile`s below a folder and keeps at most about `handles_max` of them open.

    Files that are held (in use, or written and not yet synced) stay open beyond the budget.
    Implements `File`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        disk: Disk | None = None,
        *,
        handles_max: int | None = None,
        read_only: bool = False,
        lends: bool = True,
    ) -> None:
        """`handles_max` is `idle_handles_max` if not given; `lends`: answers may be sent from
        these files.
        """
        self.root = os.fspath(root)
        self.directory_id = 0
        self.disk = Disk() if disk is None else disk
        self.reads_cached = True
        self.read_buffers = ReadBuffers()
        self.leases = Leases(self.disk, are_given=lends)
        self._flags = os.O_RDONLY if read_only else os.O_RDWR
        self._handles_max = idle_handles_max() if handles_max is None else handles_max
        self._open_count = 0
        self._discarded: list[str] = []
        self._discarding = threading.Lock()
        self._idle: OrderedDict[LocalFile, None] = OrderedDict()
        self._lock = threading.Lock()
        self._file_system = FileSystem(self.root)
        self._syncing_all = threading.Lock()
        self._failed_sync = ""  # The error of `sync_all`, which is final.

    def name_directory(self, directory_id: int) -> None:
        self.directory_id = directory_id

    @property
    def disk(self) -> Disk:
        """The system calls."""
        return self._disk

    @disk.setter
    def disk(self, disk: Disk) -> None:
        self._disk = disk
        self.writes_plainly = disk.writes_plainly

    @property
    def syncs_all_at_once(self) -> bool:
        return self._file_system.can_sync

    @property
    def open_count(self) -> int:
        """Descriptors open now."""
        return self._open_count

    def create(self, path: str) -> LocalFile:
        self.clear_discarded()
        file = LocalFile(self, path)
        fd, _ = self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, "create")
        with self._lock:
            self._take(file, fd, is_read_only=False)
            self._idle[file] = None
            self._close_idle()
        return file

    def make(self, path: str) -> None:
        """Create an empty file unless it exists, and leave it closed. Raises FileGone if the folder
        is gone, StorageFull, StorageFailed.
        """
        fd, _ = self._open(path, os.O_RDWR | os.O_CREAT, "create")
        self.disk.close(path, fd)

    def open(self, path: str) -> LocalFile:
        return LocalFile(self, path)

    def hold(self, file: LocalFile, *, to_read: bool = False) -> int:
        """See `File.hold` and `File.hold_to_read`."""
        while True:
            with self._lock:
                if file.gone and file.holds == 0:
                    raise FileGone(file.path)
                if file.fd >= 0:
                    return self._hold_open(file, to_read=to_read)
            # Without the lock: opening may wait for a cold disk, and other threads need the files
            # that are open.
            fd, is_read_only = self._open(file.path, self._flags, "open", or_read_only=to_read)
            with self._lock:
                if file.fd < 0 and not file.gone:
                    self._take(file, fd, is_read_only=is_read_only)
                    file.holds = 1
                    self._close_idle()
                    return fd
            self.disk.close(file.path, fd)  # Another thread was faster, or the file is gone.

    def _hold_open(self, file: LocalFile, *, to_read: bool) -> int:
        if file.read_only and not to_read:
            reason = OSError(errno.EROFS, os.strerror(errno.EROFS))
            raise storage_error(reason, "write to", file.path)
        if file.holds == 0:
            del self._idle[file]
        file.holds += 1
        return file.fd

    def release(self, file: LocalFile) -> None:
        with self._lock:
            file.holds -= 1
            if file.holds == 0:
                if file.gone or file.read_only:  # The disk may be writable again by the next use.
                    self._close(file)
                else:
                    self._idle[file] = None
                    self._close_idle()

    def forget(self, file: LocalFile) -> None:
        """See `File.close`."""
        with self._lock:
            file.gone = True
            if file.fd >= 0 and file.holds == 0:
                del self._idle[file]
                self._close(file)

    def read_whole(self, path: str) -> bytes:
        return self.read_head(path, None)

    def read_head(self, path: str, size: int | None) -> bytes:
        fd = self._open_to_look(path)
        try:
            return self.disk.read(path, fd, os.fstat(fd).st_size if size is None else size, 0)
        finally:
            self.disk.close(path, fd)

    def look_into(self, path: str, size: int) -> tuple[bytes, os.stat_result]:
        fd = self._open_to_look(path)
        try:
            status = os.fstat(fd)
            data = self.disk.read(path, fd, size, 0)
        finally:
            self.disk.close(path, fd)
        self._file_system.note_device(status.st_dev)
        return data, status

    def rename(self, path: str, new_path: str) -> None:
        try:
            self.disk.rename(path, new_path)
        except OSError as error:
            raise storage_error(error, "rename", path) from error

    def set_time(self, path: str, time_us: int) -> None:
        try:
            self.disk.set_time(path, time_us)
        except OSError as error:
            raise storage_error(error, "set the time of", path) from error

    def unlink(self, path: str) -> None:
        try:
            self.disk.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, "remove", path) from error

    def discard(self, path: str) -> None:
        try:
            self.unlink(path)
        except StorageFull:
            self._discarded.append(path)

    def clear_discarded(self) -> None:
        """Remove the files that `discard` left; on return they are gone, by this or another thread.

        Raises StorageFull, StorageFailed.
        """
        if not self._discarded:
            return
        with self._discarding:
            while self._discarded:
                self.unlink(self._discarded[-1])
                self._discarded.pop()

    def make_folder(self, path: str) -> None:
        try:
            self.disk.make_folder(path)
        except OSError as error:
            raise storage_error(error, "make the folder", path) from error

    def remove_folder(self, path: str) -> None:
        for name in self.names(path):
            self.unlink(os.path.join(path, name))
        try:
            self.disk.remove_folder(path)
        except OSError as error:
            raise storage_error(error, "remove the folder", path) from error

    def names(self, path: str) -> list[str]:
        try:
            return sorted(self._with_descriptor(lambda: os.listdir(path)))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(error, "list", path) from error

    def sync_folder(self, path: str) -> None:
        try:
            self._with_descriptor(lambda: self.disk.sync_folder(path))
        except FileNotFoundError:
            return  # Removed meanwhile: it has no names left to keep.
        except OSError as error:
            raise StorageFailed(
                f"cannot sync the folder {path}: {error.strerror or error}"
            ) from error

    def sync_queue(self, eventfd: int) -> SyncQueue | None:
        try:
            return self.disk.sync_queue(eventfd)
        except OSError:
            return None

    def sync_all(self) -> None:
        # All threads share a descriptor, and the kernel tells it of an error once: without the
        # lock, a round could take the sync after a topic's failed creation for a success.
        with self._syncing_all:
            if self._failed_sync:
                raise StorageFailed(self._failed_sync)
            try:
                self.disk.sync_file_system(self._file_system)
            except OSError as error:
                self._failed_sync = f"cannot sync {self.root}: {error.strerror or error}"
                raise StorageFailed(self._failed_sync) from error

    def adopt(self, folder: str) -> None:
        self._file_system.adopt(folder)

    def close(self) -> None:
        self.close_idle()
        self._file_system.close()

    def close_idle(self) -> None:
        self.close_oldest_idle(self._open_count)

    def close_oldest_idle(self, count: int) -> bool:
        with self._lock:
            closing = min(count, len(self._idle))
            for _ in range(closing):
                self._close(self._idle.popitem(last=False)[0])
        return closing > 0

    def _open(
        self, path: str, flags: int, doing: str, *, or_read_only: bool = False
    ) -> tuple[int, bool]:
        """(descriptor, whether it is good for reading only). Raises FileGone, StorageFull,
        StorageFailed.
        """
        try:
            try:
                return self._with_descriptor(lambda: self.disk.open(path, flags)), False
            except OSError as error:
                if error.errno == errno.EROFS and or_read_only:
                    return self.disk.open(path, os.O_RDONLY), True
                raise
        except FileNotFoundError:
            raise FileGone(path) from None
        except OSError as error:
            raise storage_error(error, doing, path) from error

    def _open_to_look(self, path: str) -> int:
        """A descriptor for its caller alone. Raises OSError."""
        return self._with_descriptor(lambda: self.disk.open(path, os.O_RDONLY))

    def _with_descriptor(self, call: Callable[[], Result]) -> Result:
        """Make a call that needs a descriptor; idle descriptors make room. Raises OSError."""
        return with_descriptor(call, lambda: self.close_oldest_idle(1))

    def _take(self, file: LocalFile, fd: int, *, is_read_only: bool) -> None:
        file.fd, file.read_only = fd, is_read_only
        self._open_count += 1

    def _close_idle(self) -> None:
        while self._open_count > self._handles_max and self._idle:
            self._close(self._idle.popitem(last=False)[0])

    def _close(self, file: LocalFile) -> None:
        fd, file.fd = file.fd, -1
        self._open_count -= 1
        self.disk.close(file.path, fd)
