"""A thorough check of a log, for `log verify`: batches, bodies, index and slots.

Takes no lock and changes nothing, and raises FileGone when a running broker drops a file meanwhile:
check again then. Knows partitions and journals alike, and no data directory.
"""

import os
from collections.abc import Callable

from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.log.compaction.sources import SegmentSource
from braidlog.storage.log.files import FileGone, Files
from braidlog.storage.log.recovery import LogIdentity
from braidlog.storage.log.scan import BadBatch, read_checked
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import KIND_PARTITION
from braidlog.storage.log.segment_names import view_names
from braidlog.storage.log.watermark import (
    RESERVED_MAGIC,
    RESERVED_NAME,
    SLOT_BYTES,
    SLOT_DISTANCE,
    WATERMARK_MAGIC,
    WATERMARK_NAME,
    best_slot,
    read_watermark,
    unpack_slot,
)
from braidlog.storage.tools.content import BadContent, check_content
from braidlog.storage.tools.findings import Finding, Level, LogSummary
from braidlog.storage.tools.index_check import IndexCheck
from braidlog.storage.tools.survey import Good, Hole, LogSurvey, Survey

# Findings kept for a log; any more are only counted.
FINDINGS_MAX = 1000

LOST_RESERVATION = (
    "it has no good slot: offsets above the log end may have been given out, and could come again"
)

Visit = Callable[[Good, bytes], None]


