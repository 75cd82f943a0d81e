"""Finds an offset or a time in a segment, with its index or without.

Offsets ascend: without an index, a search looks at a dozen places in the file. Times do not ascend:
for them a lost index is built again. Safe in any thread beside an append.
"""

from braidlog.storage.errors import WouldBlock
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.batch import BatchHeader
from braidlog.storage.log.index import BadIndex, SparseIndex
from braidlog.storage.log.scan import NO_OFFSET, BadBatch, find_good, load_checked, walk
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES


def place_of_offset(
    segment: Segment, offset: int, interval_bytes: int, *, wait: bool = True
) -> tuple[int, int]:
    """Return (offset, file_pos) of a batch at or shortly before the one that contains `offset`.

    Raises: WouldBlock, with `wait=False`, where the index is not in memory; BadBatch, FileGone.
    """
    index = segment.index_in_memory
    if index is None:
        if not wait:
            raise WouldBlock(segment.path)
        load_checked(segment)
        index = stored_index(segment)
    if index is not None:
        try:
            return index.floor(offset) or (segment.base_offset, SEGMENT_HEADER_BYTES)
        except BadIndex:
            segment.lose_index()
            if not wait:
                raise WouldBlock(segment.path) from None
    return searched_place(segment, offset, interval_bytes)


def searched_place(segment: Segment, offset: int, interval_bytes: int) -> tuple[int, int]:
    """Return (offset, file_pos) of a batch at or before `offset`, found by looking where batches
    begin.

    The result proves nothing about the bytes that follow: the search steps over anything but good
    batches. Raises: FileGone.
    """
    place = segment.base_offset, SEGMENT_HEADER_BYTES
    low_pos, high_pos = SEGMENT_HEADER_BYTES, segment.size
    while high_pos - low_pos > interval_bytes:
        middle_pos = (low_pos + high_pos) // 2
        good = next(find_good(segment, middle_pos, segment.base_offset, segment.size), None)
        if good is None or good[1].base_offset > offset:
            high_pos = middle_pos
        else:
            low_pos, header = good
            place = header.base_offset, low_pos
            low_pos += header.stored_bytes
    return place


def first_at_or_after(segment: Segment, time_us: int, interval_bytes: int) -> int | None:
    """Base offset of the segment's first batch of that time or later, None if there is none.

    Raises: BadBatch, FileGone.
    """
    offset, file_pos = place_of_time(segment, time_us, interval_bytes)
    batches = walk(segment, file_pos, offset, check_bodies_from=NO_OFFSET, end_pos=segment.size)
    for _, header in batches:
        if header.time_us >= time_us and not header.flags & BatchFlag.GAP:
            return header.base_offset
    return None


def place_of_time(segment: Segment, time_us: int, interval_bytes: int) -> tuple[int, int]:
    """(offset, file_pos) of a batch before which all are older than `time_us`.

    Raises: BadBatch, FileGone.
    """
    load_checked(segment)
    with segment.building_index:
        index = segment.index_in_memory or stored_index(segment)
        if index is None:
            index = build_index(segment, interval_bytes)
        try:
            place = index.floor_time(time_us)
        except BadIndex:
            place = build_index(segment, interval_bytes).floor_time(time_us)
    return place or (segment.base_offset, SEGMENT_HEADER_BYTES)


def stored_index(segment: Segment) -> SparseIndex | None:
    """Return the index from its file and keep it in memory from now on. Return None if the index
    does not reach the end of the segment, as the index of a full segment does.
    """
    if segment.index_is_lost:
        return None
    try:
        index = segment.new_index()
        index.load()
        last = index.last()
    except BadIndex:
        return None
    if last is None or last[1] != segment.size:
        return None
    segment.keep_index(index, last[2])
    return index


def build_index(segment: Segment, interval_bytes: int) -> SparseIndex:
    """Build the index from the log, and keep it in memory. Raises BadBatch, FileGone."""
    load_checked(segment)
    entries: list[tuple[int, int, int | None]] = []
    offset, pos = segment.base_offset, SEGMENT_HEADER_BYTES
    indexed_pos, max_time_us = pos, None
    end_pos = segment.size
    while pos < end_pos:
        try:
            batches = walk(segment, pos, offset, check_bodies_from=NO_OFFSET, end_pos=end_pos)
            for file_pos, header in batches:
                if file_pos - indexed_pos >= interval_bytes:
                    entries.append((header.base_offset, file_pos, max_time_us))
                    indexed_pos = file_pos
                max_time_us = later(max_time_us, header)
                offset = header.next_offset
            pos = end_pos
            if segment.size - end_pos > interval_bytes:
                end_pos = segment.size  # It grew meanwhile, and nothing was indexed.
        except BadBatch as fault:
            behind = next(find_good(segment, fault.file_pos + 1, fault.offset, end_pos), None)
            if behind is None:
                break
            pos, offset = behind[0], behind[1].base_offset
            indexed_pos = pos - interval_bytes  # Readers must be able to get past the fault.
    entries.append((offset, end_pos, max_time_us))
    index = segment.new_index()
    index.fill(entries)
    segment.keep_index(index, max_time_us)
    return index


def later(max_time_us: int | None, header: BatchHeader) -> int:
    """The greater of a time and the batch's."""
    return header.time_us if max_time_us is None else max(max_time_us, header.time_us)
