"""Recovery of one log at start: walk its end, tell a torn tail from damage, cut or keep.

The rules are in FORMAT.md section 7. The log files alone are the truth; index and slot only say
where to begin. Knows partitions and journals alike, and nothing of topics.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from storage.errors import DamagedLog
from storage.log.batch import BatchHeader
from storage.log.files import Files
from storage.log.index import PENDING_ENTRIES_MAX, BadIndex
from storage.log.places import searched_place
from storage.log.scan import (
    NO_OFFSET,
    Fault,
    find_good,
    is_foreign,
    is_never_torn,
    load_checked,
    pass_over,
    walk,
)
from storage.log.segment import (
    KIND_PARTITION,
    LOG_SUFFIX,
    SEGMENT_HEADER_BYTES,
    Segment,
)
from storage.log.segment_names import segment_names, view_names
from storage.log.tail import UnprovenTail
from storage.log.watermark import Watermark

# A start walks no more of a file below the slot to complete its index: a tenth of a second where
# batches are large, half of one where they are tiny. What is lost is built when it is needed.
WALK_BYTES_MAX = 16 << 20


# A segment of another log that a crash, or a person, left at the end of this one.
FOREIGN_SUFFIX = ".foreign"


@dataclass(slots=True, frozen=True)
class Cut:
    """A torn tail that was taken off: bytes of one file from `file_pos` on, never acknowledged."""

    path: str
    file_pos: int
    offset: int
    bytes_removed: int
    reason: str


@dataclass(slots=True, frozen=True)
class Damage:
    """Acknowledged offsets `[offset, next_offset)` that cannot be read: nothing was cut.

    An empty range is a place that the disk cannot read, of which nobody knows what it held.
    """

    path: str
    file_pos: int
    offset: int
    next_offset: int
    reason: str

    def error(self) -> DamagedLog:
        """The error for a read there, or for an append behind it."""
        return DamagedLog(self.path, self.file_pos, self.offset, self.reason)


@dataclass(slots=True)
class RecoveryReport:
    """What a start found in one folder; `is_clean` when there is nothing to tell."""

    folder: str
    cuts: list[Cut] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    batches_walked: int = 0
    gap: tuple[int, int] | None = None

    @property
    def is_clean(self) -> bool:
        """Whether the log ended as a clean stop or a plain kill leaves it."""
        return not self.cuts and not self.damages and self.gap is None


@dataclass(slots=True)
class Recovered:
    """The log as it is after recovery. The last segment takes the appends.

    What lies at or above `durable_offset` is in the files, but has to be synced before it is shown:
    `unsynced` are the segments that hold it. `below_start` lie below the log start: they may go
    once the slot that says so, and what follows them, are durable. `replaced` gave way to a
    compacted segment: they may go once its name is durable.
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
    """Which log a folder holds: `kind` and number as in its segment headers."""

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
    """Recover one log, so that readers and appends can rely on it; `names` are the files in its
    folder.

    Raises: StorageFailed, StorageFull.
    """
    folder = identity.folder
    for name in names:
        if name.endswith(".new"):
            files.unlink(os.path.join(folder, name))
    number = identity.partition_id
    segments, replaced, views = (
        [Segment(files, folder, one.base_offset, identity.kind, number, one) for one in some]
        for some in (*segment_names(names), view_names(names))
    )
    for segment in segments:
        segment.stat()
    recovered = _Recovery(files, folder, slot, interval_bytes).run(segments)
    recovered.replaced, recovered.views = replaced, views
    return recovered


