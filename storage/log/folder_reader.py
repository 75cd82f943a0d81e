"""Reading a data directory beside a running or stopped broker: no lock, no writes, any process.

For the tools and Spark. Never goes beyond a partition's watermark slot, which can only be too low.
Knows the folders of FORMAT.md section 1 and no catalogue.
"""

import os
from contextlib import suppress
from dataclasses import dataclass

from braidlog.storage.log.directory_id import stored_directory_id
from braidlog.storage.log.index import BadIndex
from braidlog.storage.log.layout import PARTITIONS_NAME, numbers_among
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.read_only_log import ReadOnlyLog, SegmentLook
from braidlog.storage.log.scan import load_checked
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import KIND_PARTITION, SEGMENT_HEADER_BYTES
from braidlog.storage.log.segment_names import SegmentName, segment_names
from braidlog.storage.log.topic_file import TOPIC_NAME, BadTopicFile, unpack_topic_file
from braidlog.storage.log.watermark import read_watermark

# Descriptors of a reader: the segment being read, and a few read before.
HANDLES_MAX = 8


@dataclass(slots=True, frozen=True)
class PartitionFolder:
    """A partition as named by its `topic` file."""

    partition_id: int
    topic: str
    index: int
    folder: str


def list_partitions(data_dir: str | os.PathLike[str]) -> list[PartitionFolder]:
    """All partitions with a good `topic` file, by topic and index."""
    path = os.path.join(os.fspath(data_dir), PARTITIONS_NAME)
    folders = []
    for number in numbers_among(os.listdir(path)):
        folder = os.path.join(path, str(number))
        try:
            with open(os.path.join(folder, TOPIC_NAME), "rb") as file:
                content = unpack_topic_file(file.read())
        except (OSError, BadTopicFile):
            continue  # Being made or removed, or damaged: `log verify` reports it.
        if content.partition_id == number:
            folders.append(PartitionFolder(number, content.topic, content.partition_index, folder))
    return sorted(folders, key=lambda part: (part.topic, part.index))


def open_folder(folder: str | os.PathLike[str]) -> ReadOnlyLog:
    """Return the log in a partition's folder. Raises OSError if there is no such folder."""
    return ReadOnlyLog(FolderSource(os.fspath(folder)))


class FolderSource:
    """The segments in a partition's folder. Implements `LogSource`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.partition_id = int(os.path.basename(os.path.normpath(folder)))
        self._files = LocalFiles(folder, handles_max=HANDLES_MAX, read_only=True)
        data_dir = os.path.dirname(os.path.dirname(os.path.abspath(folder)))
        self._files.name_directory(stored_directory_id(self._files, data_dir))
        self._names: list[SegmentName] = []

    def size_bytes(self) -> int:
        total = 0
        for name in self._names:
            with suppress(FileNotFoundError):  # Retention or compaction removed it meanwhile.
                total += os.path.getsize(os.path.join(self._folder, name.file_name))
        return total

    def look(self) -> SegmentLook:
        """Return the watermark slot's offsets and the segments that are there."""
        slot = read_watermark(self._folder, self.partition_id)
        self._names, _ = segment_names(os.listdir(self._folder))
        starts = [slot.log_start_offset, *(name.base_offset for name in self._names[:1])]
        return SegmentLook(self._names, max(starts), slot.durable_offset)

    def look_if_changed(self) -> SegmentLook | None:
        if segment_names(os.listdir(self._folder))[0] == self._names:
            return None
        return self.look()

    def segment(self, name: SegmentName) -> Segment:
        place = (KIND_PARTITION, self.partition_id)
        return Segment(self._files, self._folder, name.base_offset, *place, name)

    def place(self, segment: Segment, offset: int) -> tuple[int, int]:
        """The index entry before the offset, else the first batch."""
        load_checked(segment)
        try:
            place = segment.load_index().floor(offset)
        except BadIndex:
            place = None
        return place or (segment.base_offset, SEGMENT_HEADER_BYTES)

    def close(self) -> None:
        self._files.close()
