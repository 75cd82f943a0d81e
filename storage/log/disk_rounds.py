"""The rounds of a log on the local disk: watermark slot, and removal of dropped segments.

A dropped segment is removed only once the slot with the new log start is durable.
"""

from collections.abc import Sequence
from contextlib import suppress

from braidlog.storage.errors import StorageFull
from braidlog.storage.log.committer import SyncPoint
from braidlog.storage.log.extent import Extent
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.unsynced import Unsynced
from braidlog.storage.log.watermark import SlotFile


class DiskRounds:
    """The `Rounds` of a log on the local disk."""

    __slots__ = ("_dropped", "_dropped_in_round", "_slot", "unsynced")

    def __init__(self, folder: str, slot: SlotFile) -> None:
        self.unsynced = Unsynced(folder)
        self._slot = slot
        self._dropped: list[Segment] = []  # Removed once the slot is durable, oldest first.
        self._dropped_in_round = 0  # The round under way makes the slot durable for this many.

    def began(self, segment: Segment) -> None:
        """Sync a new segment and its name with the next round."""
        self.unsynced.hold(segment.file)
        self.unsynced.note_names()

    def begin(self, end_offset: int) -> SyncPoint:
        """Return the files to sync."""
        if self._slot.file in self.unsynced.files:
            self._dropped_in_round = len(self._dropped)
        return self.unsynced.take(end_offset)

    def synced(self, point: SyncPoint) -> None:
        """Release the files of a finished round."""
        self.unsynced.synced(point)

    def finish(self, point: SyncPoint, extent: Extent) -> bool:
        """Remove dropped segments, and write the slot."""
        is_unfinished = self._dropped_in_round > 0
        if is_unfinished:
            # The disk became read-only: the next drop removes these files too.
            with suppress(StorageFull):
                while self._dropped_in_round:  # Oldest first: the rest is always contiguous.
                    self._dropped[0].remove()
                    del self._dropped[0]
                    self._dropped_in_round -= 1
            self.unsynced.note_names()
        self.note(extent)
        return is_unfinished

    def note(self, extent: Extent, *, in_round: bool = False) -> None:
        """Write the watermark slot; sync the slot only with `in_round`. On a full disk the slot
        stays behind, which is safe.
        """
        self.unsynced.write_slot(self._slot, extent.log_start_offset, extent.durable_offset)
        if in_round and self._slot.file is not None:
            self.unsynced.hold(self._slot.file)

    def move_start(self, log_start: int, extent: Extent) -> None:
        """Write the new log start into the slot."""
        self._slot.write(log_start, extent.durable_offset)

    def drop(self, segments: Sequence[Segment]) -> bool:
        """Remove segments once the slot is durable."""
        assert self._slot.file is not None
        self._dropped += segments
        self.unsynced.hold(self._slot.file)
        return True

    def close(self) -> None:
        self.unsynced.close()
        self._slot.close()
