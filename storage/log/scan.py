"""Walks a segment batch by batch, and finds batches again after a fault.

For recovery, `log verify`, building indexes and reading. Trusts no byte: everything is checked
against FORMAT.md section 3. Leaves the handling of a fault to the caller.
"""

from collections.abc import Iterator, Sequence

from crc32c import crc32c

from braidlog.storage.errors import DamagedLog, WouldBlock
from braidlog.storage.formats.batch import HEADER_BYTES, MAGIC, BadHeader, BatchHeader, peek, unpack
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES, BadSegment, ForeignSegment

# Bytes of a read while batches follow closely; larger bodies are jumped over.
CHUNK_BYTES = 256 * 1024

# The same for reading a whole file: four batches of a journal's snapshot.
PIECE_BYTES = 1024 * 1024

# Bytes read after a jump: a header, and a few more where batches are small.
LEAP_BYTES = 4096

# An offset above all others, for walks that check no bodies.
NO_OFFSET = 1 << 63


class BadBatch(Exception):
    """No good batch here: the place, the expected offset, and the reason.

    `is_unreadable`: the disk cannot read the place, so its content is unknown. `is_foreign`: the
    batch is intact, but belongs to another log or place.
    """

    def __init__(
        self,
        segment: Segment,
        file_pos: int,
        offset: int,
        reason: str,
        *,
        is_unreadable: bool = False,
        is_foreign: bool = False,
    ) -> None:
        super().__init__(f"{segment.path} at byte {file_pos} (offset {offset}): {reason}")
        self.path = segment.path
        self.file_pos = file_pos
        self.offset = offset
        self.reason = reason
        self.is_unreadable = is_unreadable
        self.is_foreign = is_foreign

    def damage(self) -> DamagedLog:
        """The error that a reader gets."""
        return DamagedLog(self.path, self.file_pos, self.offset, self.reason)


class Window:
    """A piece of a segment file in memory, moved forward as a walk needs it."""

    def __init__(self, segment: Segment, end_pos: int) -> None:
        self._segment = segment
        self._end_pos = end_pos
        self._start = 0
        self._view = memoryview(b"")

    def get(self, pos: int, size: int, offset: int) -> memoryview:
        """`size` bytes at `pos`, fewer at the end. Raises BadBatch if the disk cannot read."""
        start = pos - self._start
        if start < 0 or start + size > len(self._view):
            near = 0 <= start <= len(self._view)
            want = min(max(size, CHUNK_BYTES if near else LEAP_BYTES), self._end_pos - pos)
            self._view = memoryview(read_checked(self._segment, want, pos, offset))
            self._start, start = pos, 0
        return self._view[start : start + size]


def read_checked(
    segment: Segment, size: int, pos: int, offset: int, *, wait: bool = True
) -> bytes | memoryview:
    """Bytes of a segment. Raises BadBatch if the disk cannot read, WouldBlock, FileGone."""
    if size <= 0:
        return b""
    try:
        return segment.file.read_at(size, pos, wait=wait)
    except (FileGone, WouldBlock):
        raise
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise BadBatch(segment, pos, offset, reason, is_unreadable=True) from error


def load_checked(segment: Segment) -> None:
    """Read a segment's header. Raises BadBatch, FileGone."""
    try:
        segment.load()
    except BadSegment as error:
        is_foreign = isinstance(error, ForeignSegment)
        place = (segment, 0, segment.base_offset)
        raise BadBatch(*place, str(error), is_foreign=is_foreign) from error
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise BadBatch(segment, 0, segment.base_offset, reason, is_unreadable=True) from error


def is_never_torn(fault: BadBatch, segments: Sequence[Segment]) -> bool:
    """Return True if a fault can never be a torn tail: the disk cannot read the place, or the bytes
    there belong to another log.

    The blocks of a new segment that was never synced may still hold an intact header of another
    log. The first segment is synced before anything relies on it, and such blocks never hold a
    batch with this segment's salt.
    """
    if fault.is_unreadable or not fault.is_foreign:
        return fault.is_unreadable
    return fault.file_pos > 0 or fault.path == segments[0].path


def is_foreign(segment: Segment) -> bool:
    """Return True if a segment's intact header names another place. Raises FileGone."""
    try:
        load_checked(segment)
    except BadBatch as fault:
        return fault.is_foreign
    return False


def header_at(
    segment: Segment, view: memoryview, file_pos: int, offset: int, end_pos: int, pos: int = 0
) -> BatchHeader:
    """The good header at `pos` of `view`, for the batch expected there. Raises BadBatch."""
    try:
        header = unpack(view, segment.salt, pos)
    except BadHeader as error:
        raise BadBatch(segment, file_pos, offset, str(error)) from None
    if header.partition_id != segment.partition_id:
        reason = f"partition {header.partition_id}'s batch is here"
        raise BadBatch(segment, file_pos, offset, reason, is_foreign=True)
    if header.base_offset != offset:
        raise BadBatch(segment, file_pos, offset, f"the batch here begins at {header.base_offset}")
    if file_pos + HEADER_BYTES + header.positions_bytes + header.body_bytes > end_pos:
        raise BadBatch(segment, file_pos, offset, "the batch goes beyond the end of the file")
    return header


