"""Stored bytes that go to a socket without being copied by us: places in an open file.

Bytes below a segment's size never change, so a place stays valid for as long as its file is open,
even if retention removes the file. Knows no batch and no protocol.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeGuard

from braidlog.storage.formats.api import Buffer, Part, StoredPart
from braidlog.storage.log.descriptors import NO_DESCRIPTOR

if TYPE_CHECKING:
    from braidlog.storage.log.disk import Disk

# Errors of sendfile(2) that are the file's; all others are the socket's.
DISK_ERRORS = {errno.EIO, errno.ENXIO, errno.ENODEV, errno.EUCLEAN}


# Limit of the descriptors that answers hold on the files they are sent from: only while answers are
# built, never while they wait for clients. A lease per partition or megabyte; beyond the limit
# bodies are copied.
LEASES_MAX = 64


class OpenFile(Protocol):
    """A file that is held (`files.File`)."""

    @property
    def path(self) -> str:
        """The path of the file."""

    @property
    def fd(self) -> int:
        """The open descriptor."""


class LostBytes(OSError):
    """A file does not have the bytes that were there, or the disk cannot read them."""


class FileLease:
    """A separate descriptor for a file, closed with the last part that needs the descriptor."""

    __slots__ = ("_leases", "disk", "fd", "path")

    def __init__(self, leases: Leases, file: OpenFile) -> None:
        """Duplicates the descriptor of a file that is held. Raises OSError."""
        self.disk = leases.disk
        self.path = file.path
        self._leases = leases
        self.fd = -1
        self.fd = self.disk.duplicate(file.path, file.fd)
        leases.count += 1

    def __del__(self) -> None:  # No lock here: it may run in the middle of anything.
        if self.fd >= 0:
            self._leases.count -= 1
            self.disk.close(self.path, self.fd)

    def note_lost(self, reason: str) -> LostBytes:
        """Return the error for missing bytes. From now on the file is read, not sent; the read
        reports the fault.
        """
        self._leases.lost.add(self.path)
        return LostBytes(f"{self.path}: {reason}")


class Leases:
    """The leases on all files of a root."""

    def __init__(self, disk: Disk, *, are_given: bool = True) -> None:
        """Start without leases; with `are_given=False` none are ever offered."""
        self.disk = disk
        self.count = 0
        self.lost: set[str] = set()  # Files that did not have their bytes: few, or the disk is bad.
        self._can_tell = are_given  # Until the kernel fails to report which pages are in memory.

    def offers(self, file: OpenFile) -> bool:
        """Return True if `take` may succeed."""
        return self.count < LEASES_MAX and self.trusts(file)

    def trusts(self, file: OpenFile) -> bool:
        """Return True if verified bytes of the file still count as good while in memory."""
        return self._can_tell and file.path not in self.lost

    def take(self, file: OpenFile, size: int, pos: int) -> FileLease | None:
        """A lease on a file that is held; None where these bytes are not all in memory now, and
        where the process has no descriptor left: the caller then copies the bytes.
        """
        try:
            is_cached = self.disk.is_cached(file.path, file.fd, size, pos)
        except OSError:
            self._can_tell = False
            return None
        if not is_cached:
            return None
        try:
            return FileLease(self, file)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                return None
            raise


class FilePart(StoredPart):
    """Bytes of a file as a part of an answer: several places in it, in order."""

    __slots__ = ("_lease", "_places", "_size")

    def __init__(self, lease: FileLease, places: Sequence[tuple[int, int]], size: int) -> None:
        """`places` are (position, bytes), `size` bytes together."""
        self._lease = lease
        self._places = places
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self, start: int = 0) -> bytes:
        """See `StoredPart`. They were in memory recently, so this seldom waits for the disk. Raises
        LostBytes.
        """
        lease, pieces = self._lease, []
        for pos, size in self._places:
            if start < size:
                try:
                    piece = lease.disk.read(lease.path, lease.fd, size - start, pos + start)
                except OSError as error:
                    raise lease.note_lost(error.strerror or str(error)) from error
                if len(piece) < size - start:
                    raise lease.note_lost(f"it ends before byte {pos + size}")
                pieces.append(piece)
            start = max(start - size, 0)
        return b"".join(pieces)

    def send(self, sock_fd: int) -> int:  # hot: see make bench
        """See `StoredPart`. The kernel sends its pages, which nobody writes to again. Raises
        LostBytes, and OSError of the socket.
        """
        lease, sent = self._lease, 0
        send, path, fd = lease.disk.send, lease.path, lease.fd
        for pos, size in self._places:
            left = size
            while left:
                try:
                    sent_now = send(path, fd, sock_fd, left, pos + size - left)
                except BlockingIOError:
                    return sent
                except OSError as error:
                    if error.errno not in DISK_ERRORS:
                        raise
                    raise lease.note_lost(error.strerror or str(error)) from error
                if not sent_now:
                    raise lease.note_lost(f"it ends before byte {pos + size}")
                sent += sent_now
                left -= sent_now
        return sent


def all_in_memory(parts: Sequence[Part]) -> TypeGuard[list[Buffer]]:
    """Return True if none of these parts is in a file."""
    return FilePart not in map(type, parts)
