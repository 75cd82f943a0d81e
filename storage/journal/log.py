"""A journal: records in the log's own format, replayed whole at start, shortened by snapshots.

Catalogue and cursors have a journal each. Knows records as bytes only; FORMAT.md section 9 has the
layout. Everything but `begin_sync`'s sync belongs to the owner's thread.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from struct import Struct
from struct import error as StructError
from time import time_ns

from braidlog.storage.errors import DamagedLog, LogClosed, StorageFull
from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.batch import BatchHeader, body_checksum, pack
from braidlog.storage.log.committer import Committer, SyncPoint
from braidlog.storage.log.files import Files
from braidlog.storage.log.recovery import LogIdentity, RecoveryReport, recover
from braidlog.storage.log.scan import NO_OFFSET, BadBatch, bodies, load_checked, walk
from braidlog.storage.log.segment import Segment, segment_bases
from braidlog.storage.log.segment_header import (
    FLAG_SNAPSHOT,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    new_salt,
)
from braidlog.storage.log.unsynced import Unsynced
from braidlog.storage.log.watermark import (
    WATERMARK_MAGIC,
    WATERMARK_NAME,
    SlotFile,
    read_watermark,
)

LENGTH = Struct("<I")

# Lazy records that may wait in memory for a round; more records are written at once.
LAZY_BYTES_MAX = 1 << 20

# A snapshot is written in batches of about this size.
SNAPSHOT_BATCH_BYTES = 256 * 1024

# Journals are read whole at start and keep no index.
NO_INDEX = 1 << 62


class JournalLog:
    """An open journal. Call `replay` before the first append; another call yields all records on
    the disk again.

    Guarantees: records covered by a durable ticket are replayed after any crash, in order; a
    snapshot replaces older segments only once the snapshot is durable. Only opening and `replay`
    wait for the disk.
    Implements `Journal` and `RoundParticipant`.
    """

    def __init__(
        self, folder: str, files: Files, committer: Committer, kind: int, journal_id: int
    ) -> None:
        """Open and recover the journal in `folder`; make a missing journal.

        Raises: DamagedLog, StorageFull, StorageFailed.
        """
        self.folder = folder
        self.lazy_source: Callable[[], Iterable[bytes]] | None = None
        self._files = files
        self._committer = committer
        self._identity = LogIdentity(folder, kind, journal_id)
        self._lazy: list[bytes] = []
        self._lazy_bytes = 0
        self._unsynced = Unsynced(folder)
        self._closed = False
        # Superseded by a snapshot; removed once the snapshot, and then a slot that names the
        # snapshot, are durable.
        self._old: list[Segment] = []
        self._start_offset = 0  # Base offset of the newest durable snapshot.
        # Path, file position and offset of the record yielded last.
        self._replayed = (folder, 0, 0)
        # For a new journal: an earlier program, which does not know these headers, needs a slot
        # that says that the first segment has content. Without the slot that program would take the
        # content for a torn tail.
        self._slot_is_due = False
        self._make_if_missing()
        files.adopt(folder)
        slot_path = os.path.join(folder, WATERMARK_NAME)
        self._slot = SlotFile(files, slot_path, WATERMARK_MAGIC, kind, journal_id)
        self._recover()

    def _make_if_missing(self) -> None:
        """Make a new journal durable, its name included, before the first write."""
        if not os.path.isdir(self.folder):
            self._files.make_folder(self.folder)
        identity = self._identity
        if segment_bases(self._files.names(self.folder)):
            return
        if read_watermark(self.folder, identity.partition_id, identity.kind).durable_offset > 0:
            return  # The journal had records: recovery reports the damage.
        self._slot_is_due = True
        segment = self._new_segment(0, flags=0)
        segment.file.datasync()
        segment.close()
        self._files.sync_folder(self.folder)
        self._files.sync_folder(os.path.dirname(self.folder))

    def _new_segment(self, base_offset: int, flags: int, *, named: bool = True) -> Segment:
        identity = self._identity
        header = SegmentHeader(identity.kind, new_salt(), identity.partition_id, base_offset, flags)
        return Segment.create(self._files, self.folder, header, named=named)

    def _recover(self) -> None:
        names = self._files.names(self.folder)
        recovered = recover(self._files, self._identity, self._slot.mark, NO_INDEX, names)
        self.recovery: RecoveryReport = recovered.report
        for damage in recovered.report.damages:
            raise damage.error()
        self._end_offset = recovered.log_end_offset
        self.durable_offset = recovered.durable_offset
        self._segments = recovered.segments
        self._old = recovered.below_start
        if not self._segments:
            self._segments = [self._new_segment(self._end_offset, flags=0)]
            self._unsynced.hold(self._segments[0].file)
            self._unsynced.note_names()
        self._choose_snapshot()
        for segment in recovered.unsynced:  # A start also walks the old segments while they exist.
            if segment in self._old or segment in self._segments:
                self._unsynced.hold(segment.file)
        self._start_offset = (self._old or self._segments)[0].base_offset
        if self._old:
            self._unsynced.hold(self._segments[0].file)
            self._unsynced.note_names()
        if self._unsynced.files:
            self._committer.mark(self)
        self._write_slot()

    # Start

    def _choose_snapshot(self) -> None:
        """Keep the newest whole snapshot and later segments; drop an unfinished snapshot at the
        end.
        """
        self.snapshot_bytes = 0
        for segment in reversed(self._segments):
            if not self._is_snapshot(segment):
                continue
            end_pos = self._snapshot_end(segment)
            if end_pos is not None:
                self.snapshot_bytes = end_pos
                while self._segments[0] is not segment:  # Removed once this segment is durable.
                    self._old.append(self._segments.pop(0))
                return
            if segment is not self._segments[-1] or len(self._segments) == 1:
                raise DamagedLog(segment.path, 0, segment.base_offset, "its snapshot has no end")
            self._drop_unfinished(self._segments.pop())

    def _drop_unfinished(self, segment: Segment) -> None:
        segment.remove()
        self._end_offset = segment.base_offset
        self.durable_offset = min(self.durable_offset, self._end_offset)
        self._files.sync_folder(self.folder)

    def _is_snapshot(self, segment: Segment) -> bool:
        try:
            load_checked(segment)
        except BadBatch as fault:
            raise fault.damage() from None
        return segment.header is not None and bool(segment.header.flags & FLAG_SNAPSHOT)

    def _snapshot_end(self, segment: Segment) -> int | None:
        """Return the end of the marker batch that completes the snapshot, None without a marker.
        `replay` checks bodies.
        """
        start = (segment, SEGMENT_HEADER_BYTES, segment.base_offset)
        try:
            for file_pos, header in walk(*start, check_bodies_from=NO_OFFSET, end_pos=segment.size):
                if header.flags & BatchFlag.MARKER:
                    return file_pos + header.stored_bytes
        except BadBatch as fault:
            raise fault.damage() from None
        return None

    def replay(self) -> Iterator[bytes]:
        for segment in self._segments:
            try:
                for offset, file_pos, body in bodies(segment):
                    for record_offset, record in enumerate(unpack_records(body), offset):
                        self._replayed = (segment.path, file_pos, record_offset)
                        yield record
            except BadBatch as fault:
                raise fault.damage() from None
            except StructError as error:
                reason = f"a record is cut short: {error}"
                raise DamagedLog(segment.path, file_pos, offset, reason) from error

    def damage(self, reason: str) -> DamagedLog:
        return DamagedLog(*self._replayed, reason)

    # Appending

    @property
    def last_place(self) -> int:
        return self._end_offset - 1

    @property
    def next_place(self) -> int:
        return self._end_offset + len(self._lazy)

    @property
    def replayed_place(self) -> int:
        return self._replayed[2]

    @property
    def size_bytes(self) -> int:
        """Bytes of the journal's files."""
        return sum(segment.size for segment in self._segments)

    def append(self, body: bytes) -> int:
        """Write a record; return the ticket of the round that makes the record durable.

        Raises: StorageFull, and nothing is written; StorageFailed; LogClosed.
        """
        self._store([body])
        return self._committer.mark(self)

    def append_lazy(self, body: bytes) -> None:
        """Queue a record for the journal's next round, after all records of earlier `append` calls.

        Raises: StorageFull, if too many bytes wait and cannot be written, and then the record is
        not queued; StorageFailed; LogClosed.
        """
        if self._lazy_bytes + len(body) > LAZY_BYTES_MAX:
            self._store_lazy()
        self._lazy.append(body)
        self._lazy_bytes += len(body)
        self._committer.mark_lazy(self)

    def mark_lazy(self) -> None:
        """Ask `lazy_source` for records when the next round begins."""
        self._committer.mark_lazy(self)

    def _store(self, bodies: list[bytes]) -> None:
        """Write records as a batch, waiting lazy records first, so that changes stay in order."""
        if self._closed:
            raise LogClosed(self.folder)
        records = [*self._lazy, *bodies]
        if records:
            self._write_batch(self._segments[-1], records, flags=0)
            self._lazy, self._lazy_bytes = [], 0

    def _store_lazy(self) -> None:
        self._store([])

    def _write_batch(self, segment: Segment, records: list[bytes], flags: int) -> None:
        body = pack_records(records)
        covered = max(len(records), 1)
        header = BatchHeader(
            partition_id=self._identity.partition_id,
            base_offset=self._end_offset,
            last_offset_delta=covered - 1,
            record_count=len(records),
            durable_offset=min(self.durable_offset, self._end_offset),
            append_us=time_ns() // 1000,
            body_format=BodyFormat.JOURNAL,
            flags=flags,
            body_bytes=len(body),
            body_crc=body_checksum([body]),
        )
        self._unsynced.hold(segment.file)
        parts = [pack(header, segment.salt), body]
        segment.append(parts, header.stored_bytes, header.append_us, header.time_us)
        self._end_offset += covered

    def snapshot(self, bodies: Iterable[bytes]) -> None:
        """Write the whole state into a new segment; older segments go once that segment is durable.

        `bodies` is the whole state, including all records appended before, lazy records too.
        Raises: StorageFull, and the journal goes on as before; StorageFailed; LogClosed.
        """
        if self._closed:
            raise LogClosed(self.folder)
        self._store_lazy()  # Their places are known: no record of the snapshot may have them.
        if self._segments[-1].is_empty:  # The new segment needs an offset, and a name, of its own.
            self._write_batch(self._segments[-1], [], flags=BatchFlag.MARKER)
        start_offset = self._end_offset
        # The segment gets its name only when whole: a start must never find an abandoned snapshot
        # among later records of the segment before. A power cut might undo the removal of a named
        # segment.
        segment = self._new_segment(start_offset, FLAG_SNAPSHOT, named=False)
        try:
            for records in in_batches(bodies):
                self._write_batch(segment, records, flags=0)
            self._write_batch(segment, [], flags=BatchFlag.MARKER)
            segment.take_name()
        except BaseException:  # The snapshot failed, whatever the reason.
            self._end_offset = start_offset
            segment.discard()
            raise
        self._lazy, self._lazy_bytes = [], 0
        self._old += self._segments
        self._segments = [segment]
        self.snapshot_bytes = segment.size
        self._unsynced.note_names()
        self._committer.mark(self)

    # Rounds

    def begin_sync(self) -> SyncPoint:
        """Write the lazy records for the committer, and return the files to sync."""
        if self.lazy_source is not None and not self._lazy:
            self._lazy = list(self.lazy_source())
        try:
            self._store_lazy()
        except StorageFull:
            self._committer.mark_lazy(self)  # Try again in the next round.
        return self._unsynced.take(self._end_offset)

    def finish_sync(self, point: SyncPoint) -> None:
        self._unsynced.synced(point)
        if self._closed:
            return
        self.durable_offset = max(self.durable_offset, point.end_offset)
        if self._slot.file in point.files:
            self._remove_old()
        if self._segments[0].base_offset < point.end_offset:
            self._start_offset = self._segments[0].base_offset
        self._write_slot()
        is_due = self._slot_is_due and self.durable_offset > 0
        has_old = self._old and self._old[0].base_offset < self._slot.mark.log_start_offset
        if is_due or has_old:
            self._slot_is_due = False
            assert self._slot.file is not None
            with suppress(StorageFull):  # Out of descriptors: a later round syncs the slot.
                self._unsynced.hold(self._slot.file)
            self._committer.mark_lazy(self)

    def _remove_old(self) -> None:
        """Remove segments below the start of the durable slot: no start reads them any more."""
        start_offset = self._slot.mark.log_start_offset
        while self._old and self._old[0].base_offset < start_offset:
            # The disk became read-only: the next start removes the segment.
            with suppress(StorageFull):
                self._old.pop(0).remove()
            self._unsynced.note_names()
            self._committer.mark_lazy(self)

    def _write_slot(self) -> None:
        self._unsynced.write_slot(self._slot, self._start_offset, self.durable_offset)

    # Ending

    def seal(self) -> None:
        """Let the next commit make the slot durable; for a clean stop, after a commit."""
        self._write_slot()
        if self._slot.file is not None:
            self._unsynced.hold(self._slot.file)
        self._unsynced.note_names()
        self._committer.mark(self)

    def close(self) -> None:
        """Close the files without a sync."""
        self._closed = True
        self._committer.forget(self)
        self._unsynced.close()
        for segment in [*self._old, *self._segments]:
            segment.close()
        self._slot.close()


def pack_records(records: Iterable[bytes]) -> bytes:
    """Return the records joined, each after its length (FORMAT.md 8.5)."""
    return b"".join(piece for body in records for piece in (LENGTH.pack(len(body)), body))


def unpack_records(body: memoryview) -> Iterator[bytes]:
    """Yield the records of a JOURNAL body. Raises struct.error if the body ends within a record."""
    pos = 0
    while pos < len(body):
        (size,) = LENGTH.unpack_from(body, pos)
        pos += LENGTH.size
        if pos + size > len(body):
            raise StructError(f"{size} bytes wanted at {pos} of {len(body)}")
        yield bytes(body[pos : pos + size])
        pos += size


def in_batches(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield records in lists of about the size of a snapshot's batch."""
    records: list[bytes] = []
    size = 0
    for body in bodies:
        records.append(body)
        size += len(body)
        if size >= SNAPSHOT_BATCH_BYTES:
            yield records
            records, size = [], 0
    if records:
        yield records
