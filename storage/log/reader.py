"""Reading a data directory beside a running or stopped broker: no lock, no writes, any process.

For the tools and Spark. Never goes beyond a partition's watermark slot, which can only be too low.
Knows the folders of FORMAT.md section 1 and no catalogue.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from storage.errors import DamagedLog, OffsetOutOfRange
from storage.log.batch import Batch
from storage.log.data_dir import PARTITIONS_NAME, numbers_among
from storage.log.files import FileGone, Files
from storage.log.index import BadIndex
from storage.log.places import first_at_or_after
from storage.log.reading import Want, read_batches
from storage.log.scan import Fault, load_checked
from storage.log.segment import (
    KIND_PARTITION,
    SEGMENT_HEADER_BYTES,
    Segment,
)
from storage.log.segment_names import SegmentName, segment_names
from storage.log.settings import LogSettings
from storage.log.topic_file import TOPIC_NAME, BadTopicFile, unpack_topic_file
from storage.log.watermark import read_watermark

# What is read at once, besides a batch that is larger.
READ_BYTES = 4 << 20

# Descriptors of one reader: the segment it reads, and a few it read before.
HANDLES_MAX = 8


@dataclass(slots=True, frozen=True)
class PartitionFolder:
    """A partition as its `topic` file names it."""

    partition_id: int
    topic: str
    index: int
    folder: str


def list_partitions(data_dir: str | os.PathLike[str]) -> list[PartitionFolder]:
    """All partitions with a good `topic` file, by topic and index."""
    path = os.path.join(os.fspath(data_dir), PARTITIONS_NAME)
    found = []
    for number in numbers_among(os.listdir(path)):
        folder = os.path.join(path, str(number))
        try:
            with open(os.path.join(folder, TOPIC_NAME), "rb") as file:
                content = unpack_topic_file(file.read())
        except (OSError, BadTopicFile):
            continue  # Being made or removed, or damaged: `log verify` tells.
        if content.partition_id == number:
            found.append(PartitionFolder(number, content.topic, content.partition_index, folder))
    return sorted(found, key=lambda one: (one.topic, one.index))


class ReadOnlyLog:
    """One partition's log as it was durable when this was made, or when `refresh` was called.

    `high_watermark`: everything from `log_start_offset` to it is durable and may be read.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises OSError if there is no such folder."""
        self.folder = os.fspath(folder)
        self.partition_id = int(os.path.basename(os.path.normpath(self.folder)))
        self._files = Files(self.folder, handles_max=HANDLES_MAX, read_only=True)
        self._segments: dict[SegmentName, Segment] = {}
        self._names: list[SegmentName] = []
        self.high_watermark = 0
        self.log_start_offset = 0
        self.refresh()

    def __enter__(self) -> "ReadOnlyLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def size_bytes(self) -> int:
        """Bytes of all segment files now."""
        paths = [os.path.join(self.folder, name.file_name) for name in self._names]
        return sum(os.path.getsize(path) for path in paths if os.path.exists(path))

    def refresh(self) -> None:
        """Look again at the watermark slot and the segments that are there."""
        self._let_go()
        slot = read_watermark(self.folder, self.partition_id)
        self.high_watermark = slot.durable_offset
        self._names, _ = segment_names(os.listdir(self.folder))
        self.log_start_offset = max(
            [slot.log_start_offset, *(name.base_offset for name in self._names[:1])]
        )

    def batches(self, from_offset: int, to_offset: int | None = None) -> Iterator[Batch]:
        """Batches that hold offsets in `[from_offset, to_offset)`, the first and last ones whole.

        `to_offset` is the watermark where it is None or above it.
        Raises: OffsetOutOfRange, below the log start or above the watermark, also when retention
        overtakes; DamagedLog. Compaction may take out records that were not read yet.
        """
        offset, end = from_offset, self.high_watermark
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.log_start_offset, end)
        end = end if to_offset is None else min(to_offset, end)
        reads = _Reads(self, offset)
        while offset < end:
            found = reads.next(offset)
            for batch in found:
                if batch.base_offset >= end:
                    return
                yield batch
            offset = found[-1].next_offset

    def first_at(self, time_us: int) -> int | None:
        """Offset of the first batch with a record of that time or later, None if all are older.

        Raises DamagedLog.
        """
        for number in range(len(self._names)):
            segment = self.segment(number)
            try:
                segment.size = segment.file.size()
                found = first_at_or_after(segment, time_us, LogSettings().index_interval_bytes)
            except FileGone:
                continue  # Retention dropped all of it meanwhile.
            except Fault as fault:
                raise fault.damage() from None
            if found is not None:
                return max(found, self.log_start_offset) if found < self.high_watermark else None
        return None

    def number_of(self, offset: int) -> int:
        """Which segment has that offset, if any has."""
        return max(bisect_right(self._names, offset, key=_base_of) - 1, 0)

    def segment(self, number: int) -> Segment:
        """A segment by its place in the log."""
        name = self._names[number]
        segment = self._segments.get(name)
        if segment is None:
            place = (KIND_PARTITION, self.partition_id)
            segment = Segment(self._files, self.folder, name.base_offset, *place, name)
            self._segments[name] = segment
        return segment

    def read(self, segment: Segment, place: tuple[int, int] | None, offset: int) -> list[Batch]:
        """Batches of a segment, from a place at or before that offset. Raises Fault, FileGone."""
        segment.size = segment.file.size()  # The last segment may grow while this reads.
        want = Want(offset, self.high_watermark, READ_BYTES)
        return read_batches(segment, place or self._place(segment, offset), want)

    def is_changed(self) -> bool:
        """Whether the segments are others now than at the last look; looks again then."""
        before = self._names
        if segment_names(os.listdir(self.folder))[0] == before:
            return False
        self.refresh()
        return True

    def _place(self, segment: Segment, offset: int) -> tuple[int, int]:
        """Where to begin: at the index entry before the offset, else at the first batch."""
        load_checked(segment)
        try:
            place = segment.load_index().floor(offset)
        except BadIndex:
            place = None
        return place or (segment.base_offset, SEGMENT_HEADER_BYTES)

    def _let_go(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments = {}

    def close(self) -> None:
        """Close the files."""
        self._let_go()
        self._files.close()


class _Reads:
    """One walk over the log while compaction and retention may take segments away."""

    def __init__(self, log: ReadOnlyLog, offset: int) -> None:
        self._log = log
        self._segment: Segment | None = None
        self._place: tuple[int, int] | None = None
        self._end = log.high_watermark

    def next(self, offset: int) -> list[Batch]:
        """At least one batch. Raises OffsetOutOfRange, DamagedLog."""
        while True:
            segment = self._log.segment(self._log.number_of(offset))
            if segment is not self._segment:
                self._segment, self._place = segment, None
            try:
                found = self._log.read(segment, self._place, offset)
                if found:
                    last = found[-1]
                    self._place = last.next_offset, last.file_pos + last.header.stored_bytes
                    return found
                failure = DamagedLog(segment.path, segment.size, offset, "the records are missing")
            except FileGone:
                self._log.refresh()
                if offset < self._log.log_start_offset or not self._log.size_bytes:
                    start = self._log.log_start_offset
                    raise OffsetOutOfRange(offset, start, self._end) from None
                continue
            except Fault as fault:
                failure = fault.damage()
            if not self._log.is_changed():  # A listing beside a compaction may miss a name.
                raise failure


def _base_of(name: SegmentName) -> int:
    return name.base_offset
