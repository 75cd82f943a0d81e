"""The walk that a start makes over the end of a log: from the slot's offset, by the index.

The walk completes the indexes of the segments that it passes, in memory and on the disk. Decides
nothing about faults (`recovery.py`). FORMAT.md sections 4 and 7.
"""

from collections.abc import Sequence

from braidlog.storage.formats.batch import BatchHeader
from braidlog.storage.log.index import PENDING_ENTRIES_MAX, BadIndex
from braidlog.storage.log.log_walk import LogWalk
from braidlog.storage.log.places import searched_place
from braidlog.storage.log.scan import NO_OFFSET, BadBatch, pass_over, walk
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import KIND_PARTITION, SEGMENT_HEADER_BYTES

# Limit of the bytes below the slot that a start walks to complete the file's index: a tenth of a
# second for large batches, half a second for tiny batches. A lost index is built when first needed.
WALK_BYTES_MAX = 16 << 20


class EndWalk(LogWalk):
    """A walk that begins in each segment as late as it may. Waits for the disk."""

    def __init__(self, segments: Sequence[Segment], proven: int, interval_bytes: int) -> None:
        super().__init__(segments, proven)
        self._interval_bytes = interval_bytes

    def begin(self) -> None:
        """Go to the last segment that can hold the offset `proven`; to the first segment, if no
        other can.

        Never to an empty file: a crash may have followed its creation while the log continued in
        the segment before.
        """
        number = len(self.segments) - 1
        while number > 0 and not self._holds_proven(self.segments[number]):
            number -= 1
        self.resume(number)

    def _holds_proven(self, segment: Segment) -> bool:
        return segment.base_offset <= self.proven and not segment.is_empty

    def note(self, segment: Segment, file_pos: int, header: BatchHeader) -> None:
        """Note a batch of this walk in its segment and in the segment's index."""
        before_us = segment.max_time_us
        segment.note_stored(header.append_us, header.time_us)
        segment.note_in_index(header.base_offset, file_pos, before_us, self._interval_bytes)

    def enter(self, segment: Segment, place: tuple[int, int] | None) -> tuple[int, int]:
        """Start where the index says, or at `place`. In a journal, which has no index to complete,
        headers below `proven` are skipped.
        """
        if place is None:
            place = self._starting_place(segment)
        elif segment.index_in_memory is None and not segment.index_is_lost:
            segment.index.create()  # Its header could not be read the first time.
        if segment.kind == KIND_PARTITION:
            return place
        offset, file_pos = place
        return pass_over(segment, file_pos, offset, below=self.proven, end_pos=segment.size)

    def leave(self, segment: Segment) -> None:
        """End the index of a segment that takes no more appends."""
        if segment is not self.segments[-1] and segment.kind == KIND_PARTITION:
            segment.end_index(self.offset)

    def _starting_place(self, segment: Segment) -> tuple[int, int]:
        """Return (offset, file_pos) of the last indexed batch at or below `proven`."""
        first = (segment.base_offset, SEGMENT_HEADER_BYTES)
        place = self._indexed_place(segment) or first
        searched = self._searched_place(segment, place)
        if searched is not None:
            place = searched
            segment.lose_index()
        elif place is first:
            segment.index.create()
            segment.resume_index()
            return first
        else:
            segment.index.cut(place[1])
            segment.resume_index()
        return place

    def _searched_place(self, segment: Segment, place: tuple[int, int]) -> tuple[int, int] | None:
        """Return a place at or below `proven`, found without the index. Return None unless that
        place is much nearer to the end than `place`, from where a walk to complete the index would
        take long.
        """
        far_bytes = max(WALK_BYTES_MAX, 2 * PENDING_ENTRIES_MAX * self._interval_bytes)
        if segment.kind != KIND_PARTITION or segment.size - place[1] <= far_bytes:
            return None
        searched = searched_place(segment, self.proven, self._interval_bytes)
        return searched if searched[1] - place[1] > far_bytes else None

    def _indexed_place(self, segment: Segment) -> tuple[int, int] | None:
        """The place that the index gives, if a batch does begin there or the file ends there."""
        try:
            index = segment.load_index()
            index.cut(segment.size)
            while (place := index.floor(self.proven)) is not None and place[1] < segment.size:
                if begins_a_batch(segment, *place):
                    break
                index.cut(place[1] - 1)
        except BadIndex:
            return None
        return place


def begins_a_batch(segment: Segment, offset: int, file_pos: int) -> bool:
    """Return True if a good header with that offset is at `file_pos`. Raises FileGone."""
    batches = walk(segment, file_pos, offset, check_bodies_from=NO_OFFSET, end_pos=segment.size)
    try:
        return next(batches, None) is not None
    except BadBatch:
        return False
