"""Checks that a segment's index agrees with the segment. Changes nothing.

A wrong index is no damage: a reader rebuilds the index when needed (FORMAT.md section 4).
"""

from braidlog.storage.formats.batch import ABSENT_US, BatchHeader
from braidlog.storage.log.index import BadIndex, SparseIndex
from braidlog.storage.log.places import later
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES


class IndexCheck:
    """Compares an index with the batches of its segment, given in order."""

    def __init__(self, segment: Segment) -> None:
        """Load the index; a missing index is no fault."""
        self.fault: str | None = None
        self._index: SparseIndex | None = None
        self._number = 0
        self._max_time_us: int | None = None
        self._times_known = True
        self._next_pos = SEGMENT_HEADER_BYTES
        self._next_offset = segment.base_offset
        self._size = segment.size
        try:
            self._index = segment.load_index()
        except BadIndex as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                self.fault = str(error)
        self.path = segment.index.path
        segment.drop_index()

    def batch(self, file_pos: int, header: BatchHeader) -> None:
        """Check the index at the next good batch of the segment."""
        if file_pos != self._next_pos:
            self._skip_to(file_pos)
        self._pass(file_pos)
        self._compare(file_pos, header.base_offset)
        self._max_time_us = later(self._max_time_us, header)
        self._next_pos = file_pos + header.stored_bytes
        self._next_offset = header.next_offset

    def end(self, *, grows: bool) -> None:
        """Check the end: entries after it are wrong, unless the segment grows or is damaged."""
        if grows or self._next_pos < self._size:
            self._pass(self._next_pos)
            return
        self._pass(self._next_pos)
        self._compare(self._next_pos, self._next_offset)
        if (entry := self._entry()) is not None:
            self.fault = f"entry {self._number} points behind the last batch, to byte {entry[1]}"

    def _skip_to(self, file_pos: int) -> None:
        """Skip to a place before which nothing is known of the batches."""
        self._times_known = False
        entry = self._entry()
        while entry is not None and entry[1] < file_pos:
            self._number += 1
            entry = self._entry()

    def _pass(self, file_pos: int) -> None:
        entry = self._entry()
        if entry is not None and entry[1] < file_pos:
            self.fault = f"entry {self._number} points to byte {entry[1]}, where no batch begins"

    def _compare(self, file_pos: int, offset: int) -> None:
        entry = self._entry()
        if entry is None or entry[1] != file_pos:
            return
        time_us = ABSENT_US if self._max_time_us is None else self._max_time_us
        if entry[0] != offset:
            self.fault = f"entry {self._number} says offset {entry[0]}, it is {offset}"
        elif self._times_known and entry[2] != time_us:
            self.fault = f"entry {self._number} has a wrong time"
        self._number += 1

    def _entry(self) -> tuple[int, int, int] | None:
        """Return the next entry; None after the last entry and after the first fault."""
        index = self._index
        if self.fault is not None or index is None or self._number >= len(index):
            return None
        try:
            return index.entry(self._number)
        except BadIndex as error:
            self.fault = str(error)
            return None
