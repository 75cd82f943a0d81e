"""Surveys a whole log from first byte to last without changing anything: good batches and holes.

For `log verify`, `log repair` and `log dump`. A start looks only at the end of a log and acts on
its findings (`recovery.py`); a survey looks at everything and only reports, by the same rules
(FORMAT.md section 7). Treats partitions and journals alike. Knows no bodies, topics or terminal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from crc32c import crc32c

from braidlog.storage.formats import batch
from braidlog.storage.formats.batch import HEADER_BYTES, BadHeader, BatchHeader, unpack
from braidlog.storage.log import segment_header
from braidlog.storage.log.files import FileGone, Files
from braidlog.storage.log.log_walk import LogWalk, Missing, Overlap
from braidlog.storage.log.recovery import LogIdentity
from braidlog.storage.log.scan import NO_OFFSET, BadBatch, find_good, is_never_torn, read_checked
from braidlog.storage.log.segment import Segment, empty_header
from braidlog.storage.log.segment_header import KIND_PARTITION, SEGMENT_HEADER_BYTES, SegmentHeader
from braidlog.storage.log.segment_names import segment_names
from braidlog.storage.log.watermark import Watermark


@dataclass(slots=True)
class Good:
    """A good batch and its place."""

    segment: Segment
    file_pos: int
    header: BatchHeader


@dataclass(slots=True)
class Hole:
    """Offsets `[offset, next_offset)` that cannot be read: bytes `[file_pos, end_pos)` of a file.

    `segment` is None if no file has the offsets. `next_offset` is None while no good batch is known
    after the hole. `records` is the number of lost records, None if unknown. `header`: only the
    segment header is wrong; this is the original header, proven by the batches after it.
    `is_newer`: the checksum is right, so a later version wrote the bytes. `overlaps`: two segments
    claim the offsets. `is_foreign`: the bytes are intact and belong to another log or place.
    `is_never_torn`: the hole cannot be a torn tail, wherever it is.
    """

    path: str
    file_pos: int
    end_pos: int
    offset: int
    next_offset: int | None
    reason: str
    segment: Segment | None = None
    records: int | None = None
    header: SegmentHeader | None = None
    is_newer: bool = False
    overlaps: bool = False
    is_foreign: bool = False
    is_never_torn: bool = False

    @property
    def end_offset(self) -> int:
        """End offset; the base offset if the end is unknown."""
        return self.offset if self.next_offset is None else self.next_offset


@dataclass(slots=True)
class Survey:
    """The results of a survey, in offset order.

    `holes` were acknowledged. `tail` and everything after it were never acknowledged: a start cuts
    off the tail. `proven`: everything below is known to have been durable.
    """

    identity: LogIdentity
    slot: Watermark
    segments: list[Segment] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    tail: Hole | None = None
    log_start_offset: int = 0
    end_offset: int = 0
    proven: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0


def segments_of(files: Files, identity: LogIdentity, slot: Watermark) -> list[Segment]:
    """Return the segments that count at this moment; those below the log start are being removed.

    Raises: FileGone, if a segment is removed meanwhile; StorageFailed.
    """
    names, _ = segment_names(files.names(identity.folder))
    while len(names) > 1 and names[1].base_offset <= slot.log_start_offset:
        names.pop(0)
    place = (identity.kind, identity.partition_id)
    segments = [Segment(files, identity.folder, name.base_offset, *place, name) for name in names]
    for log_segment in segments:
        try:
            log_segment.stat()
        except FileNotFoundError:
            raise FileGone(log_segment.path) from None
    return segments


class SurveyWalk:
    """A walk that continues after every fault. `events` gives good batches and holes in order."""

    def __init__(
        self, segments: list[Segment], slot: Watermark, folder: str, stop: int | None = None
    ) -> None:
        """With `stop`, a durable offset, go no further: for a log that a broker is writing."""
        self._walk = LogWalk(segments, slot.durable_offset, NO_OFFSET if stop is None else stop)
        self._walk.skip_to(slot.log_start_offset)
        self._knows_start = bool(slot.sequence)
        self._folder = folder

    @property
    def offset(self) -> int:
        """The next offset expected."""
        return self._walk.offset

    @property
    def proven(self) -> int:
        """Everything below this offset is known to have been durable."""
        return self._walk.proven

    def events(self, *, check_bodies_from: int = 0, first: int = 0) -> Iterator[Good | Hole]:
        """Yield good batches and holes from segment number `first` on; check bodies from that
        offset on. Raises FileGone.
        """
        hole = self._hole_before(first)
        if hole is not None:
            yield hole
            self._walk.skip_to(hole.end_offset)
        goes_on = bool(self._walk.segments)
        while goes_on:
            try:
                for segment, file_pos, header in self._walk.batches(check_bodies_from):
                    yield Good(segment, file_pos, header)
                return
            except BadBatch as fault:
                if fault.file_pos and fault.offset >= self._walk.stop:
                    return
                hole = self._hole(fault)
            yield hole
            self._walk.skip_to(hole.end_offset)
            goes_on = self._resume_behind(hole)

    def _hole_before(self, first: int) -> Hole | None:
        """Return the hole before the first segment of the walk. Without a slot that segment is the
        log start.
        """
        self._walk.resume(first)
        if not self._walk.segments:
            return self._missing(self._folder, 0, self.proven, "there is no segment file")
        base = self._walk.segments[first].base_offset
        if base <= self.offset or first or not self._knows_start:
            return None
        return self._missing(self._folder, 0, base, f"the records up to {base} are missing")

    def _missing(self, path: str, file_pos: int, next_offset: int, reason: str) -> Hole:
        return Hole(path, file_pos, file_pos, self.offset, next_offset, reason)

    def _hole(self, fault: BadBatch) -> Hole:
        """Return the offsets that a fault makes unreadable."""
        if isinstance(fault, Missing):
            return self._missing(fault.path, fault.file_pos, fault.next_offset, fault.reason)
        segment, *later = self._walk.segments[self._walk.number : self._walk.number + 2]
        limit = later[0].base_offset if later else None
        if isinstance(fault, Overlap):
            (segment,) = later
            place = (fault.path, 0, segment.size, segment.base_offset, fault.offset)
            return Hole(*place, fault.reason, segment, overlaps=True)
        hole = Hole(
            fault.path, fault.file_pos, segment.size, fault.offset, limit, fault.reason, segment
        )
        if fault.file_pos < SEGMENT_HEADER_BYTES:
            hole.header = proven_header(segment)
        else:
            behind = next(find_good(segment, fault.file_pos + 1, fault.offset, segment.size), None)
            if behind is not None and (limit is None or behind[1].base_offset < limit):
                hole.end_pos, hole.next_offset = behind[0], behind[1].base_offset
            header = header_alone(segment, fault)
            if header is not None and hole.next_offset in (None, header.next_offset):
                hole.records = header.record_count
        hole.is_newer = is_newer(segment, fault.file_pos)
        hole.is_foreign = fault.is_foreign
        hole.is_never_torn = is_never_torn(fault, self._walk.segments)
        return hole

    def _resume_behind(self, hole: Hole) -> bool:
        """Go on after a hole; return False at the end of the log."""
        segment = hole.segment
        if hole.header is not None and segment is not None:
            self._walk.resume(self._walk.number, (segment.base_offset, SEGMENT_HEADER_BYTES))
        elif segment is not None and hole.end_pos < segment.size:
            self._walk.resume(self._walk.number, (hole.end_offset, hole.end_pos))
        elif self._walk.following() is not None:
            self._walk.resume(self._walk.number + 1)
        else:
            return False
        return True


class LogSurvey:
    """A walk over the whole log, and the judgement after its end: `result`."""

    def __init__(
        self, files: Files, identity: LogIdentity, slot: Watermark, stop: int | None = None
    ) -> None:
        """Read the segments of the log. Raises: FileGone, StorageFailed."""
        segments = segments_of(files, identity, slot)
        self._walk = SurveyWalk(segments, slot, identity.folder, stop)
        self.result = Survey(identity, slot, segments, log_start_offset=self._walk.offset)
        if segments and not slot.sequence:
            self.result.log_start_offset = segments[0].base_offset

    def batches(self) -> Iterator[Good]:
        """Yield every good batch, bodies checked; take all of them before looking at the result.

        Raises: FileGone, if retention is faster than the survey.
        """
        result = self.result
        holes: list[Hole] = []
        for event in self._walk.events():
            if isinstance(event, Hole):
                holes.append(event)
                continue
            result.batches += 1
            result.records += event.header.record_count
            result.size_bytes += event.header.stored_bytes
            yield event
        result.end_offset = self._walk.offset
        result.proven = self._walk.proven
        self._judge(holes)

    def _judge(self, holes: list[Hole]) -> None:
        result = self.result
        for hole in holes:
            is_known = not hole.overlaps and not hole.is_never_torn
            if hole.offset >= result.proven and result.segments and is_known:
                result.tail = hole  # Neither the tail nor anything after it was ever durable.
                result.end_offset = hole.offset
                break
            if hole.next_offset is None:
                hole.next_offset = max(result.proven, hole.offset)
                if hole.header is None:
                    result.end_offset = hole.next_offset
            result.holes.append(hole)


def header_alone(segment: Segment, fault: BadBatch) -> BatchHeader | None:
    """Return the header at a fault, if the header is good and is the expected header."""
    if fault.file_pos < SEGMENT_HEADER_BYTES:
        return None
    try:
        header = unpack(
            read_checked(segment, HEADER_BYTES, fault.file_pos, fault.offset), segment.salt
        )
    except (BadBatch, BadHeader):
        return None
    expected = (header.base_offset, header.partition_id) == (fault.offset, segment.partition_id)
    return header if expected else None


def is_newer(log_segment: Segment, file_pos: int) -> bool:
    """Return True if a header there has a right checksum but another version."""
    size = HEADER_BYTES if file_pos else SEGMENT_HEADER_BYTES
    try:
        data = read_checked(log_segment, size, file_pos, log_segment.base_offset)
    except BadBatch:
        return False
    if len(data) < size:
        return False
    if not file_pos:
        crc = segment_header.CRC.unpack_from(data, segment_header.HEADER.size)[0]
        (version,) = segment_header.VERSION_PLACE.unpack_from(data)
        right = crc32c(data[: segment_header.HEADER.size])
        known = (segment_header.VERSION, segment_header.NAMED_VERSION)
        return bool(crc == right and version not in known)
    if batch.PREFIX.unpack_from(data) != (batch.MAGIC, crc32c(data[8:], log_segment.salt)):
        return False
    try:
        unpack(data, log_segment.salt)
    except BadHeader:
        return True
    return False


def proven_header(log_segment: Segment) -> SegmentHeader | None:
    """Restore a damaged segment header and use it for the segment; None without proof.

    All fields but salt, flags and the directory's id are known from the name. The salt is right if
    a batch passes its check with that salt: no client ever knew the salt.
    """
    try:
        data = read_checked(log_segment, SEGMENT_HEADER_BYTES, 0, log_segment.base_offset)
    except BadBatch:
        return None
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    if segment_header.CRC.unpack_from(data, segment_header.HEADER.size)[0] == crc32c(
        data[: segment_header.HEADER.size]
    ):
        return None  # The header is intact and names another place.
    named = segment_header.NAMED_HEADER.unpack_from(data)
    plain = segment_header.HEADER.unpack_from(data)
    # The version may be damaged: each layout has its salt and flags in another place. The
    # directory's id may be damaged: only our own id is believed.
    directory_id = named[5] if named[5] == log_segment.directory_id else 0
    for salt, flags, named_id in ((plain[3], plain[6], 0), (named[1], named[4], directory_id)):
        if log_segment.kind == KIND_PARTITION:
            flags = 0
        if not salt or flags & ~segment_header.FLAG_SNAPSHOT:
            continue
        log_segment.take_header(
            replace(empty_header(log_segment, salt, flags), directory_id=named_id)
        )
        if (
            next(
                find_good(
                    log_segment, SEGMENT_HEADER_BYTES, log_segment.base_offset, log_segment.size
                ),
                None,
            )
            is not None
        ):
            return log_segment.header
    log_segment.forget_header()
    return None
