"""Interface between a local log and the store that makes its segments durable.

A local log writes segment files and takes part in the committer's rounds. Its `Rounds` decide what
a round must make durable, and when the files of dropped segments go: `DiskRounds`
(`disk_rounds.py`), or `ShardRounds` (`storage/shared/shard_rounds.py`) where the segment files are
a cache of the shared store.
"""

from collections.abc import Sequence
from typing import Protocol

from braidlog.storage.log.committer import SyncPoint
from braidlog.storage.log.extent import Extent
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.unsynced import Unsynced


class Rounds(Protocol):
    """Makes the segments of a log durable. Owner's thread."""

    @property
    def unsynced(self) -> Unsynced:
        """The files that the next round must sync."""

    def began(self, segment: Segment) -> None:
        """Note a new segment, before readers see it. Raises StorageFull, StorageFailed."""

    def begin(self, end_offset: int) -> SyncPoint:
        """Return everything that the round that begins must make durable."""

    def synced(self, point: SyncPoint) -> None:
        """Note that a point is durable, even if the log is closed by now."""

    def finish(self, point: SyncPoint, extent: Extent) -> bool:
        """Do the work that waited for the round; `extent` gives the durable offsets. Not called
        once the log is closed. True if a later round must follow. Raises StorageFailed.
        """

    def note(self, extent: Extent, *, in_round: bool = False) -> None:
        """Write down where the log begins and is durable, for the next start and for other readers;
        with `in_round` the note is durable after the next round. Raises StorageFailed.
        """

    def move_start(self, log_start: int, extent: Extent) -> None:
        """Note the log start that the log is about to have. Raises StorageFull, with nothing
        changed; StorageFailed.
        """

    def drop(self, segments: Sequence[Segment]) -> bool:
        """Remove segments below the new log start, now or after a round. True if the gathering
        round must be joined. Raises StorageFull, StorageFailed.
        """

    def close(self) -> None:
        """Release and close all files."""