class _Recovery:
    """One recovery under way. `proven`: everything below it is known to have been durable.

    Guarantees: nothing that was ever durable is cut off; what it cuts or keeps above the slot is
    durable before anybody sees the log. Every step waits for the disk.
    """

    def __init__(self, files: Files, folder: str, slot: Watermark, interval_bytes: int) -> None:
        self.files = files
        self.folder = folder
        self.slot = slot
        self.interval_bytes = interval_bytes
        self.proven = slot.durable_offset
        self.searched = False
        self.tail = UnprovenTail(slot.durable_offset)
        self.report = RecoveryReport(folder)

    def run(self, segments: list[Segment]) -> Recovered:
        self.segments = segments
        self.below_start = self.take_below_start()
        log_start = self.slot.log_start_offset
        if self.segments:
            log_start = max(log_start, self.segments[0].base_offset)
            takes_appends, log_end = self.walk_end()
        else:
            log_end = max(log_start, self.proven)
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
        """Leave out what lies below the log start: a crash interrupted a retention."""
        below: list[Segment] = []
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.slot.log_start_offset:
            below.append(self.segments.pop(0))
        return below

    def walk_end(self) -> tuple[bool, int]:
        """Walk from the slot's offset to the end; (whether appends are taken, log end)."""
        number = len(self.segments) - 1
        while number > 0 and not self.can_begin(self.segments[number]):
            number -= 1
        offset = self.segments[number].base_offset
        file_pos: int | None = None  # None: begin where the index says, or at the first batch.
        while True:
            segment = self.segments[number]
            try:
                offset = self.walk_segment(segment, file_pos, offset)
                following = self.segments[number + 1 : number + 2]
                self.check_joint(segment, following, offset)
                if not following:
                    return True, offset
                number, file_pos = number + 1, None
            except Fault as fault:
                found = self.judge(number, fault)
                if found is not None:
                    number, file_pos, offset = found
                    continue
                if fault.offset < self.proven or is_never_torn(fault, self.segments):
                    end = max(fault.offset, self.proven)
                    self.add_damage(fault.path, fault.file_pos, fault.offset, end, fault.reason)
                    return False, end
                self.cut(fault)
                if number < len(self.segments) or not self.segments:
                    return True, fault.offset
                # The whole segment was cut off. The one before takes the appends, so look at its
                # end.
                number, file_pos = number - 1, None
                offset = self.segments[number].base_offset

    def can_begin(self, segment: Segment) -> bool:
        """Whether the walk can begin there. Not in an empty file: it may have been created just
        before a crash, while the log continued in the one before it.
        """
        return segment.base_offset <= self.proven and not segment.is_empty

    def walk_segment(self, segment: Segment, file_pos: int | None, offset: int) -> int:
        """Walk one segment to its end, completing its index; returns the offset after it."""
        load_checked(segment)
        if file_pos is None:
            offset, file_pos = self.starting_place(segment)
        elif segment.index_in_memory is None and not segment.index_is_lost:
            segment.index.create()  # Its header could not be read the first time.
        if segment.kind != KIND_PARTITION:  # A journal has no index to complete.
            offset, file_pos = self.behind_proven(segment, file_pos, offset)
        for pos, header in self.batches(segment, file_pos, offset):
            self.report.batches_walked += 1
            self.tail.add(segment, pos, header)
            before_us = segment.max_time_us
            segment.note(header.append_us, header.time_us)
            segment.note_in_index(header.base_offset, pos, before_us, self.interval_bytes)
            offset = header.next_offset
        if segment is not self.segments[-1] and segment.kind == KIND_PARTITION:
            segment.end_index(offset)
        return offset

    def behind_proven(self, segment: Segment, file_pos: int, offset: int) -> tuple[int, int]:
        return pass_over(segment, file_pos, offset, below=self.proven, end_pos=segment.size)

    def batches(
        self, segment: Segment, file_pos: int, offset: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        return walk(segment, file_pos, offset, check_bodies_from=self.proven, end_pos=segment.size)

    def starting_place(self, segment: Segment) -> tuple[int, int]:
        """(offset, file_pos) of the last batch at or below what is proven that the index knows."""
        first = (segment.base_offset, SEGMENT_HEADER_BYTES)
        place = self.indexed_place(segment) or first
        found = self.searched_place(segment, place)
        if found is not None:
            place = found
            segment.lose_index()
        elif place is first:
            segment.index.create()
            segment.resume_index()
            return first
        else:
            segment.index.cut(place[1])
            segment.resume_index()
            last = segment.index.last()
            segment.max_time_us = last[2] if last is not None else None
        return place

    def searched_place(self, segment: Segment, place: tuple[int, int]) -> tuple[int, int] | None:
        """A place at or below what is proven, much nearer to the end than what the index gives:
        found without it, where it would take long to complete it by a walk from there.
        """
        far_bytes = max(WALK_BYTES_MAX, 2 * PENDING_ENTRIES_MAX * self.interval_bytes)
        if segment.kind != KIND_PARTITION or segment.size - place[1] <= far_bytes:
            return None
        found = searched_place(segment, self.proven, self.interval_bytes)
        return found if found[1] - place[1] > far_bytes else None

    def indexed_place(self, segment: Segment) -> tuple[int, int] | None:
        """The place that the index gives, if a batch does begin there or the file ends there."""
        try:
            index = segment.load_index()
            index.cut(segment.size)
            while (place := index.floor(self.proven)) is not None and place[1] < segment.size:
                try:
                    next(self.headers(segment, *place))
                    break
                except (Fault, StopIteration):
                    index.cut(place[1] - 1)
        except BadIndex:
            return None
        return place

    def headers(self, segment: Segment, offset: int, file_pos: int) -> Iterator[BatchHeader]:
        batches = walk(segment, file_pos, offset, check_bodies_from=NO_OFFSET, end_pos=segment.size)
        return (header for _, header in batches)

    def check_joint(self, segment: Segment, following: list[Segment], offset: int) -> None:
        """Raise Fault where the log does not go on as it should at the end of a segment."""
        if following and following[0].base_offset < offset:
            before = os.path.basename(segment.path)
            raise Fault(following[0], 0, offset, f"it begins below the end of {before}")
        expected = following[0].base_offset if following else self.proven
        if expected > offset:
            reason = f"the records up to {expected} are missing"
            raise Fault(segment, segment.size, offset, reason)

    def judge(self, number: int, fault: Fault) -> tuple[int, int, int] | None:
        """Where to continue behind damage (segment number, file_pos, offset); None if nothing good
        follows.
        """
        found: tuple[int, int, BatchHeader] | None = None
        for good in self.good_behind(number, fault):
            found = found or good
            self.proven = max(self.proven, good[2].durable_offset)
            if self.searched:
                break  # An earlier search went to the end: only the next good place is wanted.
        self.searched = True
        if found is None or fault.offset >= self.proven:
            return None
        number, file_pos, header = found
        self.add_damage(fault.path, fault.file_pos, fault.offset, header.base_offset, fault.reason)
        return number, file_pos, header.base_offset

    def good_behind(self, number: int, fault: Fault) -> Iterator[tuple[int, int, BatchHeader]]:
        """Good batches behind the fault, in its segment and all later ones."""
        offset = fault.offset
        for later in range(number, len(self.segments)):
            segment = self.segments[later]
            try:
                load_checked(segment)
            except Fault:
                continue  # Without its salt our batches cannot be told from a client's bytes.
            begin = fault.file_pos + 1 if segment.path == fault.path else SEGMENT_HEADER_BYTES
            for file_pos, header in find_good(segment, begin, offset, segment.size):
                yield later, file_pos, header
                offset = header.next_offset

    def cut(self, fault: Fault) -> None:
        """Take off the torn tail: later segments, the last one first, then the rest of this one."""
        whole = fault.file_pos < SEGMENT_HEADER_BYTES
        number = [segment.path for segment in self.segments].index(fault.path)
        while len(self.segments) > number + (0 if whole else 1):
            segment = self.segments.pop()
            mine = segment.path == fault.path
            reason = fault.reason if mine else "behind a torn tail"
            offset = fault.offset if mine else segment.base_offset
            self.report.cuts.append(Cut(segment.path, 0, offset, segment.size, reason))
            if is_foreign(segment):
                self.keep_foreign(segment)
            else:
                segment.remove()
        if whole:
            return
        segment = self.segments[-1]
        removed = segment.size - fault.file_pos
        if removed > 0:
            is_lost = segment.index_is_lost
            segment.index.remove()  # No entry may point at what is cut off.
            if is_lost:
                segment.lose_index()
            segment.file.truncate(fault.file_pos)
            segment.size = fault.file_pos
            if segment.is_empty:
                segment.first_append_us = None  # That time was of a batch which is cut off.
            self.report.cuts.append(
                Cut(segment.path, fault.file_pos, fault.offset, removed, fault.reason)
            )

    def keep_foreign(self, segment: Segment) -> None:
        """Rename a segment of another log: no longer part of this one, and not lost."""
        path = segment.path.removesuffix(LOG_SUFFIX) + FOREIGN_SUFFIX
        number = 1
        while os.path.lexists(kept := path if number == 1 else f"{path}.{number}"):
            number += 1
        segment.close()
        self.files.rename(segment.path, kept)

    def walked(self) -> list[Segment]:
        """The segments that may hold what is not durable: those that were looked into."""
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