def walk(
    segment: Segment, file_pos: int, offset: int, *, check_bodies_from: int, end_pos: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (file_pos, header) of the batches from `file_pos`, where a batch with `offset` must
    begin.

    Bodies are checked in batches that end above the offset `check_bodies_from`. Raises: BadBatch at
    the first batch that is not good; FileGone.
    """
    window = Window(segment, end_pos)
    while file_pos < end_pos:
        view = window.get(file_pos, HEADER_BYTES, offset)
        header = header_at(segment, view, file_pos, offset, end_pos)
        if header.next_offset > check_bodies_from:
            size = header.positions_bytes + header.body_bytes
            body = window.get(file_pos + HEADER_BYTES, size, offset)
            if len(body) != size or crc32c(body) != header.body_crc:
                raise BadBatch(segment, file_pos, offset, "body checksum is wrong")
        yield file_pos, header
        offset = header.next_offset
        file_pos += header.stored_bytes


def pass_over(
    segment: Segment, file_pos: int, offset: int, *, below: int, end_pos: int
) -> tuple[int, int]:
    """Return (offset, file_pos) after the batches from `file_pos` on that end at or below the
    offset `below`. Walks the headers only; bodies are not verified.  # hot

    Stops early at the first bad batch: a full walk from there reports the fault. Raises:
    BadBatch if the disk cannot read; FileGone.
    """
    salt, partition_id = segment.salt, segment.partition_id
    view, view_pos = memoryview(b""), -1
    while file_pos < end_pos:
        header = peek(view, file_pos - view_pos, salt, partition_id, offset)
        if header is None:
            if view_pos == file_pos:
                break
            size = CHUNK_BYTES if file_pos <= view_pos + len(view) else LEAP_BYTES
            size = min(size, end_pos - file_pos)
            view, view_pos = memoryview(read_checked(segment, size, file_pos, offset)), file_pos
        elif header[0] > below or file_pos + HEADER_BYTES + header[1] > end_pos:
            break
        else:
            offset = header[0]
            file_pos += HEADER_BYTES + header[1]
    return offset, file_pos


def bodies(segment: Segment) -> Iterator[tuple[int, int, memoryview]]:
    """(offset, file_pos, body) of every batch of a segment without positions tables, all of it
    checked; no more than a piece of the file is in memory.  # hot

    Raises: BadBatch at the first batch that is not good; FileGone.
    """
    load_checked(segment)
    salt, partition_id, end_pos = segment.salt, segment.partition_id, segment.size
    offset, file_pos = segment.base_offset, SEGMENT_HEADER_BYTES
    view, view_pos = memoryview(b""), file_pos
    while file_pos < end_pos:
        pos = file_pos - view_pos
        header = peek(view, pos, salt, partition_id, offset)
        if header is None or pos + HEADER_BYTES + header[1] > len(view):
            view, header = piece_with(segment, file_pos, offset, end_pos)
            view_pos, pos = file_pos, 0
        next_offset, size, crc = header
        pos += HEADER_BYTES
        body = view[pos : pos + size]
        if crc32c(body) != crc:
            raise BadBatch(segment, file_pos, offset, "body checksum is wrong")
        yield offset, file_pos, body
        offset = next_offset
        file_pos += HEADER_BYTES + size


def piece_with(
    segment: Segment, file_pos: int, offset: int, end_pos: int
) -> tuple[memoryview, tuple[int, int, int]]:
    """Return a piece of the file that begins with the batch expected there, and the result of
    `peek`.

    Raises: BadBatch, FileGone.
    """
    view = memoryview(read_checked(segment, min(PIECE_BYTES, end_pos - file_pos), file_pos, offset))
    header = header_at(segment, view, file_pos, offset, end_pos)
    if header.stored_bytes > len(view):
        view = memoryview(read_checked(segment, header.stored_bytes, file_pos, offset))
        if header.stored_bytes > len(view):
            raise BadBatch(segment, file_pos, offset, "the file ends too early")
    return view, (header.next_offset, header.stored_bytes - HEADER_BYTES, header.body_crc)


def find_good(
    segment: Segment, file_pos: int, offset: int, end_pos: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield good batches, bodies checked, that begin at or after `file_pos` with at least that
    offset.

    Searches for the magic, to find the batches after a fault; there may be more faults between
    them. Raises: FileGone.
    """
    pos = max(file_pos, SEGMENT_HEADER_BYTES)
    while pos < end_pos:
        pos = find_magic(segment, pos, offset, end_pos)
        try:
            view = memoryview(read_checked(segment, HEADER_BYTES, pos, offset))
            header = unpack(view, segment.salt)
            header = next(
                walk(segment, pos, header.base_offset, check_bodies_from=0, end_pos=end_pos)
            )[1]
        except (BadBatch, BadHeader, StopIteration):
            pos += 1
            continue
        if header.base_offset < offset:
            pos += 1
            continue
        yield pos, header
        offset = header.next_offset
        pos += header.stored_bytes


def find_magic(segment: Segment, pos: int, offset: int, end_pos: int) -> int:
    """The position of the next batch magic at or after `pos`; `end_pos` if there is none."""
    while pos < end_pos:
        try:
            chunk = bytes(read_checked(segment, min(CHUNK_BYTES, end_pos - pos), pos, offset))
        except BadBatch:
            pos += CHUNK_BYTES  # A bad place of the disk: look after it.
            continue
        match_pos = chunk.find(MAGIC)
        if match_pos >= 0:
            return pos + match_pos
        if len(chunk) < len(MAGIC):
            break
        pos += len(chunk) - len(MAGIC) + 1
    return end_pos
