"""A partition's log as durable at the last look, for readers that do not own the log.

Segments change during a read: retention drops segments, compaction and packing replace them. The
reader then looks again. `LogSource` finds the segments: `FolderSource` (`folder_reader.py`) in a
folder, `StoreSource` (`storage/shared/reader.py`) in the shared store.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol, Self

from braidlog.storage.errors import DamagedLog, OffsetOutOfRange
from braidlog.storage.formats.batch import Batch
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.places import first_at_or_after
from braidlog.storage.log.scan import BadBatch
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_names import SegmentName
from braidlog.storage.log.segment_reading import Want, read_batches
from braidlog.storage.log.settings import LogSettings

# Bytes per read, unless a batch is larger.
READ_BYTES = 4 << 20

# Failed looks at the same place before the reader believes the result.
LOOKS_MAX = 5


@dataclass(slots=True, frozen=True)
class SegmentLook:
    """The extent of a log: everything from `log_start_offset` to `high_watermark` is durable and
    may be read.
    """

    names: Sequence[SegmentName]  # Of all segments, ascending.
    log_start_offset: int
    high_watermark: int


class LogSource(Protocol):
    """Finds the segments of a partition. Every method may raise the errors of the place that it
    reads.
    """

    @property
    def partition_id(self) -> int:
        """Number of the partition."""

    def look(self) -> SegmentLook:
        """Return how far the log reaches now, and its segments."""

    def look_if_changed(self) -> SegmentLook | None:
        """Return a new look if the segments changed since the last look."""

    def size_bytes(self) -> int:
        """Return the bytes of all segment files now; 0 if there are none, as for a deleted
        topic.
        """

    def segment(self, name: SegmentName) -> Segment:
        """Return the segment of that name. Opens no file."""

    def place(self, segment: Segment, offset: int) -> tuple[int, int]:
        """(offset, file_pos) of a batch at or before that offset. Raises BadBatch, FileGone."""

    def close(self) -> None:
        """Close the files."""


class ReadOnlyLog:
    """A partition's log as durable at construction, or at the last `refresh`."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._segments: dict[SegmentName, Segment] = {}
        self._show(source.look())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def partition_id(self) -> int:
        """Number of the partition."""
        return self._source.partition_id

    @property
    def size_bytes(self) -> int:
        """Bytes of all segment files now; 0 if there are none, as for a deleted topic."""
        return self._source.size_bytes()

    def refresh(self) -> None:
        """Look again at how far the log reaches, and at its segments."""
        self._show(self._source.look())

    def is_changed(self) -> bool:
        """Return True if the segments changed since the last look; if so, look again."""
        look = self._source.look_if_changed()
        if look is not None:
            self._show(look)
        return look is not None

    def _show(self, look: SegmentLook) -> None:
        self._close_segments()
        self._names = look.names
        self.log_start_offset, self.high_watermark = look.log_start_offset, look.high_watermark

    # Reading.

    def batches(self, from_offset: int, to_offset: int | None = None) -> Iterator[Batch]:
        """Yield the batches that hold offsets in `[from_offset, to_offset)`, the first and last
        batch whole.

        If `to_offset` is None or above the watermark, the watermark is the end. Raises:
        OffsetOutOfRange, below the log start or above the watermark, also when retention overtakes;
        DamagedLog. Compaction may remove records that were not read yet.
        """
        offset, end = from_offset, self.high_watermark
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.log_start_offset, end)
        end = end if to_offset is None else min(to_offset, end)
        reads = _Reads(self)
        while offset < end:
            batches_read = reads.next(offset)
            for batch in batches_read:
                if batch.base_offset >= end:
                    return
                yield batch
            offset = batches_read[-1].next_offset

    def first_at(self, time_us: int) -> int | None:
        """Offset of the first batch with a record of that time or later, None if all are older.

        Raises: DamagedLog; FileNotFoundError if its topic was deleted.
        """
        damaged = 0
        while True:
            try:
                first_offset = self._first_at(time_us)
                break
            # Retention dropped the segment, or a compacted segment has its records now.
            except FileGone:
                self.refresh()
            except BadBatch as fault:
                damaged += 1
                if damaged == LOOKS_MAX or not self.is_changed():
                    raise fault.damage() from None
        if first_offset is None or first_offset >= self.high_watermark:
            return None
        return max(first_offset, self.log_start_offset)

    def _first_at(self, time_us: int) -> int | None:
        """Raises BadBatch, FileGone."""
        for number in range(len(self._names)):
            segment = self.segment(number)
            segment.look_again()
            offset = first_at_or_after(segment, time_us, LogSettings().index_interval_bytes)
            if offset is not None:
                return offset
        return None

    def number_of(self, offset: int) -> int:
        """The number of the segment that has that offset, if any has."""
        return max(bisect_right(self._names, offset, key=attrgetter("base_offset")) - 1, 0)

    def segment(self, number: int) -> Segment:
        """A segment by its place in the log."""
        name = self._names[number]
        if name not in self._segments:
            self._segments[name] = self._source.segment(name)
        return self._segments[name]

    def read(self, segment: Segment, place: tuple[int, int] | None, offset: int) -> list[Batch]:
        """Batches of a segment from a place at or before `offset`. Raises BadBatch, FileGone."""
        segment.look_again()  # The last segment may grow while this reads.
        want = Want(offset, self.high_watermark, READ_BYTES)
        return read_batches(segment, place or self._source.place(segment, offset), want)

    def _close_segments(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments = {}

    def close(self) -> None:
        """Read no more."""
        self._close_segments()
        self._source.close()


class _Reads:
    """A walk over the log while compaction and retention may remove segments."""

    def __init__(self, log: ReadOnlyLog) -> None:
        self._log = log
        self._segment: Segment | None = None
        self._place: tuple[int, int] | None = None
        self._end = log.high_watermark

    def next(self, offset: int) -> list[Batch]:
        """Return at least one batch. Raises OffsetOutOfRange, DamagedLog."""
        for _ in range(LOOKS_MAX):
            segment = self._log.segment(self._log.number_of(offset))
            if segment is not self._segment:
                self._segment, self._place = segment, None
            try:
                batches = self._log.read(segment, self._place, offset)
                if batches:
                    last = batches[-1]
                    self._place = last.next_offset, last.file_pos + last.header.stored_bytes
                    return batches
                failure = DamagedLog(segment.path, segment.size, offset, "the records are missing")
                is_changed = self._log.is_changed()  # A listing during a compaction may miss some.
            except FileGone:
                failure = DamagedLog(segment.path, 0, offset, "the file is gone")
                self._log.refresh()
                is_changed = True
            except BadBatch as fault:
                failure = fault.damage()
                is_changed = self._log.is_changed()
            start = self._log.log_start_offset
            if is_changed and (offset < start or not self._log.size_bytes):
                raise OffsetOutOfRange(offset, start, self._end)
            if not is_changed:
                break
        raise failure
