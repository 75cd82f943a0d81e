"""The compacted view of one log: the latest record of each key below its end, in a file beside the
log (FORMAT.md section 12). It only repeats what the log says, or said before retention.
"""

from contextlib import suppress

from braidlog.storage.log.batch import Batch
from braidlog.storage.log.reading import Want
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_set import SegmentSet


class CompactedView:
    """One file of the latest records. Any thread reads."""

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        self.segment = segment
        self.horizon = segment.name.end_offset  # Everything below it was compacted.
        self._set = SegmentSet([segment], interval_bytes)
        if not segment.size:  # Of an earlier life. The next compaction begins with it, too.
            with suppress(OSError):  # Whoever reads it will meet that.
                segment.stat()

    def read(self, offset: int, bytes_max: int, *, wait: bool) -> list[Batch]:
        """Batches from the one that has `offset` on, at least one. Raises Fault, FileGone,
        WouldBlock.
        """
        return self._set.read(Want(offset, self.horizon, bytes_max, wait))

    def close(self) -> None:
        """Close the file."""
        self._set.close()
