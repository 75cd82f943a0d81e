"""Recognises the end of a log that a clean stop or a plain kill leaves, from a few small reads.

A start opens thousands of logs, and nearly all of them end like this. The last file has good
batches up to its end. The last batch ends at the durable offset of the slot, or a few batches
follow that no round had marked before the kill. The index knows a place shortly before. This check
takes half the time of a recovery. A log that differs in anything, or cannot be read, is left
unchanged to `recovery.py`, which reads the whole end again. FORMAT.md section 7.
"""

from collections.abc import Sequence

from crc32c import crc32c

from braidlog.storage.errors import StorageFailed, StorageFull
from braidlog.storage.formats.batch import HEADER_BYTES, BatchHeader
from braidlog.storage.log.files import FileGone, Files
from braidlog.storage.log.index import BadIndex
from braidlog.storage.log.recovery import LogIdentity, Recovered, RecoveryReport
from braidlog.storage.log.scan import LEAP_BYTES, BadBatch, header_at
from braidlog.storage.log.segment import LOG_SUFFIX, Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES, BadSegment
from braidlog.storage.log.segment_names import BASE_DIGITS, VIEW_SUFFIX
from braidlog.storage.log.tail import UnprovenTail
from braidlog.storage.log.watermark import Watermark

# Limit of the bytes after the last indexed place: a few batches, or a large batch. The index of a
# log in use has an entry every few batches.
BEHIND_BYTES_MAX = 64 * 1024

NAME_BYTES = BASE_DIGITS + len(LOG_SUFFIX)

# Raised for a file that is not as it should be, is missing or cannot be read.
UNUSUAL = (OSError, FileGone, BadSegment, BadIndex, BadBatch, StorageFull, StorageFailed)


def plain_end(
    files: Files,
    identity: LogIdentity,
    slot: Watermark,
    interval_bytes: int,
    names: Sequence[str],
) -> Recovered | None:
    """Return the result of `recover` for a log with nothing unusual, None for any other; `names`
    are the files in its folder, sorted. Raises: StorageFailed if the tail cannot be written again.
    """
    bases = _plain_bases(names)
    proven = slot.durable_offset
    if not bases or not bases[-1] <= proven:
        return None
    if len(bases) > 1 and bases[1] <= slot.log_start_offset:
        return None  # A crash interrupted a retention.
    place = (identity.kind, identity.partition_id)
    segments = [Segment(files, identity.folder, base, *place) for base in bases]
    try:
        for segment in segments[:-1]:
            segment.stat()
        behind = _look_at_end(files, segments[-1], proven, interval_bytes)
    except UNUSUAL:
        return None
    if behind is None:
        return None
    log_end = max(behind[-1][1].next_offset, proven) if behind else proven
    if log_end > proven:
        _write_tail_again(segments[-1], proven, behind)
    return Recovered(
        segments=segments,
        log_start_offset=max(slot.log_start_offset, bases[0]),
        log_end_offset=log_end,
        durable_offset=proven,
        unsynced=segments[-1:] if log_end > proven else [],
        below_start=[],
        takes_appends=True,
        report=RecoveryReport(identity.folder, batches_walked=len(behind)),
    )


def _plain_bases(names: Sequence[str]) -> list[int]:
    """Return the base offsets of the segment files; none if a name is out of the ordinary."""
    bases = []
    for name in names:
        if name.endswith(LOG_SUFFIX):
            stem = name[:BASE_DIGITS]
            if len(name) != NAME_BYTES or not (stem.isascii() and stem.isdecimal()):
                return []
            bases.append(int(stem))
        elif name.endswith((".new", VIEW_SUFFIX)):
            return []
    return bases


def _write_tail_again(
    segment: Segment, proven: int, behind: Sequence[tuple[int, BatchHeader]]
) -> None:
    tail = UnprovenTail(proven)
    for file_pos, header in behind:
        tail.add(segment, file_pos, header)
    tail.write_again([segment])


def _look_at_end(
    files: Files, segment: Segment, proven: int, interval_bytes: int
) -> list[tuple[int, BatchHeader]] | None:
    """Make the last segment ready for appends. Returns (file_pos, header) of the batches after the
    last place in its index, None if they are not good up to the end of the file. Raises `UNUSUAL`.
    """
    head, status = files.look_into(segment.path, LEAP_BYTES)
    segment.take_facts(status)
    segment.take_head(head)
    if segment.is_empty:
        return None
    place = _indexed_place(segment, proven)
    offset, file_pos = place or (segment.base_offset, SEGMENT_HEADER_BYTES)
    behind = _behind(segment, head, file_pos, offset, proven)
    if behind is None:
        return None
    index = segment.index
    if place is None:
        index.create()
    else:
        index.cut(file_pos)
    segment.resume_index()
    for file_pos, header in behind:
        before_us = segment.max_time_us
        segment.note_stored(header.append_us, header.time_us)
        segment.note_in_index(header.base_offset, file_pos, before_us, interval_bytes)
    return behind


def _indexed_place(segment: Segment, proven: int) -> tuple[int, int] | None:
    """Return the place that the index gives, or None if the index is bad or gives none."""
    try:
        index = segment.load_index()
        index.cut(segment.size)
        return index.floor(proven)
    except BadIndex:
        return None


def _behind(
    segment: Segment, head: bytes, file_pos: int, offset: int, proven: int
) -> list[tuple[int, BatchHeader]] | None:
    """(file_pos, header) of the batches from a place on, None if they are not good up to the end of
    the file, or end below `proven`. Bodies above `proven` are checked. Raises BadBatch.
    """
    end_pos = segment.size
    headers: list[tuple[int, BatchHeader]] = []
    if file_pos != end_pos:
        if end_pos - file_pos > BEHIND_BYTES_MAX:
            return None
        view, view_pos = memoryview(head), 0
        if end_pos > len(head):
            data = segment.file.read_at(end_pos - file_pos, file_pos)
            view, view_pos = memoryview(data), file_pos
        while file_pos < end_pos:
            batch = view[file_pos - view_pos :]
            header = header_at(segment, batch, file_pos, offset, end_pos)
            offset = header.next_offset
            if header.durable_offset > offset:
                return None
            if offset > proven:
                body = batch[HEADER_BYTES : header.stored_bytes]
                if crc32c(body) != header.body_crc:
                    return None
            headers.append((file_pos, header))
            file_pos += header.stored_bytes
    return headers if offset >= proven else None
