"""The log of a partition: the interface, and the guarantees of both implementations.

`LocalLog` (`local_log.py`) stores segments on the local disk. `SharedLog`
(`storage/shared/shared_log.py`) publishes records to a shared store; a local log serves as its
cache.

**Atomic.** `append` stores a batch whole or not at all, with a single system call, and returns the
base offset without waiting; `append_all` likewise stores several batches. No offset names two
records. A change that raises StorageFull has changed nothing; the caller may try again later.

**Durable.** The committer's gathering round makes an append durable. The high watermark rises when
that round has finished, and no reader sees a record above the high watermark. In `written` mode
(local log only) the high watermark is the log end, and the round follows within the flush interval.

**Shrinking.** `retain`, `drop` and `delete_below` move the log start at once; files are removed
when the new start is durable. Records that are not durable stay. Compaction (`compacted`) keeps all
offsets. The shared store deletes whole segments only, and refuses `written` mode and compaction
with UnwritableChange.

**Reading.** `read` returns whole batches, from the batch that contains or follows the offset.
Batches of format GAP hold no records.

**Errors.** StorageFull; StorageFailed (the broker must stop); DamagedLog; OffsetOutOfRange;
WouldBlock, only with `wait=False`; LogClosed. The shared log also raises StorageFull while too many
bytes are not published.

**Threads.** Appends, trimming, settings and the committer's rounds belong to a single thread, the
owner's. Any thread may read meanwhile; a read of cached pages never waits.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from braidlog.storage.formats.api import BodyInfo, WriteAtOnce, WrittenBatch
from braidlog.storage.formats.batch import Batch, Buffer
from braidlog.storage.log.compacted_files import CompactedFiles
from braidlog.storage.log.extent import Extent
from braidlog.storage.log.in_place import PlacedRun
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_reading import Trusted
from braidlog.storage.log.settings import LogSettings


class Log(Extent, Protocol):
    """The log of a partition."""

    @property
    def compacted(self) -> CompactedFiles:
        """The compacted files and the compacted view."""

    @property
    def was_used(self) -> bool:
        """True if anything was written since this start."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all segment files."""

    def segments(self) -> list[tuple[int, int, int]]:
        """(base offset, greatest append time in microseconds, size in bytes), oldest first."""

    def append(
        self,
        body: Sequence[Buffer],
        info: BodyInfo,
        *,
        body_format: int,
        body_version: int = 1,
        append_us: int,
        last_offset_delta: int | None = None,
        positions: Sequence[int] | None = None,
    ) -> int:
        """Store a batch; return its base offset, which was the end of the log before.

        `last_offset_delta` is record_count - 1 unless given. Raises: StorageFull; StorageFailed;
        DamagedLog if the log's end is damaged; LogClosed.
        """

    def append_at_once(self, body: memoryview, once: WriteAtOnce) -> WrittenBatch | None:
        """Store a body by a call that also checks and stamps the body, with a single batch header.

        Returns None, with nothing stored, if `append` has to store the body. Raises as `append`.
        """

    def append_all(
        self, pieces: Sequence[tuple[Buffer, BodyInfo]], *, body_format: int, append_us: int
    ) -> int:
        """Store several bodies, each as a batch; return the base offset of the first. Raises as
        `append`.
        """

    def read(
        self,
        offset: int,
        bytes_max: int,
        beyond_bytes: int | None = None,
        *,
        wait: bool = True,
        trusted: Trusted | None = None,
    ) -> list[Batch]:
        """Return batches from the batch that contains `offset`, none beyond the high watermark.

        Returns at least a whole batch below the high watermark, and more batches while their bodies
        together fit `bytes_max`, up to `segment_reading.READ_BATCHES_MAX`; [] at the high
        watermark. With `beyond_bytes` the result includes the batch in which `bytes_max` ends; that
        batch probably ends at most `beyond_bytes` further. Views have their own memory and stay
        valid. `trusted` content is not checked again and may be incomplete. Raises:
        OffsetOutOfRange; DamagedLog; WouldBlock, with `wait=False`, when the pages are not in
        memory; LogClosed.
        """

    def read_compacted(self, offset: int, bytes_max: int, *, wait: bool = True) -> list[Batch]:
        """Read as `read` does, but prefer the compacted view, which has only the latest record of
        each key. Raises as `read`.
        """

    def read_in_place(self, offset: int, bytes_max: int, body_format: int) -> PlacedRun | None:
        """Return checked batches of a single format, all in memory, as places in the file for a
        socket. The first batch begins with `offset`, or has a remembered entry that does.

        Returns None if a condition fails, if the batches are small, or if too few fit `bytes_max`:
        use `read` then. Never waits, never raises.
        """

    def remember_within(self, offset: int, batch: Batch, body_pos: int) -> None:
        """Let `read_in_place` find the entry that begins with `offset` in the body of a batch."""

    def batch_before(self, offset: int) -> Batch | None:
        """Return the last batch that begins below `offset`, None if that batch is below the log
        start. Raises as `read`, with `wait=True`.
        """

    def offset_at_or_after(self, time_us: int) -> int:
        """Return the base offset of the first batch with a record of that time or later; the high
        watermark if there is no such batch.

        The publish time counts if a batch has a publish time, else the append time. May read from
        the disk. Raises: DamagedLog, LogClosed.
        """

    def bytes_between(self, offset_a: int, offset_b: int) -> int:
        """Return the approximate number of stored bytes between two offsets; never 0 for a
        non-empty range. Raises DamagedLog.
        """

    def places_from(self, offset: int) -> Iterator[tuple[Segment, int, int]]:
        """Yield each segment that has a batch at or above `offset`, with a place (file_pos, offset)
        to walk from: at or before the first such batch. Includes batches that are not durable yet.

        Raises: FileGone, if retention removes a segment meanwhile.
        """

    def retain(
        self,
        now_us: int,
        acknowledged_offset: int | None = None,
        held_offset: int | None = None,
        *,
        wall_us: int | None = None,
    ) -> int:
        """Drop old segments by the rules of `retention_rules.py`; return their number.

        Ages count back from `now_us`; `wall_us` is the wall clock if that is another time. Dates
        the segments that `undated` names, which may read them whole. Raises: StorageFull, after the
        steps that need no room; StorageFailed.
        """

    def undated(
        self, now_us: int, acknowledged_offset: int | None = None, held_offset: int | None = None
    ) -> Segment | None:
        """Return the first segment that `retain` would drop for an age that is known only from the
        file and not from the batches in the segment.
        """

    def drop(self, count: int | None = None) -> int:
        """Drop the `count` oldest segments except the active segment, or all records (None); return
        the number of dropped segments. Raises: StorageFull, StorageFailed.
        """

    def delete_below(self, offset: int) -> int:
        """Make the log begin at an offset, or at the durable offset if that is lower; return the
        number of dropped segments. Raises: StorageFull, StorageFailed.
        """

    def alter(self, settings: LogSettings) -> None:
        """Apply other settings. Changing to `written` waits for the disk, unless `reserve_ahead`
        already did. When a log becomes `synced`, earlier writes are durable with the gathering
        round.

        Raises: UnwritableChange or StorageFull, with nothing changed; StorageFailed.
        """

    def keep_reservation(self) -> None:
        """Leave the reservation to `reserve_ahead` from now on. Owner's thread."""

    def reserve_ahead(self) -> None:
        """Reserve the offsets that `written` mode needs, before `alter`; for any thread, after
        `keep_reservation`. Waits for the disk. Raises: UnwritableChange, StorageFull,
        StorageFailed, FileGone.
        """

    def seal(self) -> None:
        """Prepare a clean stop after a commit, so that the next start is trivial; write nothing if
        nothing has changed since this start.

        A second commit makes the result durable; then `close`. Appends get LogClosed from now on.
        Raises: StorageFull, StorageFailed.
        """

    def close(self) -> None:
        """Close the files without a sync; readers and appends get LogClosed from now on."""
