"""Recovery of a log at start: walk its end, tell a torn tail from damage, cut or keep.

FORMAT.md section 7 has the rules. Only the log files are authoritative; index and slot only give a
place to begin. Treats partitions and journals alike. Knows no topics.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from braidlog.storage.errors import DamagedLog
from braidlog.storage.formats.batch import BatchHeader
from braidlog.storage.log.end_walk import EndWalk
from braidlog.storage.log.files import Files
from braidlog.storage.log.scan import (
    BadBatch,
    find_good,
    is_foreign,
    is_never_torn,
    load_checked,
)
from braidlog.storage.log.segment import LOG_SUFFIX, Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.segment_names import SegmentName, segment_names, view_names
from braidlog.storage.log.tail import UnprovenTail
from braidlog.storage.log.watermark import Watermark

# A segment of another log that a crash or a person left at the end of this log.
FOREIGN_SUFFIX = ".foreign"


@dataclass(slots=True, frozen=True)
class TornTail:
    """A torn tail that was cut off: bytes of a file from `file_pos` on, never acknowledged."""

    path: str
    file_pos: int
    offset: int
    bytes_removed: int
    reason: str


@dataclass(slots=True, frozen=True)
class Damage:
    """Acknowledged offsets `[offset, next_offset)` that cannot be read; nothing was cut.

    An empty range is a place that the disk cannot read; its content is unknown.
    """

    path: str
    file_pos: int
    offset: int
    next_offset: int
    reason: str

    def error(self) -> DamagedLog:
        """Return the error for a read at this place, or for an append after it."""
        return DamagedLog(self.path, self.file_pos, self.offset, self.reason)


@dataclass(slots=True)
class RecoveryReport:
    """The findings of a start in a folder; `is_clean` if there are none."""

    folder: str
    cuts: list[TornTail] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    batches_walked: int = 0
    gap: tuple[int, int] | None = None

    def note_gap(self, offset: int, next_offset: int) -> None:
        """Note that the log continues above reserved offsets."""
        self.gap = (offset, next_offset)

    @property
    def is_clean(self) -> bool:
        """True if the log ended as a clean stop or a plain kill leaves a log."""
        return not (self.cuts or self.damages) and self.gap is None


@dataclass(slots=True)
class Recovered:
    """The log after recovery. The last segment takes the appends.

    Batches at or above `durable_offset` are in the files, but must be synced before readers see
    them: `unsynced` are the segments that hold these batches. `below_start` lie below the log
    start: they may be removed once the slot with that log start, and the segments that follow, are
    durable. `replaced` were replaced by a compacted segment: they may be removed once the name of
    the compacted segment is durable.
    """

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    durable_offset: int
    unsynced: list[Segment]
    below_start: list[Segment]
    takes_appends: bool
    report: RecoveryReport
    replaced: Sequence[Segment] = ()
    views: Sequence[Segment] = ()  # Compacted views, the newest first.


@dataclass(slots=True, frozen=True)
class LogIdentity:
    """The log that a folder holds: `kind` and number as in the segment headers."""

    folder: str
    kind: int
    partition_id: int


def recover(
    files: Files,
    identity: LogIdentity,
    slot: Watermark,
    interval_bytes: int,
    names: Sequence[str],
) -> Recovered:
    """Recover a log, so that readers and appends can rely on the log; `names` are the files in its
    folder.

    Raises: StorageFailed, StorageFull.
    """
    folder = identity.folder
    for name in names:
        if name.endswith(".new"):
            files.unlink(os.path.join(folder, name))
    current, replaced = segment_names(names)
    segments = _segments(files, identity, current)
    for segment in segments:
        segment.stat()
    recovered = _Recovery(files, identity, slot, segments).run(interval_bytes)
    recovered.replaced = _segments(files, identity, replaced)
    recovered.views = _segments(files, identity, view_names(names))
    return recovered


def _segments(files: Files, identity: LogIdentity, names: Sequence[SegmentName]) -> list[Segment]:
    """Return the segments of these names without opening them."""
    place = (identity.kind, identity.partition_id)
    return [
        Segment(files, identity.folder, segment_name.base_offset, *place, segment_name)
        for segment_name in names
    ]


class _Recovery:
    """A recovery under way.

    Guarantees: no batch that was ever durable is cut off; every cut, and every batch kept above the
    slot, is durable before readers see the log. Every step waits for the disk.
    """

    def __init__(
        self, files: Files, identity: LogIdentity, slot: Watermark, segments: list[Segment]
    ) -> None:
        self.files = files
        self.folder = identity.folder
        self.slot = slot
        self.segments = segments
        self.searched = False
        self.tail = UnprovenTail(slot.durable_offset)
        self.report = RecoveryReport(identity.folder)

    def run(self, interval_bytes: int) -> Recovered:
        self.below_start = self.take_below_start()
        self.walk = EndWalk(self.segments, self.slot.durable_offset, interval_bytes)
        log_start = self.slot.log_start_offset
        if self.segments:
            log_start = max(log_start, self.segments[0].base_offset)
            takes_appends, log_end = self.walk_end()
        else:
            log_end = max(log_start, self.walk.proven)
            takes_appends = False
            self.add_damage(self.folder, 0, log_start, log_end, "there is no segment file")
        if self.segments:
            self.tail.write_again(self.segments)
        durable, walked = self.slot.durable_offset, self.walked()
        if self.report.cuts:
            self.sync(walked)
            durable = log_end
        return Recovered(
            segments=self.segments,
            log_start_offset=log_start,
            log_end_offset=log_end,
            durable_offset=min(durable, log_end),
            unsynced=walked if durable < log_end else [],
            below_start=self.below_start,
            takes_appends=takes_appends,
            report=self.report,
        )

    def take_below_start(self) -> list[Segment]:
        """Leave out the segments below the log start: a crash interrupted a retention."""
        below: list[Segment] = []
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.slot.log_start_offset:
            below.append(self.segments.pop(0))
        return below

    def walk_end(self) -> tuple[bool, int]:
        """Walk from the slot's offset to the end; return (True if appends are allowed, log end)."""
        self.walk.begin()
        while True:
            try:
                for segment, file_pos, header in self.walk.batches(self.walk.proven):
                    self.report.batches_walked += 1
                    self.tail.add(segment, file_pos, header)
                    self.walk.note(segment, file_pos, header)
                return True, self.walk.offset
            except BadBatch as fault:
                end = self.act_on(fault)
                if end is not None:
                    return end

    def act_on(self, fault: BadBatch) -> tuple[bool, int] | None:
        """Keep or cut the place of a fault. Return the end of the log, None if the walk
        must go on.
        """
        if self.judge(fault):
            return None
        proven = self.walk.proven
        if fault.offset < proven or is_never_torn(fault, self.segments):
            end = max(fault.offset, proven)
            self.add_damage(fault.path, fault.file_pos, fault.offset, end, fault.reason)
            return False, end
        self.cut(fault)
        if self.walk.number < len(self.segments) or not self.segments:
            return True, fault.offset
        # The whole segment was cut off. The segment before takes the appends: look at its end.
        self.walk.resume(self.walk.number - 1)
        return None

    def judge(self, fault: BadBatch) -> bool:
        """Return True if a fault is damage with a good batch after it, where the walk then
        continues.
        """
        first_good: tuple[int, int, BatchHeader] | None = None
        for good in self.good_behind(fault):
            first_good = first_good or good
            self.walk.prove(good[2].durable_offset)
            if self.searched:
                break  # An earlier search went to the end: only the next good place is wanted.
        self.searched = True
        if first_good is None or fault.offset >= self.walk.proven:
            return False
        number, file_pos, header = first_good
        self.add_damage(fault.path, fault.file_pos, fault.offset, header.base_offset, fault.reason)
        self.walk.resume(number, (header.base_offset, file_pos))
        return True

    def good_behind(self, fault: BadBatch) -> Iterator[tuple[int, int, BatchHeader]]:
        """Yield good batches after the fault, in the same segment and in all later segments."""
        offset = fault.offset
        for later in range(self.walk.number, len(self.segments)):
            segment = self.segments[later]
            try:
                load_checked(segment)
            except BadBatch:
                continue  # Without the salt, our batches look like a client's bytes.
            begin = fault.file_pos + 1 if segment.path == fault.path else SEGMENT_HEADER_BYTES
            for file_pos, header in find_good(segment, begin, offset, segment.size):
                yield later, file_pos, header
                offset = header.next_offset

    def cut(self, fault: BadBatch) -> None:
        """Cut off the torn tail: later segments, the last first, then the rest of this segment."""
        whole = fault.file_pos < SEGMENT_HEADER_BYTES
        number = [segment.path for segment in self.segments].index(fault.path)
        while len(self.segments) > number + (0 if whole else 1):
            segment = self.segments.pop()
            mine = segment.path == fault.path
            reason = fault.reason if mine else "behind a torn tail"
            offset = fault.offset if mine else segment.base_offset
            self.report.cuts.append(TornTail(segment.path, 0, offset, segment.size, reason))
            if is_foreign(segment):
                self.keep_foreign(segment)
            else:
                segment.remove()
        if whole:
            return
        segment = self.segments[-1]
        removed = segment.size - fault.file_pos
        if removed > 0:
            segment.cut(fault.file_pos)
            self.report.cuts.append(
                TornTail(segment.path, fault.file_pos, fault.offset, removed, fault.reason)
            )

    def keep_foreign(self, segment: Segment) -> None:
        """Rename a segment of another log: it leaves this log but is not lost."""
        path = segment.path.removesuffix(LOG_SUFFIX) + FOREIGN_SUFFIX
        number = 1
        while os.path.lexists(new_path := path if number == 1 else f"{path}.{number}"):
            number += 1
        segment.close()
        self.files.rename(segment.path, new_path)

    def walked(self) -> list[Segment]:
        """Return the segments that may hold batches that are not durable: those with a loaded
        header.
        """
        return [segment for segment in self.segments if segment.header is not None]

    def sync(self, walked: list[Segment]) -> None:
        """Make a cut durable before anything is written in its place."""
        for segment in walked:
            segment.file.datasync()
        self.files.sync_folder(self.folder)

    def add_damage(
        self, path: str, file_pos: int, offset: int, next_offset: int, reason: str
    ) -> None:
        self.report.damages.append(Damage(path, file_pos, offset, next_offset, reason))
