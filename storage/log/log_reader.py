"""The reading side of a log, for any thread beside the owner's appends, rounds and trimming.

Reads nothing above the high watermark. Never waits for the owner; a read may wait for the disk.
`log.py` describes each read's result and errors.
"""

from collections.abc import Iterator
from contextlib import suppress

from braidlog.storage.errors import LogClosed, OffsetOutOfRange
from braidlog.storage.formats.batch import Batch
from braidlog.storage.log.extent import ClosedExtent, Extent
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.in_place import PlacedRun, PlacedWant
from braidlog.storage.log.places import place_of_offset
from braidlog.storage.log.scan import BadBatch
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.segment_reading import Trusted, Want
from braidlog.storage.log.segment_set import SegmentSet


class LogReader:
    """Reads the segments of a log within its extent."""

    __slots__ = ("_extent", "_segments")

    def __init__(self, extent: Extent, segments: SegmentSet) -> None:
        self._extent = extent
        self._segments = segments

    def close(self) -> None:
        """Let go of the log, which is closed."""
        self._extent = ClosedExtent.of(self._extent)

    def read(
        self,
        offset: int,
        bytes_max: int,
        beyond_bytes: int | None = None,
        *,
        wait: bool = True,
        trusted: Trusted | None = None,
    ) -> list[Batch]:
        """Return batches as `Log.read`."""
        extent = self._extent
        while True:
            stop = extent.high_watermark
            if not extent.log_start_offset <= offset <= stop:
                raise OffsetOutOfRange(offset, extent.log_start_offset, stop)
            if offset == stop:
                return []
            if not self._segments.view.segments:
                raise extent.recovery.damages[-1].error()
            try:
                want = Want(offset, stop, bytes_max, wait, beyond_bytes, trusted)
                batches = self._segments.read(want)
                if batches[0].base_offset <= offset:
                    # Otherwise retention removed the batch after the log start was checked.
                    return batches
            except BadBatch as fault:
                raise fault.damage() from None
            except FileGone:  # Retention removed the file: the log start is above the offset now.
                self._check_open()

    def read_in_place(self, offset: int, bytes_max: int, body_format: int) -> PlacedRun | None:
        """Return places in a file as `Log.read_in_place`."""
        stop = self._extent.high_watermark
        if not self._extent.log_start_offset <= offset < stop or not self._segments.view.segments:
            return None
        return self._segments.read_in_place(offset, PlacedWant(body_format, stop, bytes_max))

    def batch_before(self, offset: int) -> Batch | None:
        """Return the batch as `Log.batch_before`."""
        if offset <= self._extent.log_start_offset:
            return None
        return self.read(offset - 1, 0)[0]

    def offset_at_or_after(self, time_us: int) -> int:
        """Return the offset as `Log.offset_at_or_after`."""
        stop = self._extent.high_watermark
        while True:
            try:
                candidate = self._segments.offset_at_or_after(time_us)
            except BadBatch as fault:
                raise fault.damage() from None
            except FileGone:
                self._check_open()
                continue
            return (
                stop
                if candidate is None
                else max(min(candidate, stop), self._extent.log_start_offset)
            )

    def bytes_between(self, offset_a: int, offset_b: int) -> int:
        """Return the number as `Log.bytes_between`: exact where a read or an append ended, else as
        exact as the index.
        """
        if offset_a >= offset_b:
            return 0
        try:
            return max(self._segments.bytes_between(offset_a, offset_b), 1)
        except BadBatch as fault:
            raise fault.damage() from None
        except FileGone:
            return 1  # Retention dropped a segment in the range: a read will report that.

    def places_from(self, offset: int) -> Iterator[tuple[Segment, int, int]]:
        """Yield segments and places as `Log.places_from`."""
        view = self._segments.view
        for number in range(view.number_of(offset), len(view.segments)):
            segment = view.segments[number]
            at, file_pos = segment.base_offset, SEGMENT_HEADER_BYTES
            if offset > at:
                with suppress(BadBatch):  # The walk will report it.
                    at, file_pos = place_of_offset(segment, offset, self._segments.interval_bytes)
            yield segment, file_pos, at

    def _check_open(self) -> None:
        if self._extent.is_closed:
            raise LogClosed(self._extent.folder)
