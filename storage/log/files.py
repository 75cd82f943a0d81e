"""The file layer under log and journals: the interface of files, and their errors.

`File` and `Files` have three implementations: `LocalFiles` (`local_files.py`), the files of a local
disk; `CachedFiles` (`storage/shared/cached_file.py`), segments that lie in objects, with a local
cache; `StoredFiles` (`storage/shared/reader.py`), the same to readers, without a cache. Knows
nothing of segments, offsets or formats.

**Errors.** A write that finds no room raises StorageFull and has changed nothing; any other failed
write raises StorageFailed. A failed sync raises StorageFailed and must not be retried. Reads raise
OSError. A file that was removed or closed raises FileGone, except to its holders.

**Threads.** All calls are safe in several threads.
"""

import errno
import os
from collections.abc import Sequence
from typing import Protocol

from braidlog.storage.errors import OUT_OF_SPACE, StorageFailed, StorageFull
from braidlog.storage.log.descriptors import NO_DESCRIPTOR
from braidlog.storage.log.disk import Buffer
from braidlog.storage.log.file_part import Leases
from braidlog.storage.log.sync_queue import SyncQueue

# After these a later try may succeed: no space, a quota, a limit on file sizes, a read-only file
# system, no descriptors.
FULL = OUT_OF_SPACE | NO_DESCRIPTOR | {errno.EFBIG, errno.EROFS}


def storage_error(error: OSError, doing: str, path: str) -> StorageFull | StorageFailed:
    """The error type that a failed system call stands for, with a text that names call and file."""
    text = f"cannot {doing} {path}: {error.strerror or error}"
    if error.errno in FULL:
        return StorageFull(text, error.errno)
    return StorageFailed(text)


class FileGone(Exception):
    """The file was removed or closed for good: look up again which file to use."""


class File(Protocol):
    """A file. `hold` keeps the descriptor open, so that a sync later reports every error of the
    writes before it; without holders the descriptor may be closed, and opened again.
    """

    @property
    def path(self) -> str:
        """The path of the file."""

    @property
    def fd(self) -> int:
        """The descriptor; valid for a caller that holds the file."""

    @property
    def gone(self) -> bool:
        """True once the file is closed for good."""

    def hold(self) -> int:
        """Keep the descriptor open until `release`; returns it. Raises FileGone, StorageFull,
        StorageFailed.
        """

    def hold_to_read(self) -> int:
        """As `hold`, but works on a read-only file system too."""

    def release(self) -> None:
        """End a `hold`."""

    def write_at(self, parts: Sequence[Buffer], pos: int) -> None:
        """Write the parts in order at the file's end, which is `pos`: all of them or nothing.

        Raises: StorageFull, with the file cut back to `pos`; StorageFailed.
        """

    def write_held(self, parts: Sequence[Buffer], pos: int, size: int) -> None:
        """As `write_at`, for `size` bytes and a caller that holds the file."""

    def overwrite_at(self, data: Buffer, pos: int) -> None:
        """Replace bytes inside the file (slots). Raises: StorageFull, StorageFailed; the bytes are
        then unknown.
        """

    def read_at(self, size: int, pos: int, *, wait: bool = True) -> bytes | memoryview:
        """Return at most `size` bytes from `pos`, fewer at the file's end.

        With `wait=False` only bytes in memory, which may be fewer too. Raises: WouldBlock if none
        are; FileGone; OSError if the disk cannot read.
        """

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes. Raises StorageFailed, StorageFull."""

    def allocate(self, size: int, pos: int) -> None:
        """Allocate blocks on the disk for these bytes; new blocks read as zero.

        Raises: StorageFull, also where the file system cannot allocate; StorageFailed.
        """

    def datasync(self) -> None:
        """Wait until all data written is on the disk. Raises StorageFailed, which must not be
        retried.
        """

    def size(self) -> int:
        """Return the size in bytes."""

    def move_to(self, path: str) -> None:
        """Note that the file has this path now."""

    def close(self) -> None:
        """Close for good; the descriptor is closed when the last holder releases it."""


class Files(Protocol):
    """The files below a folder, of which only some are open at the same time."""

    @property
    def directory_id(self) -> int:
        """Id of the data directory, for the headers of new segments; 0: none."""

    @property
    def leases(self) -> Leases:
        """The leases on descriptors of these files."""

    @property
    def writes_plainly(self) -> bool:
        """True if a caller that holds a file may write to its descriptor itself."""

    @property
    def syncs_all_at_once(self) -> bool:
        """True if `sync_all` works on this file system, for all folders given to `adopt`."""

    def name_directory(self, directory_id: int) -> None:
        """Set the id of the data directory; 0: none."""

    def create(self, path: str) -> File:
        """A new, empty file; its folder is not synced. Raises StorageFull, StorageFailed."""

    def open(self, path: str) -> File:
        """An existing file. It is opened when first used."""

    def read_whole(self, path: str) -> bytes:
        """All bytes of a small file. Raises OSError."""

    def read_head(self, path: str, size: int | None) -> bytes:
        """The first bytes of a file, at most `size` if given; leaves it closed. Raises OSError."""

    def look_into(self, path: str, size: int) -> tuple[bytes, os.stat_result]:
        """Return at most the first `size` bytes of a file, and its stat result. Leaves the file
        closed, and notes its device as `adopt` does. Raises OSError.
        """

    def rename(self, path: str, new_path: str) -> None:
        """Give a file or folder another name. Raises StorageFull, StorageFailed."""

    def set_time(self, path: str, time_us: int) -> None:
        """Set the modification time of a file. Raises StorageFull, StorageFailed."""

    def unlink(self, path: str) -> None:
        """Remove a file if it exists. Raises StorageFull, StorageFailed."""

    def discard(self, path: str) -> None:
        """Remove a file that is not wanted after all; if the disk refuses, try again before the
        next file is created.

        Raises: StorageFailed.
        """

    def make_folder(self, path: str) -> None:
        """Make a folder; its parent is not synced. Raises StorageFull, StorageFailed."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and the files in it. Raises StorageFull, StorageFailed."""

    def names(self, path: str) -> list[str]:
        """Names in a folder, sorted; none if there is no such folder. Raises StorageFailed."""

    def sync_folder(self, path: str) -> None:
        """Make new, changed and removed names of a folder durable. Raises StorageFailed."""

    def sync_queue(self, eventfd: int) -> SyncQueue | None:
        """A queue that syncs files without a thread and counts each in the eventfd, or None."""

    def sync_all(self) -> None:
        """Make everything below the root durable, in a single call. Raises StorageFailed."""

    def adopt(self, folder: str) -> None:
        """Note a written folder; a folder of another file system ends `sync_all`."""

    def close(self) -> None:
        """Close every idle descriptor; the last holder closes a held descriptor."""

    def close_idle(self) -> None:
        """Close every descriptor that nobody is using; files are opened again when they are."""

    def close_oldest_idle(self, count: int) -> bool:
        """Close at most `count` descriptors that nobody is using, the longest idle first. Return
        whether any was closed.
        """
