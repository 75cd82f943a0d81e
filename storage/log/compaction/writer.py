"""Writes a compacted file: batches unchanged, batches with only some of their records, and gaps
over everything else. The file is invisible until named.
"""

from dataclasses import replace

from braidlog.storage.errors import StorageFull
from braidlog.storage.formats.api import BatchFlag, BodyFormat, Buffer, RemainingBody
from braidlog.storage.formats.batch import (
    BATCH_OFFSETS_MAX,
    HEADER_BYTES,
    Batch,
    BatchHeader,
    body_checksum,
    pack,
)
from braidlog.storage.log.files import Files
from braidlog.storage.log.places import later
from braidlog.storage.log.removed_folder import may_be_gone
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    named_header,
    pack_segment_header,
)
from braidlog.storage.log.segment_names import SegmentName

NEW_SUFFIX = ".new"
WRITE_BYTES = 1 << 20  # Bytes gathered before a write.


class CompactedWriter:
    """A compacted file in the making. Any thread; waits for the disk."""

    def __init__(
        self, files: Files, folder: str, name: SegmentName, header: SegmentHeader, interval: int
    ) -> None:
        """`interval` is that of the index, in bytes. Raises: StorageFull, StorageFailed."""
        self.name = name
        self.header = header = named_header(header, files)
        self.path = f"{folder}/{name.file_name}"
        self.last_append_us = 0  # Greatest append time of all sources, even of records left out.
        self.record_count = 0
        self.segment: Segment | None = None  # Set once the file has its name.
        self._folder = folder
        self._files = files
        self._interval = interval
        self._parts: list[Buffer] = [pack_segment_header(header)]
        self._pending_bytes = SEGMENT_HEADER_BYTES
        self._written = 0
        self._entries: list[tuple[int, int, int | None]] = []
        self._indexed_pos = SEGMENT_HEADER_BYTES
        self._max_time_us: int | None = None
        self._next = header.base_offset  # The offset that the next batch has to begin with.
        self._durable = header.base_offset
        files.unlink(self.path + NEW_SUFFIX)
        self._file = files.create(self.path + NEW_SUFFIX)

    def note_append(self, append_us: int) -> None:
        """Note the append time of a batch, even if none of its records is kept."""
        self.last_append_us = max(self.last_append_us, append_us)

    @property
    def size(self) -> int:
        """Bytes of the file so far."""
        return self._written + self._pending_bytes

    def keep(self, batch: Batch) -> None:
        """Add a batch as it is. Raises: StorageFull, StorageFailed."""
        self._add(batch.header, batch.positions, batch.body)

    def keep_some(self, batch: Batch, remaining: RemainingBody) -> None:
        """Add the kept records of a batch; its times stay. Raises: StorageFull, StorageFailed."""
        header = batch.header
        changed = replace(
            header,
            last_offset_delta=remaining.end_offset - header.base_offset - 1,
            record_count=remaining.record_count,
            flags=header.flags | BatchFlag.COMPACTED,
            positions_bytes=0,
            body_bytes=len(remaining.body),
            body_crc=body_checksum([remaining.body]),
        )
        self._add(changed, b"", remaining.body)

    def _add(self, header: BatchHeader, positions: Buffer, body: Buffer) -> None:
        self._fill_gap(header.base_offset)
        self.record_count += header.record_count
        self._durable = max(self._durable, header.durable_offset)
        self._put(header, [positions, body])

    def _fill_gap(self, end_offset: int) -> None:
        """Cover the left-out offsets with empty batches."""
        while self._next < end_offset:
            covered = min(end_offset - self._next, BATCH_OFFSETS_MAX)
            gap = BatchHeader(
                partition_id=self.header.partition_id,
                base_offset=self._next,
                last_offset_delta=covered - 1,
                record_count=0,
                durable_offset=self._durable,
                append_us=self.last_append_us,
                body_format=BodyFormat.GAP,
                flags=BatchFlag.GAP,
            )
            self._put(gap, [])

    def _put(self, header: BatchHeader, content: list[Buffer]) -> None:
        file_pos = self.size
        if file_pos - self._indexed_pos >= self._interval:
            self._indexed_pos = file_pos
            self._entries.append((header.base_offset, file_pos, self._max_time_us))
        self._parts += [pack(header, self.header.salt), *content]
        self._pending_bytes += HEADER_BYTES + sum(map(len, content))
        self._max_time_us = later(self._max_time_us, header)
        self._next = header.next_offset
        if self._pending_bytes >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._file.write_at(self._parts, self._written)
        self._written += self._pending_bytes
        self._parts, self._pending_bytes = [], 0

    def finish(self) -> None:
        """Make the file whole and durable, still under its temporary name.

        Raises: StorageFull, StorageFailed, FileGone where the partition was deleted.
        """
        self._fill_gap(self.name.end_offset)
        self._flush()
        self._file.datasync()
        self._file.close()
        # Retention by age uses it after the next start.
        with may_be_gone(self._folder):
            self._files.set_time(self.path + NEW_SUFFIX, self.last_append_us)

    def publish(self) -> Segment:
        """Give the file its name: from now on a start uses the file. The folder is not synced.

        Raises: StorageFull, StorageFailed.
        """
        self._files.rename(self.path + NEW_SUFFIX, self.path)
        header = self.header
        place = (header.base_offset, header.kind, header.partition_id)
        segment = Segment(self._files, self._folder, *place, self.name)
        segment.set_extent(self._written, self.last_append_us)
        segment.take_header(header)
        index = segment.new_index()
        index.fill([*self._entries, (self._next, self._written, self._max_time_us)])
        segment.keep_index(index, self._max_time_us)
        self.segment = segment
        return segment

    def abandon(self) -> None:
        """Leave nothing behind, unless it was published. Raises StorageFailed."""
        self._file.close()
        if self.segment is not None:
            return
        try:
            self._files.unlink(self.path + NEW_SUFFIX)
        except StorageFull:
            return  # The disk became read-only: a start removes it.
