"""Sources of a compaction: runs of batches out of segment files, a piece at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from braidlog.storage.formats.batch import Batch
from braidlog.storage.log.places import place_of_offset
from braidlog.storage.log.scan import BadBatch
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_reading import Want, read_batches

# Read and processed between two points at which a compaction may be paused or ended.
PIECE_BYTES: Final = 256 * 1024


@dataclass(slots=True, frozen=True)
class SegmentSource:
    """The batches of a segment that hold the offsets `[start, end)`; the end is a batch boundary,
    the start may lie within a batch if earlier records were deleted.
    """

    segment: Segment
    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of its file."""
        return self.segment.size

    def pieces(self, interval_bytes: int) -> Iterator[list[Batch]]:
        """Yield the batches in order. Raises BadBatch at a bad batch; FileGone."""
        segment, offset = self.segment, self.start
        place = place_of_offset(segment, offset, interval_bytes)
        while offset < self.end:
            batches = read_batches(segment, place, Want(offset, self.end, PIECE_BYTES))
            if not batches:
                raise BadBatch(segment, segment.size, offset, "the records are missing")
            yield batches
            last = batches[-1]
            offset = last.next_offset
            place = offset, last.file_pos + last.header.stored_bytes