class LogCheck:
    """A check of a log; `findings` and `summary` are the results."""

    def __init__(
        self,
        files: Files,
        identity: LogIdentity,
        name: str,
        *,
        running: bool,
        known_end: int = 0,
    ) -> None:
        """With `running`, a broker has the log open, and only the part covered by the slot is
        checked. `known_end`: everything below was on disk, even above the slot.
        """
        self.findings: list[Finding] = []
        self.summary = LogSummary(name)
        self.left_out: dict[Level, int] = {}
        self.folder = identity.folder
        self._files = files
        self._identity = identity
        self._running = running
        self._known_end = known_end
        self._index: IndexCheck | None = None
        self._indexed: Segment | None = None

    def run(self, progress: Callable[[int], None], visit: Visit | None = None) -> Survey:
        """Walk over everything; `progress` gets bytes, `visit` every good batch.

        `take` turns the faults of the survey into findings. Raises: FileGone, StorageFailed.
        """
        slot = read_watermark(
            self._identity.folder, self._identity.partition_id, self._identity.kind
        )
        slot.durable_offset = max(slot.durable_offset, self._known_end)
        stop = slot.durable_offset if self._running else None
        survey = LogSurvey(self._files, self._identity, slot, stop)
        for good in survey.batches():
            self._batch(good, visit)
            progress(good.header.stored_bytes)
        result = survey.result
        self._end_index(grows=self._running)
        self._check_views()
        return result

    def _check_views(self) -> None:
        """Check compacted views. Views only repeat the log: a damaged view is no loss."""
        identity = self._identity
        for name in view_names(self._files.names(identity.folder))[:1]:
            place = (identity.folder, name.base_offset, identity.kind, identity.partition_id)
            view = Segment(self._files, *place, name)
            try:
                view.stat()
                for _ in SegmentSource(view, 0, name.end_offset).pieces(view.size):
                    pass  # A read checks the batch.
            except BadBatch as fault:
                reason = f"{fault.reason}; readers pass this view over, a compaction makes another"
                self.tell(Level.WARNING, view.path, reason, file_pos=fault.file_pos)
            except (FileNotFoundError, FileGone):
                return  # A running broker has another slot now.
            finally:
                view.close()

    def take(self, survey: Survey) -> None:
        """Turn a survey's holes and tail, and bad slots, into findings."""
        for hole in survey.holes:
            self._tell_hole(hole)
        if survey.tail is not None:
            self._tell_tail(survey.tail)
        if not self._running:
            self._check_slots()
        summary = self.summary
        summary.log_start_offset, summary.end_offset = survey.log_start_offset, survey.end_offset
        summary.batches, summary.records = survey.batches, survey.records
        summary.size_bytes = survey.size_bytes

    def tell(
        self,
        level: Level,
        path: str,
        reason: str,
        *,
        file_pos: int = 0,
        offsets: tuple[int, int] | None = None,
    ) -> None:
        """Note a finding."""
        if len(self.findings) >= FINDINGS_MAX:
            self.left_out[level] = self.left_out.get(level, 0) + 1
            return
        offset, next_offset = offsets or (None, None)
        finding = Finding(level, self.summary.log, path, file_pos, offset, next_offset, reason)
        self.findings.append(finding)

    def _tell_hole(self, hole: Hole) -> None:
        reason = hole.reason
        if hole.header is not None:
            reason += "; its batches are whole, a repair loses none of them"
        elif hole.is_newer:
            reason += "; a later version wrote it"
        offsets = (hole.offset, hole.end_offset)
        self.tell(Level.FAULT, hole.path, reason, file_pos=hole.file_pos, offsets=offsets)

    def _tell_tail(self, tail: Hole) -> None:
        reason = f"a torn tail, never acknowledged, which the next start cuts off ({tail.reason})"
        offsets = (tail.offset, tail.end_offset)
        self.tell(Level.NOTE, tail.path, reason, file_pos=tail.file_pos, offsets=offsets)

    def _batch(self, good: Good, visit: Visit | None) -> None:
        segment, header = good.segment, good.header
        self._check_index(good)
        size = header.positions_bytes + header.body_bytes
        try:
            data = bytes(
                read_checked(segment, size, good.file_pos + HEADER_BYTES, header.base_offset)
            )
            view = memoryview(data)
            split = header.positions_bytes
            if not check_content(header, view[:split], view[split:]):
                self.summary.unopened += 1
        except (BadContent, BadBatch) as error:
            reason = error.reason if isinstance(error, BadBatch) else str(error)
            offsets = (header.base_offset, header.next_offset)
            place = {"file_pos": good.file_pos}
            self.tell(Level.FAULT, segment.path, reason, offsets=offsets, **place)
            return
        if visit is not None:
            visit(good, data[split:])

    def _check_index(self, good: Good) -> None:
        if self._identity.kind != KIND_PARTITION:
            return
        if good.segment is not self._indexed:
            self._end_index(grows=False)
            self._indexed, self._index = good.segment, IndexCheck(good.segment)
        assert self._index is not None
        self._index.batch(good.file_pos, good.header)

    def _end_index(self, *, grows: bool) -> None:
        if self._index is None:
            return
        self._index.end(grows=grows)
        if self._index.fault is not None:
            reason = f"{self._index.fault}; the index is built again when it is needed"
            self.tell(Level.WARNING, self._index.path, reason)

    # Slots

    def _check_slots(self) -> None:
        identity = self._identity
        for name, magic in ((WATERMARK_NAME, WATERMARK_MAGIC), (RESERVED_NAME, RESERVED_MAGIC)):
            path = os.path.join(identity.folder, name)
            if name == RESERVED_NAME and reservation_is_lost(self._files, identity):
                self.tell(Level.FAULT, path, LOST_RESERVATION)
                continue
            for number in bad_slots(self._slot_bytes(path), magic, identity):
                reason = f"slot {number} is not good; it is written again"
                self.tell(Level.WARNING, path, reason, file_pos=number * SLOT_DISTANCE)

    def _slot_bytes(self, path: str) -> bytes:
        try:
            return self._files.read_whole(path)[: SLOT_DISTANCE + SLOT_BYTES]
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self.tell(Level.WARNING, path, f"cannot be read: {error.strerror}")
            return b""


def reservation_is_lost(files: Files, identity: LogIdentity) -> bool:
    """Return True if there was a reservation with an unknown limit.

    A crash at the first use of a reservation leaves an empty file.
    """
    path = os.path.join(identity.folder, RESERVED_NAME)
    try:
        data = files.read_whole(path)[: SLOT_DISTANCE + SLOT_BYTES]
    except FileNotFoundError:
        return False
    except OSError:
        return True
    best = best_slot(data, RESERVED_MAGIC, identity.kind, identity.partition_id)
    return bool(data) and best is None


def bad_slots(data: bytes, magic: bytes, identity: LogIdentity) -> list[int]:
    """Numbers of the slots that were written once, and are not good."""
    slots = (data[:SLOT_BYTES], data[SLOT_DISTANCE : SLOT_DISTANCE + SLOT_BYTES])
    return [
        number
        for number, slot in enumerate(slots)
        if any(slot) and unpack_slot(slot, magic, identity.kind, identity.partition_id) is None
    ]
