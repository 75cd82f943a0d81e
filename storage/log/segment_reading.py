"""Reads batches out of a segment from a place on: a single read of the range, checks, views.

Works beside an append to the same segment, in any thread, because bytes below `segment.size` never
change. Knows no high watermark: the caller gives the offset at which to stop.
"""

from dataclasses import dataclass

from crc32c import crc32c

from braidlog.storage.errors import WouldBlock
from braidlog.storage.formats.batch import HEADER_BYTES, Batch
from braidlog.storage.large import LARGE_BYTES_MIN, check_large
from braidlog.storage.log.local_files import TIMED_BYTES_MIN
from braidlog.storage.log.scan import (
    BadBatch,
    find_good,
    header_at,
    load_checked,
    read_checked,
)
from braidlog.storage.log.segment import Segment

# Bytes read beyond the request: the header of a batch that fills the request exactly, and the walk
# from an index entry to the wanted batch.
SLACK_BYTES = 16 * 1024
# Batches of a read, however small they are: each takes the reader some microseconds.
READ_BATCHES_MAX = 2048
NONE = memoryview(b"")


@dataclass(slots=True, frozen=True)
class Trusted:
    """Bodies of a format for a reader who checks them itself: bodies that this process wrote or
    verified, and has had in memory since, are not checked again here.
    """

    body_format: int
    # Whether the first body may be cut to the room that there is, if there is no room for all of
    # it. A body that is cut cannot be checked.
    may_be_cut: bool = False


@dataclass(slots=True)
class Want:
    """The batches that a read wants: batches that end above `offset`, none that ends
    above `stop`.
    """

    offset: int
    stop: int
    bytes_max: int
    wait: bool = True
    # If set, the batch in which `bytes_max` ends comes too; it likely ends no further beyond.
    beyond_bytes: int | None = None
    trusted: Trusted | None = None


def read_batches(segment: Segment, place: tuple[int, int], want: Want) -> list[Batch]:
    """Return the wanted batches, walking from `place`, where a batch begins; [] if the segment has
    none.

    The first batch is returned whatever its size (but see `Trusted`), more while their bodies
    together fit `bytes_max`, at most READ_BATCHES_MAX; with `beyond_bytes` also the first batch
    that does not fit. A large batch beyond `bytes_max` comes alone, and only if the caller may
    wait: it takes milliseconds. The read ends before a bad batch; the next read raises. Raises:
    BadBatch if the first batch is bad; WouldBlock; LargeBody, before a large batch; FileGone.
    """
    load_checked(segment)
    batches: list[Batch] = []
    while True:
        try:
            return read_run(segment, place, want, batches)
        except BadBatch as fault:
            if batches:
                return batches
            if fault.offset >= want.offset:
                raise  # The very batch that was wanted.
            if not want.wait:
                raise WouldBlock(segment.path) from None  # It takes a search through the file.
            place = place_behind(segment, fault, want.offset)


def place_behind(segment: Segment, fault: BadBatch, offset: int) -> tuple[int, int]:
    """The place of the good batch after a fault that has `offset`. Raises the fault if none has."""
    for pos, header in find_good(segment, fault.file_pos + 1, fault.offset, segment.size):
        if header.base_offset > offset:
            break
        if header.next_offset > offset:
            return header.base_offset, pos
    raise fault


def read_run(
    segment: Segment, place: tuple[int, int], want: Want, batches: list[Batch]
) -> list[Batch]:
    """Add the good batches from `place` on to `batches`, up to the first fault.  # hot"""
    at, pos = place
    end_pos, budget = segment.size, want.bytes_max
    trusted, trusted_end_pos, may_be_cut = want.trusted, pos, False
    if trusted is not None:
        trusted_end_pos, may_be_cut = _trusted_end(segment, pos), trusted.may_be_cut
    size = want.bytes_max + SLACK_BYTES + (want.beyond_bytes or 0)
    view, view_pos = fill(segment, min(size, end_pos - pos), pos, at, want)
    while pos < end_pos and at < want.stop:
        start = pos - view_pos
        if start + HEADER_BYTES > len(view):
            if batches:
                break
            view, view_pos = fill(segment, min(SLACK_BYTES, end_pos - pos), pos, at, want)
            start = 0
        header = header_at(segment, view, pos, at, end_pos, start)
        next_offset = at + header.last_offset_delta + 1
        stored_bytes = HEADER_BYTES + header.positions_bytes + header.body_bytes
        if next_offset > want.stop:
            break
        if next_offset > want.offset:
            is_last = header.body_bytes > budget
            if batches and is_last and (want.beyond_bytes is None or budget <= 0):
                break
            is_trusted = (
                trusted is not None
                and pos + stored_bytes <= trusted_end_pos
                and header.body_format == trusted.body_format
                and at >= want.offset
            )
            taken_bytes = stored_bytes
            if is_trusted and is_last and not batches and may_be_cut:
                taken_bytes = HEADER_BYTES + budget
            if start + taken_bytes > len(view):
                is_large = taken_bytes >= LARGE_BYTES_MIN and taken_bytes == stored_bytes
                if batches and (is_large or not is_last):
                    break
                if is_large:
                    _check_large(segment, taken_bytes, want)
                ahead = 0 if batches else min(want.bytes_max + SLACK_BYTES, end_pos - pos)
                size = max(taken_bytes, ahead)
                view, view_pos = fill(segment, size, pos, at, want, size_min=taken_bytes)
                start = 0
            body_pos = start + HEADER_BYTES
            content = view[body_pos : start + taken_bytes]
            if not is_trusted and crc32c(content) != header.body_crc:
                raise BadBatch(segment, pos, at, "body checksum is wrong")
            split = header.positions_bytes
            positions, body = (content[:split], content[split:]) if split else (NONE, content)
            batches.append(Batch(header, positions, body, pos))
            budget -= header.body_bytes
            if len(batches) >= READ_BATCHES_MAX or is_last:
                break
        at = next_offset
        pos += stored_bytes
    return batches


def _check_large(segment: Segment, size: int, want: Want) -> None:
    """Raise WouldBlock or LargeBody where a batch of that size is not read."""
    if not want.wait:
        raise WouldBlock(segment.path)
    check_large(size)


def _trusted_end(segment: Segment, pos: int) -> int:
    return segment.checked_end(pos) if segment.leases.trusts(segment.file) else pos


def fill(
    segment: Segment, size: int, pos: int, offset: int, want: Want, *, size_min: int = HEADER_BYTES
) -> tuple[memoryview, int]:
    """(view, pos) of at most `size` and at least `size_min` bytes read from `pos`.

    Raises: WouldBlock, BadBatch, FileGone.
    """
    if size >= TIMED_BYTES_MIN:
        if want.wait:
            segment.note_waited()
        elif segment.reads_slowly(pos, size):
            raise WouldBlock(segment.path)
    try:
        data = read_checked(segment, size, pos, offset, wait=want.wait)
        if len(data) < min(size_min, size) and not want.wait:
            raise WouldBlock(segment.path)
    except WouldBlock:
        segment.forget_checked()  # Bytes read from the disk again are checked again.
        raise
    if len(data) < min(size_min, size):
        raise BadBatch(segment, pos, offset, "the file ends too early")
    return memoryview(data).toreadonly(), pos
