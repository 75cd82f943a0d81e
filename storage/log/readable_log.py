"""The reading side of one partition's log, for any thread beside the owner's appends, rounds and
retention.

Reads nothing above the high watermark. Never waits for the owner; a read may wait for the disk.
"""

from collections.abc import Iterator
from contextlib import suppress

from braidlog.storage.errors import LogClosed, OffsetOutOfRange
from braidlog.storage.log.batch import Batch
from braidlog.storage.log.compacted_view import CompactedView
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.in_place import PlacedRun, PlacedWant
from braidlog.storage.log.places import place_of_offset
from braidlog.storage.log.reading import Trusted, Want
from braidlog.storage.log.recovery import LogIdentity, RecoveryReport
from braidlog.storage.log.scan import Fault
from braidlog.storage.log.segment import SEGMENT_HEADER_BYTES, Segment
from braidlog.storage.log.segment_set import SegmentSet


class ReadableLog:
    """The reading side of a `PartitionLog`, which sets these attributes."""

    partition_id: int
    log_start_offset: int
    log_end_offset: int
    durable_offset: int
    recovery: RecoveryReport
    _identity: LogIdentity
    _segments: SegmentSet
    _is_written_mode: bool
    _shown_offset: int  # In `synced` mode records below may be delivered; never decreases.
    _closed: bool
    _view: CompactedView | None

    @property
    def high_watermark(self) -> int:
        """Offset below which records may be delivered."""
        return self.log_end_offset if self._is_written_mode else self._shown_offset

    @property
    def is_closed(self) -> bool:
        """True once the log is closed for reads and appends; a log is never reopened."""
        return self._closed

    @property
    def folder(self) -> str:
        """Folder of the log files."""
        return self._identity.folder

    @property
    def size_bytes(self) -> int:
        """Bytes of all segment files."""
        return self._segments.size_bytes

    def segments(self) -> list[tuple[int, int, int]]:
        """(base offset, greatest append time in microseconds, size in bytes), oldest first."""
        segments = self._segments.view.segments
        return [(one.base_offset, one.newest_append_us, one.size) for one in segments]

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

        Returns at least one whole batch below the high watermark, and more batches while their
        bodies together fit `bytes_max`, up to `reading.READ_BATCHES_MAX`; [] at the high watermark.
        With `beyond_bytes` the result includes the batch in which `bytes_max` ends; that batch
        probably ends at most `beyond_bytes` further. The result includes batches of format GAP,
        which hold no records. Views have their own memory and stay valid. `trusted` content is not
        checked again and may be incomplete. Raises: OffsetOutOfRange; DamagedLog; WouldBlock, with
        `wait=False`, when the pages are not in memory; LogClosed.
        """
        while True:
            stop = self.high_watermark
            if not self.log_start_offset <= offset <= stop:
                raise OffsetOutOfRange(offset, self.log_start_offset, stop)
            if offset == stop:
                return []
            if not self._segments.view.segments:
                raise self.recovery.damages[-1].error()
            try:
                want = Want(offset, stop, bytes_max, wait, beyond_bytes, trusted)
                batches = self._segments.read(want)
                if batches[0].base_offset <= offset:
                    # Otherwise retention removed the batch after the log start was checked.
                    return batches
            except Fault as fault:
                raise fault.damage() from None
            except FileGone:  # Retention removed the file: the log start is above the offset now.
                self._check_open()

    def read_in_place(self, offset: int, bytes_max: int, body_format: int) -> PlacedRun | None:
        """Return checked batches of one format, all in memory, as places in the file for a socket.
        The first batch begins with `offset`, or has a remembered entry that does.

        Returns None if a condition fails, if the batches are small, or if too few fit `bytes_max`:
        use `read` then. Waits for nothing, raises nothing.
        """
        stop = self.high_watermark
        if not self.log_start_offset <= offset < stop or not self._segments.view.segments:
            return None
        return self._segments.read_in_place(offset, PlacedWant(body_format, stop, bytes_max))

    def remember_within(self, offset: int, batch: Batch, body_pos: int) -> None:
        """Let `read_in_place` find the entry that begins with `offset` in the body of a batch."""
        self._segments.remember_within(offset, batch, body_pos)

    @property
    def view(self) -> CompactedView | None:
        """The compacted view; None without a view."""
        return self._view

    def read_compacted(self, offset: int, bytes_max: int, *, wait: bool = True) -> list[Batch]:
        """Read as `read` does, but prefer the compacted view, which has only the latest record of
        each key, even if retention dropped that record. A damaged view is ignored.

        Raises: as `read`.
        """
        while (view := self._view) is not None and 0 <= offset < view.horizon:
            try:
                return view.read(offset, bytes_max, wait=wait)
            except (Fault, OSError):
                break
            except FileGone:
                self._check_open()
                if self._view is view:
                    break
        return self.read(offset, bytes_max, wait=wait)

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(self.folder)

    def batch_before(self, offset: int) -> Batch | None:
        """Return the last batch that begins below `offset`, None if that batch is below the log
        start.

        Raises: as `read`, with `wait=True`.
        """
        if offset <= self.log_start_offset:
            return None
        return self.read(offset - 1, 0)[0]

    def offset_at_or_after(self, time_us: int) -> int:
        """Return the base offset of the first batch with a record of that time or later.

        The publish time counts if a batch has a publish time, else the append time. Returns the
        high watermark if there is no such batch. May read from the disk. Raises: DamagedLog,
        LogClosed.
        """
        stop = self.high_watermark
        while True:
            try:
                found = self._segments.offset_at_or_after(time_us)
            except Fault as fault:
                raise fault.damage() from None
            except FileGone:
                self._check_open()
                continue
            return stop if found is None else max(min(found, stop), self.log_start_offset)

    def bytes_between(self, offset_a: int, offset_b: int) -> int:
        """Return the approximate number of stored bytes between two offsets; never 0 for a
        non-empty range.

        Exact at offsets where a read or an append ended, else as exact as the index. Raises:
        DamagedLog.
        """
        if offset_a >= offset_b:
            return 0
        try:
            return max(self._segments.bytes_between(offset_a, offset_b), 1)
        except Fault as fault:
            raise fault.damage() from None
        except FileGone:
            return 1  # Retention dropped a segment in the range: a read will report that.

    def places_from(self, offset: int) -> Iterator[tuple[Segment, int, int]]:
        """Yield each segment that has a batch at or above `offset`, with a place (file_pos, offset)
        to walk from: at or before the first such batch. Includes batches that are not durable yet.

        Raises: FileGone, if retention removes a segment meanwhile.
        """
        view = self._segments.view
        for number in range(view.number_of(offset), len(view.segments)):
            segment = view.segments[number]
            at, file_pos = segment.base_offset, SEGMENT_HEADER_BYTES
            if offset > at:
                with suppress(Fault):  # The walk will report it.
                    at, file_pos = place_of_offset(segment, offset, self._segments.interval_bytes)
            yield segment, file_pos, at
