"""A segment: a log file of batches and its index. Knows its header, not its neighbours.

The owner's thread appends; any thread reads, at the same time. The size counts only completely
written bytes. FORMAT.md sections 2 to 4.
"""

import os
import threading
from collections.abc import Sequence

from braidlog.storage.formats.batch import HEADER_BYTES, BadHeader, Buffer, unpack
from braidlog.storage.log.checked_places import CheckedPlaces
from braidlog.storage.log.file_part import Leases
from braidlog.storage.log.files import File, Files
from braidlog.storage.log.index import SparseIndex
from braidlog.storage.log.segment_header import (
    FLAG_COMPACTED,
    SEGMENT_HEADER_BYTES,
    ForeignSegment,
    SegmentHeader,
    named_header,
    pack_segment_header,
    unpack_segment_header,
)
from braidlog.storage.log.segment_names import BASE_DIGITS, SegmentName
from braidlog.storage.log.segment_names import LOG_SUFFIX as LOG_SUFFIX
from braidlog.storage.log.settings import LogSettings

INDEX_SUFFIX = ".index"
NEW_SUFFIX = ".new"  # Suffix of a file without its final name: a start removes the file.


def segment_path(folder: str, base_offset: int) -> str:
    """Path of a segment's file that no compaction made: the base offset in 20 digits."""
    return f"{folder}/{base_offset:020d}{LOG_SUFFIX}"


def segment_bases(names: Sequence[str]) -> list[int]:
    """Base offsets of a journal's segment files among names of its folder, ascending."""
    stems = [name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)]
    return sorted(int(stem) for stem in stems if len(stem) == BASE_DIGITS and stem.isdecimal())


# After a read that would have waited for the disk, so many large reads of bytes that were not read
# since go to a thread. Then a read of the loop tries again.
SLOW_READS = 64


