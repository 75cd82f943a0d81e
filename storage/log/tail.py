"""Writes the end of a log again at a start if that end may not be on the disk.

After a failed sync Linux counts the pages as written: they still read back, and a later sync of the
same bytes reports no error (fsync(2), "Errors"). Only bytes written again are synced again. Takes
the findings of a walk, and decides nothing about them.
"""

from collections import deque
from collections.abc import Sequence

from braidlog.storage.errors import StorageFull
from braidlog.storage.formats.batch import BatchHeader
from braidlog.storage.log.files import storage_error
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES

CHUNK_BYTES = 1 << 20


class UnprovenTail:
    """The last batches of a walk, which neither a slot nor a later batch proves to be durable.

    Guarantees: after `write_again` a later sync covers them, even if an earlier sync of the same
    pages failed. Waits for the writes, not for a sync.
    """

    def __init__(self, proven: int) -> None:
        """Everything below the offset `proven` is known to be durable."""
        self._proven = proven
        self._batches: deque[tuple[int, Segment, int]] = deque()

    def add(self, segment: Segment, file_pos: int, header: BatchHeader) -> None:
        """Add the next good batch."""
        self._proven = max(self._proven, header.durable_offset)
        self._batches.append((header.next_offset, segment, file_pos))
        while self._batches and self._batches[0][0] <= self._proven:
            self._batches.popleft()

    def write_again(self, segments: Sequence[Segment]) -> None:
        """Write these bytes over themselves. If the disk refuses, they stay as they are.

        Raises: StorageFailed.
        """
        try:
            for segment, file_pos in self._places(segments):
                write_again(segment, file_pos)
        except StorageFull:
            return

    def _places(self, segments: Sequence[Segment]) -> list[tuple[Segment, int]]:
        last = segments[-1]
        if not self._batches:
            return [(last, 0)] if last.is_empty and last.base_offset >= self._proven else []
        _, first, file_pos = self._batches[0]
        if file_pos == SEGMENT_HEADER_BYTES:
            file_pos = 0
        later = segments[segments.index(first) + 1 :]
        return [(first, file_pos), *((segment, 0) for segment in later)]


def write_again(segment: Segment, file_pos: int) -> None:
    """Write a segment's bytes from `file_pos` on over themselves.

    Raises: StorageFull, StorageFailed.
    """
    while file_pos < segment.size:
        size = min(CHUNK_BYTES, segment.size - file_pos)
        try:
            data = segment.file.read_at(size, file_pos)
        except OSError as error:
            raise storage_error(error, "read", segment.path) from error
        segment.file.overwrite_at(data, file_pos)
        file_pos += size
