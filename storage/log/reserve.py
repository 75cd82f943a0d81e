"""Room kept on the disk for what makes room: deletions, other limits, and retention itself.

A full disk has no block left for the record that deletes a topic. So a data directory holds a file
of allocated blocks that mean nothing (FORMAT.md section 1), which shrinks by a piece when such an
act meets a full disk, and is made whole again when there is room. Knows no act, only that it says
`StorageFull` and may then be tried again.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from storage.errors import StorageFull
from storage.log.files import FileGone, Files

RESERVE_NAME = "reserve"

# Sixteen acts on a full disk before anything has come free, however little each frees: it is the
# blocks of what they free that others need. Small beside one segment.
RESERVE_BYTES = 1 << 20

# One act needs a block of a journal, of a folder and of a new segment; of file systems in use the
# largest block has 64 KiB. Writers of records get what the act leaves.
PIECES = 16

T = TypeVar("T")


class Reserve:
    """The reserve of one data directory. Safe in several threads."""

    def __init__(self, files: Files, path: str, size_bytes: int = RESERVE_BYTES) -> None:
        self.is_whole = False
        self._files = files
        self._path = path
        self._size_bytes = size_bytes
        self._piece_bytes = size_bytes // PIECES
        self._file = files.open(path)
        self._lock = threading.Lock()

    def make(self) -> None:
        """Take what is missing, as much as there is room for; call it again when there may be more.

        Nothing of it needs a sync: a start without the file makes it. Raises StorageFailed.
        """
        with self._lock:
            try:
                self._make_file()
                for pos in range(0, self._size_bytes, self._piece_bytes):
                    self._file.allocate(self._piece_bytes, pos)
                self.is_whole = True
            except StorageFull:
                return

    def _make_file(self) -> None:
        try:
            self._file.size()
        except FileGone:
            self._file = self._files.create(self._path)

    def spend_on(self, act: Callable[[], T]) -> T:
        """Do what makes room, in the room of the reserve where there is no other.

        `act` changes nothing when it raises StorageFull. Raises what it raises.
        """
        try:
            return act()
        except StorageFull as full:
            if not full.is_out_of_space:
                raise
        with self._lock:  # Nobody makes it whole again before the act had its room.
            while True:
                has_more = self._give_back()
                try:
                    return act()
                except StorageFull as full:
                    if not (has_more and full.is_out_of_space):
                        raise

    def _give_back(self) -> bool:
        """Let go of a piece; whether there was one."""
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
        """Let go of the file."""
        self._file.close()
