"""A walk over the segments of a log, batch by batch: for a start and for the tools.

The walk knows the expected continuation: the next batch, the start of the next segment, the minimum
end of the log (FORMAT.md section 7). The walk stops at the first mismatch. The caller judges the
mismatch and decides where to continue. Treats partitions and journals alike; changes nothing.
"""

import os
from collections.abc import Iterator, Sequence

from braidlog.storage.formats.batch import BatchHeader
from braidlog.storage.log.scan import NO_OFFSET, BadBatch, load_checked, walk
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES


class Missing(BadBatch):
    """The records up to the offset `next_offset` are in no file."""

    def __init__(self, segment: Segment, offset: int, next_offset: int) -> None:
        reason = f"the records up to {next_offset} are missing"
        super().__init__(segment, segment.size, offset, reason)
        self.next_offset = next_offset


class Overlap(BadBatch):
    """A segment begins below the end of the segment before."""

    def __init__(self, segment: Segment, before: Segment, offset: int) -> None:
        reason = f"it begins below the end of {os.path.basename(before.path)}"
        super().__init__(segment, 0, offset, reason)


class LogWalk:
    """A place in a log, and the walk on from there.

    `offset` is the next offset expected, in segment `number`. `proven`: everything below is known
    to have been durable, so the log may not end before. With `stop`, a durable offset, the walk
    goes no further: for a log that a broker is writing.

    Guarantees: the walk skips nothing; at a mismatch the walk raises. Waits for the disk.
    """

    def __init__(self, segments: Sequence[Segment], proven: int, stop: int = NO_OFFSET) -> None:
        self.segments = segments
        self.proven = proven
        self.stop = stop
        self.offset = 0
        self.resume(0)

    def prove(self, durable_offset: int) -> None:
        """Note that everything below this offset is known to have been durable."""
        self.proven = max(self.proven, durable_offset)

    def skip_to(self, offset: int) -> None:
        """Expect this offset next, until a segment is entered."""
        self.offset = offset

    def resume(self, number: int, place: tuple[int, int] | None = None) -> None:
        """Continue in that segment: at `place`, an offset and the file position of its batch, or at
        the beginning of the segment (None).
        """
        self.number = number
        self._place = place

    def batches(self, check_bodies_from: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
        """Yield (segment, file_pos, header) of the good batches from here to the end of the log;
        check bodies in batches that end above `check_bodies_from`.

        Raises: BadBatch at a mismatch, FileGone. To continue after it, `resume` and call again.
        """
        while self.number < len(self.segments):
            segment = self.segments[self.number]
            load_checked(segment)
            self.offset, file_pos = self.enter(segment, self._place)
            for pos, header in walk(
                segment,
                file_pos,
                self.offset,
                check_bodies_from=check_bodies_from,
                end_pos=segment.size,
            ):
                if header.next_offset > self.stop:
                    break
                self.offset = header.next_offset
                if header.durable_offset > self.proven:
                    self.proven = header.durable_offset
                yield segment, pos, header
            self.leave(segment)
            if not self._check_joint(segment):
                return
            self.resume(self.number + 1)

    def enter(self, segment: Segment, place: tuple[int, int] | None) -> tuple[int, int]:
        """Return (offset, file_pos) where the walk of a segment begins; `place` as given to
        `resume`.
        """
        return place or (segment.base_offset, SEGMENT_HEADER_BYTES)

    def leave(self, segment: Segment) -> None:
        """Act on the end of a segment; called after its last batch."""

    def following(self) -> Segment | None:
        """Return the next segment, None if the walk does not go there."""
        if self.number + 1 == len(self.segments):
            return None
        segment = self.segments[self.number + 1]
        return segment if segment.base_offset < self.stop else None

    def _check_joint(self, segment: Segment) -> bool:
        """Return True if another segment follows. Raises BadBatch if that segment begins at a wrong
        offset, or the log ends too early.
        """
        following = self.following()
        if following is not None and following.base_offset < self.offset:
            raise Overlap(following, segment, self.offset)
        expected = self.proven if following is None else following.base_offset
        if expected > self.offset:
            raise Missing(segment, self.offset, expected)
        return following is not None
