"""Finds large batches without reading their bodies, so that a socket can take them from the file.

Covers only batches that are cheap to find and were checked before. `segment_reading.py` handles all
others and reports faults.
"""

from dataclasses import dataclass

from braidlog.storage.errors import StorageError
from braidlog.storage.formats.batch import HEADER_BYTES, unpack_place
from braidlog.storage.log.file_part import FilePart
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_reading import READ_BATCHES_MAX

# Larger bodies are sent from the file once checked; copying a smaller body costs no more than the
# system calls for sending it.
IN_PLACE_BYTES_MIN = 16 * 1024

# Shorter runs are copied: asking the kernel which pages are in memory, and holding a descriptor
# until the run is sent, would cost as much.
IN_PLACE_RUN_BYTES_MIN = 128 * 1024


@dataclass(slots=True, frozen=True)
class PlacedWant:
    """The batches that a reader takes in place: batches of a single format that end at or below
    `stop`, with bodies of at most `bytes_max` together.
    """

    body_format: int
    stop: int
    bytes_max: int


@dataclass(slots=True)
class PlacedRun:
    """Consecutive batches with unread bodies."""

    bodies: FilePart
    record_count: int
    next_offset: int
    last_bytes: int  # of the last body
    end_pos: int  # position in the file after the batches


def run_in_place(
    segment: Segment, offset: int, place: tuple[int, int, int], want: PlacedWant
) -> PlacedRun | None:
    """Return batches from a place up to the first batch that cannot be read in place; None if there
    are too few. `place` has the first offset of a batch, the position of the batch in the file, and
    the position in the body of the entry that begins with `offset`.

    All batches are in memory at this moment. If memory is short, the kernel may drop pages before
    they are sent, and some pages may still be on their way from the disk: sending then waits for
    the disk.
    """
    pos = place[1]
    if want.bytes_max < IN_PLACE_RUN_BYTES_MIN or not segment.leases.offers(segment.file):
        return None
    end_pos = segment.checked_end(pos)
    if end_pos - pos < HEADER_BYTES + IN_PLACE_RUN_BYTES_MIN or segment.header is None:
        return None
    try:
        fd = segment.file.hold_to_read()
    except (FileGone, StorageError):
        return None
    try:
        return _run(segment, fd, offset, (*place, end_pos), want)
    except OSError:
        return None
    finally:
        segment.file.release()


def _run(
    segment: Segment, fd: int, first_offset: int, place: tuple[int, int, int, int], want: PlacedWant
) -> PlacedRun | None:  # hot: see make bench
    offset, start_pos, skipped, end_pos = place
    leases, path, salt = segment.leases, segment.path, segment.salt
    read_cached = leases.disk.read_cached
    body_format, stop, left = want.body_format, want.stop, want.bytes_max
    places: list[tuple[int, int]] = []
    pos, size = start_pos, 0
    head = memoryview(bytearray(HEADER_BYTES))
    while pos < end_pos and left >= IN_PLACE_BYTES_MIN and len(places) < READ_BATCHES_MAX:
        if read_cached(path, fd, head, pos) < HEADER_BYTES:
            break
        batch_place = unpack_place(head, salt, segment.partition_id, offset, body_format)
        if (
            batch_place is None
            or batch_place[0] > stop
            or not IN_PLACE_BYTES_MIN <= batch_place[1] <= left + skipped
        ):
            break
        offset, size = batch_place
        pos += HEADER_BYTES
        places.append((pos + skipped, size - skipped))
        pos += size
        left -= size - skipped
        skipped = 0
    total = want.bytes_max - left
    if total < IN_PLACE_RUN_BYTES_MIN:
        return None
    lease = leases.take(segment.file, pos - start_pos, start_pos)
    if lease is None:
        return None
    return PlacedRun(FilePart(lease, places, total), offset - first_offset, offset, size, pos)
