"""Disk space kept for changes that free space: deletions, new limits, and retention itself.

A full disk has no block left for the record that deletes a topic. So a data directory holds a file
of allocated blocks without content (FORMAT.md section 1). The file shrinks by a piece when such a
change meets a full disk, and grows back when there is room. The reserve knows only that a change
raises `StorageFull` and may then be repeated.
"""

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from braidlog.storage.errors import StorageFull
from braidlog.storage.log.files import FileGone, Files

RESERVE_NAME = "reserve"
PROBE_SUFFIX = ".probe"

# The largest blocks of file systems in use have 64 KiB. A change needs a block each for a journal,
# a folder and a new segment: the reserve is enough for five changes there, and for eighty with
# blocks of 4 KiB, before any space is freed. Small beside a segment.
RESERVE_BYTES = 1 << 20

# Piece that is given back at once. Blocks that the change does not use are taken again.
PIECE_BYTES = 64 * 1024
BLOCK_BYTES = 4096

T = TypeVar("T")


class Reserve:
    """The reserve of a data directory. Safe in several threads."""

    def __init__(self, files: Files, path: str, size_bytes: int = RESERVE_BYTES) -> None:
        self.is_whole = False
        self._files = files
        self._path = path
        self._size_bytes = size_bytes
        self._piece_bytes = min(size_bytes, PIECE_BYTES)
        self._file = files.open(path)
        self._lock = threading.Lock()

    def make(self) -> None:
        """Allocate the missing part, as far as there is room; call again when there may be more
        room.

        The file needs no sync: a start without the file creates it. Raises StorageFailed.
        """
        with self._lock:
            self._take()

    def _take(self) -> None:
        with suppress(StorageFull):  # The allocated part is kept, and the next call goes on.
            self._make_file()
            for pos in range(0, self._size_bytes, self._piece_bytes):
                self._take_piece(pos)
            self.is_whole = True

    def _take_piece(self, pos: int) -> None:
        """Take a piece, or those of its blocks for which there is room. Raises StorageFull."""
        try:
            self._file.allocate(self._piece_bytes, pos)
        except StorageFull as full:
            if full.is_out_of_space:
                for block_pos in range(pos, pos + self._piece_bytes, BLOCK_BYTES):
                    self._file.allocate(BLOCK_BYTES, block_pos)
            raise

    def _make_file(self) -> None:
        try:
            self._file.size()
        except FileGone:
            self._file = self._files.create(self._path)

    def has_room(self, size_bytes: int) -> bool:
        """Return True if there is that much room besides the reserve, or if that cannot be tested.
        The test allocates the bytes and writes a small file, both for a moment: space that is
        reported as free may be reserved for others. Raises StorageFailed.
        """
        with self._lock:
            try:
                self._make_file()
                end_pos = self._file.size()
                try:
                    self._file.allocate(size_bytes, end_pos)
                finally:
                    self._file.truncate(end_pos)
                self._write_probe()
            except StorageFull as full:
                return not (full.is_out_of_space or full.number == errno.EROFS)
        return True

    def _write_probe(self) -> None:
        """Write a new file and remove it: a quota or a lack of inodes may refuse only that.

        Raises StorageFull, StorageFailed.
        """
        path = self._path + PROBE_SUFFIX
        self._files.unlink(path)  # A crash may have left it.
        probe = self._files.create(path)
        try:
            probe.write_at([bytes(BLOCK_BYTES)], 0)
        finally:
            probe.close()
            self._files.discard(path)

    def use_reserve(self, act: Callable[[], T]) -> T:
        """Run a change that frees space; on a full disk it may use the reserve.

        `act` changes nothing when it raises StorageFull. Raises the errors of `act`.
        """
        try:
            return act()
        except StorageFull as full:
            if not full.is_out_of_space:
                raise
        with self._lock:  # The reserve is not refilled before the change has used the space.
            while True:
                has_more = self._give_back()
                try:
                    done = act()
                except StorageFull as full:
                    if not (has_more and full.is_out_of_space):
                        raise
                else:
                    self._take()
                    return done

    def _give_back(self) -> bool:
        """Give a piece back; return True if there was a piece."""
        try:
            size = self._file.size()
            if size == 0:
                return False
            self._file.truncate(max(size - self._piece_bytes, 0))
        except (FileGone, StorageFull):
            return False
        self.is_whole = False
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()