class Segment:
    """An existing segment file. Its header is read when first needed: most headers never are.

    Guarantees: bytes below `size` are whole batches and never change, so readers need no lock.
    `append` is a single write into the page cache; reads may wait for the disk.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        base_offset: int,
        kind: int,
        partition_id: int,
        name: SegmentName | None = None,
    ) -> None:
        """`name` is that of a file which compaction may have made."""
        self.path = f"{folder}/{name.file_name}" if name else segment_path(folder, base_offset)
        self.name = name or SegmentName(base_offset)
        self.base_offset = base_offset
        self.kind = kind
        self.partition_id = partition_id
        self.file: File = files.open(self.path)
        self.size = 0
        self.header: SegmentHeader | None = None
        self.salt = 0
        self.max_time_us: int | None = None  # Greatest batch time; known in the active segment.
        self.first_append_us: int | None = None
        self.newest_append_us = 0  # Greatest append time; see `is_dated`.
        self.is_dated = True  # Else `newest_append_us` is from the file, or from some batches.
        self._has_file_time = False
        self._files = files
        self._index: SparseIndex | None = None
        self._appended_from = -1  # Position of the first batch that this process wrote.
        self._checked: CheckedPlaces | None = None  # Most segments are never read.
        self._slow_reads_left = 0  # See `reads_slowly`.
        self.indexed_pos = SEGMENT_HEADER_BYTES  # Where the last entry's batch begins.
        self.index_is_lost = False  # Neither whole in its file nor kept up.
        self.building_index = threading.Lock()
        self._index_lock = threading.Lock()
        # Greatest time of the batches that the index was built from.
        self._built_max_us: int | None = None

    @classmethod
    def create(
        cls, files: Files, folder: str, header: SegmentHeader, *, named: bool = True
    ) -> "Segment":
        """Create a segment that has only its header; neither file nor folder are synced. Unless the
        segment is `named`, a start removes the file until `take_name` names it.

        Raises: StorageFull, StorageFailed; the file is then removed.
        """
        header = named_header(header, files)
        segment = cls(files, folder, header.base_offset, header.kind, header.partition_id)
        if not named:
            segment.path += NEW_SUFFIX
        segment.file = files.create(segment.path)
        try:
            segment.file.write_at([pack_segment_header(header)], 0)
        except Exception:  # Leave no half segment after any error.
            segment.discard()
            raise
        segment.size = SEGMENT_HEADER_BYTES
        segment.take_header(header)
        segment.index.create()
        return segment

    def take_name(self) -> None:
        """Give an unnamed segment its name. The folder is not synced.

        Raises: StorageFull, StorageFailed, with nothing changed.
        """
        path = self.path.removesuffix(NEW_SUFFIX)
        self._files.rename(self.path, path)
        self.path = path
        self.file.move_to(path)

    def stat(self) -> None:
        """Take size and age from the file system. Raises OSError."""
        self.take_facts(os.stat(self.path))

    def take_facts(self, status: os.stat_result) -> None:
        """Take size and age from this stat result."""
        self.size = status.st_size
        self.newest_append_us = status.st_mtime_ns // 1000
        self.is_dated = False
        self._has_file_time = True

    def set_extent(self, size: int, newest_append_us: int) -> None:
        """Use this size and newest append time of a file that is stored whole."""
        self.size, self.newest_append_us = size, newest_append_us

    def look_again(self) -> None:
        """Take the size of the file, which another process may append to. Raises FileGone."""
        self.size = self.file.size()

    def use_file(self, file: File) -> None:
        """Read from this file from now on, which has the same bytes."""
        self.file = file

    def load(self) -> None:
        """Read the header, unless that was done. Raises BadSegment, OSError, FileGone."""
        if self.header is None:
            self.take_head(self.file.read_at(SEGMENT_HEADER_BYTES + HEADER_BYTES, 0))

    def take_head(self, data: Buffer) -> None:
        """Use the header of the file that begins with these bytes. Raises BadSegment."""
        header = unpack_segment_header(data)
        if (header.kind, header.partition_id) != (self.kind, self.partition_id):
            raise ForeignSegment(f"it belongs to partition {header.partition_id}")
        if header.base_offset != self.base_offset:
            raise ForeignSegment(f"its header says base offset {header.base_offset}")
        if header.end_offset != self.name.end_offset:
            raise ForeignSegment(f"its header says that it ends at {header.end_offset}")
        if self.directory_id and header.directory_id not in (0, self.directory_id):
            raise ForeignSegment("its header names another data directory")
        self.take_header(header)
        self._take_first_time(data)

    def _take_first_time(self, data: Buffer) -> None:
        """When the first batch was appended, for the roll by age."""
        try:
            self.first_append_us = unpack(data, self.salt, SEGMENT_HEADER_BYTES).append_us
        except BadHeader:  # There is none yet, or it is damaged: a walk will report that.
            self.first_append_us = None if self.is_empty else self.newest_append_us

    def take_header(self, header: SegmentHeader) -> None:
        """Use this header: just written, read, or proven by a tool."""
        self.salt = header.salt
        self.header = header  # Last: to other threads it is the sign that all is set.

    def forget_header(self) -> None:
        """Forget the header: it is not proven."""
        self.header = None

    @property
    def directory_id(self) -> int:
        """The id of the data directory that the file is in; 0 if that has none."""
        return self._files.directory_id

    @property
    def is_empty(self) -> bool:
        """True if the segment holds no batch."""
        return self.size <= SEGMENT_HEADER_BYTES

    def is_full_for(self, stored_bytes: int, append_us: int, settings: LogSettings) -> bool:
        """Return True if a batch of that size and time begins a new segment; an empty segment takes
        any batch.
        """
        if self.size + stored_bytes > settings.segment_bytes:
            return not self.is_empty
        first_us = self.first_append_us  # None while it is empty.
        return first_us is not None and append_us - first_us >= settings.roll_ms * 1000

    @property
    def index(self) -> SparseIndex:
        """The index, empty until it is created or loaded."""
        if self._index is None:
            self._index = self.new_index()
        return self._index

    def new_index(self) -> SparseIndex:
        """An empty index for this segment, which nobody else sees until it is kept."""
        assert self.header is not None, "load() comes first"
        return SparseIndex(self._files, self._index_path, self.salt, self.base_offset)

    @property
    def _index_path(self) -> str:
        return self.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX

    @property
    def is_compacted(self) -> bool:
        """True if compaction wrote the segment."""
        return self.name.generation > 0

    @property
    def index_in_memory(self) -> SparseIndex | None:
        """The index, if it is in memory."""
        return self._index

    def load_index(self) -> SparseIndex:
        """Return the index, from its file if it is not in memory. Raises BadIndex."""
        with self._index_lock:
            index = self._index
            if index is None:
                index = self.new_index()
                index.load()
                self._index = index
            return index

    def keep_index(self, index: SparseIndex, max_time_us: int | None) -> None:
        """Use this index from now on. It covers all batches so far; `max_time_us` is the greatest
        of their times.
        """
        with self._index_lock:
            if self._index is not None:
                self._index.close()
            self._built_max_us = max_time_us
            self._index = index
            self.index_is_lost = False

    def lose_index(self) -> None:
        """Do without an index: completing it now would take too long."""
        self.drop_index()
        self.index_is_lost = True

    def save_index(self) -> None:
        """Write out the index of a full segment, if it was rebuilt. Raises StorageFailed."""
        with self._index_lock:
            if self._index is not None:
                self._index.flush()
                if self.file.gone:  # It was removed meanwhile.
                    self._files.unlink(self._index_path)

    def drop_index(self) -> None:
        """Give the index's memory back; it is loaded again when needed."""
        with self._index_lock:
            if self._index is not None:
                self._index.close()
                self._index = None

    def append(self, parts: Sequence[Buffer], size: int, append_us: int, time_us: int) -> int:
        """Write a batch, or several, of `size` bytes at the end with a single call; return the file
        position.

        Owner's thread, which holds the file.  # hot
        Raises: StorageFull, StorageFailed, with the segment unchanged.
        """
        file_pos = self.size
        self.file.write_held(parts, file_pos, size)
        self.take_written(size, append_us, time_us)
        return file_pos

    def take_written(self, size: int, append_us: int, time_us: int) -> None:
        """Take `size` bytes, which were written behind the end.  # hot"""
        file_pos = self.size
        self.size = file_pos + size
        if self._appended_from < 0:
            self._appended_from = file_pos
            if file_pos <= SEGMENT_HEADER_BYTES:  # The file's time was that of its creation.
                self.newest_append_us, self.is_dated = append_us, True
        self.note(append_us, time_us)

    @property
    def leases(self) -> Leases:
        """The leases from which a caller that holds the file takes a lease on it."""
        return self._files.leases

    def note_checked(self, start_pos: int, end_pos: int) -> None:
        """Remember that the bodies between two places were verified."""
        if not 0 <= self._appended_from <= start_pos:
            if self._checked is None:
                self._checked = CheckedPlaces()
            self._checked.note(start_pos, end_pos)

    def checked_end(self, file_pos: int) -> int:
        """The end of the bodies from a place on that are known to be good: this process verified
        them, or wrote them. The place itself if none are.
        """
        if 0 <= self._appended_from <= file_pos:
            return self.size
        return file_pos if self._checked is None else self._checked.end_from(file_pos)

    def forget_checked(self) -> None:
        """Forget which of the bodies so far are known to be good: they come from the disk again.
        Reads of them are slow for a while.
        """
        self._checked = None
        if self._appended_from >= 0:
            self._appended_from = self.size
        self._slow_reads_left = SLOW_READS

    def reads_slowly(self, file_pos: int, size: int) -> bool:
        """Return True if a read of these bytes likely waits for the disk: reads of this segment did
        lately, and some of the bytes were not read since.
        """
        return self._slow_reads_left > 0 and self.checked_end(file_pos) < file_pos + size

    def note_waited(self) -> None:
        """Note a large read that may wait for the disk."""
        if self._slow_reads_left:
            self._slow_reads_left -= 1

    def note(self, append_us: int, time_us: int) -> None:
        """Note the times of a batch that was written."""
        if self.max_time_us is None or time_us > self.max_time_us:
            self.max_time_us = time_us
        if self.first_append_us is None:
            self.first_append_us = append_us
        if append_us > self.newest_append_us:
            self.newest_append_us = append_us

    def note_stored(self, append_us: int, time_us: int) -> None:
        """Note the times of a batch that was there before this start: better than the file's."""
        if self._has_file_time:
            self._has_file_time = False
            self.newest_append_us = append_us
        self.note(append_us, time_us)

    def limit_date(self, wall_us: int) -> None:
        """Limit the append time to the wall clock: times in the future were written by now."""
        self.newest_append_us = min(self.newest_append_us, wall_us)

    def take_date(self, newest_append_us: int) -> None:
        """Use the greatest append time of all batches from before this start."""
        is_only_files = self._has_file_time and self._appended_from < 0
        if is_only_files and newest_append_us:
            self.newest_append_us = newest_append_us
        self.newest_append_us = max(self.newest_append_us, newest_append_us)
        self.is_dated = True

    def note_in_index(
        self, offset: int, file_pos: int, max_time_before_us: int | None, interval_bytes: int
    ) -> None:
        """Give the batch at `file_pos` an index entry, if the batch is far enough after the last
        entry.

        Raises: StorageFailed.
        """
        if file_pos - self.indexed_pos >= interval_bytes:
            self.indexed_pos = file_pos
            index = self._index
            if index is None:
                return
            if self._built_max_us is not None:
                max_time_before_us = self._with_built(max_time_before_us)
            if index.add(offset, file_pos, max_time_before_us):
                index.flush()

    def _with_built(self, max_time_us: int | None) -> int | None:
        """Return the greater of the time that the owner has seen and the time that the index was
        built from.
        """
        times_us = [time_us for time_us in (max_time_us, self._built_max_us) if time_us is not None]
        return max(times_us, default=None)

    def end_index(self, next_offset: int) -> bool:
        """Add the end entry to the index, if there is an index, and write the index out; return
        True if there was anything to write. Raises StorageFailed.
        """
        index = self._index
        if index is None:
            return False
        last = index.last()
        if last is None or last[1] != self.size:
            index.add(next_offset, self.size, self._with_built(self.max_time_us))
        self.indexed_pos = self.size
        return index.flush()

    def resume_index(self) -> None:
        """Continue the index after its last entry, after recovery."""
        last = self.index.last()
        self.indexed_pos = last[1] if last is not None else SEGMENT_HEADER_BYTES
        self.max_time_us = last[2] if last is not None else None

    def cut(self, file_pos: int) -> None:
        """Cut off everything from that place on, with the index. Raises StorageFull,
        StorageFailed.
        """
        is_lost = self.index_is_lost
        self.index.remove()  # No index entry may point into the part that is cut off.
        if is_lost:
            self.lose_index()
        self.file.truncate(file_pos)
        self.size = file_pos
        if self.is_empty:
            self.first_append_us = None  # The time belonged to a batch that is cut off.

    def remove(self) -> None:
        """Remove log file and index; readers that hold them finish. Raises StorageFailed."""
        self.close()
        self._files.unlink(self.path)
        self._files.unlink(self._index_path)

    def discard(self) -> None:
        """Remove a segment that is not wanted after all: now, or once the disk allows it.

        Raises: StorageFailed.
        """
        self.close()
        self._files.discard(self.path)

    def close(self) -> None:
        """Close the files."""
        self.file.close()
        self.drop_index()


def empty_header(segment: Segment, salt: int, flags: int = 0) -> SegmentHeader:
    """The smallest header that a segment's file can have, by its name."""
    flags |= FLAG_COMPACTED if segment.is_compacted else 0
    place = (segment.partition_id, segment.base_offset)
    return SegmentHeader(segment.kind, salt, *place, flags, segment.name.end_offset)
