"""Determines the age of a segment: the greatest append time in the headers of its batches.

A segment from before this start has only its file's modification time, which a slow clock, a copy
or a restored backup sets wrong. Retention by age asks the headers before it drops such a segment.
Knows no setting.
"""

from collections.abc import Iterator
from contextlib import suppress
from struct import Struct

from braidlog.storage.formats.batch import HEADER_BYTES, peek
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.scan import (
    CHUNK_BYTES,
    LEAP_BYTES,
    BadBatch,
    find_good,
    load_checked,
    read_checked,
)
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES

APPEND_TIME = Struct("<q")
APPEND_TIME_POS = 72  # In a batch header, FORMAT.md section 3.


def append_times(segment: Segment) -> Iterator[int]:
    """The greatest append time of each piece of a segment, bodies not read. The caller may pause
    between two pieces. Goes on behind damage.  # hot

    Raises: BadBatch if the disk cannot read or the segment's header is wrong; FileGone.
    """
    load_checked(segment)
    salt, partition_id = segment.salt, segment.partition_id
    offset, file_pos, end_pos = segment.base_offset, SEGMENT_HEADER_BYTES, segment.size
    view, view_pos, newest_us = memoryview(b""), -1, 0
    while file_pos < end_pos:
        pos = file_pos - view_pos
        header = peek(view, pos, salt, partition_id, offset)
        if header is not None:
            (append_us,) = APPEND_TIME.unpack_from(view, pos + APPEND_TIME_POS)
            newest_us = max(newest_us, append_us)
            offset, file_pos = header[0], file_pos + HEADER_BYTES + header[1]
            continue
        if view_pos == file_pos:
            behind = next(find_good(segment, file_pos + 1, offset, end_pos), None)
            if behind is None:
                break
            file_pos, offset = behind[0], behind[1].base_offset
        yield newest_us
        size = CHUNK_BYTES if file_pos <= view_pos + len(view) else LEAP_BYTES
        size = min(size, end_pos - file_pos)
        view, view_pos = memoryview(read_checked(segment, size, file_pos, offset)), file_pos
    yield newest_us


def newest_append_us(segment: Segment) -> int:
    """The greatest append time of a segment, 0 if its headers cannot be read."""
    newest_us = 0
    with suppress(BadBatch, FileGone):  # Damage is reported elsewhere; the file's time has to do.
        newest_us = max(append_times(segment))
    return newest_us
