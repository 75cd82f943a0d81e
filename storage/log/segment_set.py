"""The segments of a log side by side: reading and looking up across them.

Any thread may read while the owner's thread adds and drops segments. Knows the places of batches,
not which of them are visible: the caller gives the offset at which to stop.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from braidlog.storage.formats.batch import Batch
from braidlog.storage.log.in_place import IN_PLACE_BYTES_MIN, PlacedRun, PlacedWant, run_in_place
from braidlog.storage.log.index import BadIndex
from braidlog.storage.log.places import first_at_or_after, place_of_offset
from braidlog.storage.log.retention_rules import SegmentFacts
from braidlog.storage.log.scan import BadBatch
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.segment_reading import Want, read_batches

# Remembered places where a read or an append ended, so that the next read needs no index. A prime,
# so that steps of equal size do not meet in the same place.
PLACES = 127

# Indexes of full segments kept in memory for each log; others are loaded when needed.
LOADED_INDEXES_MAX = 4


# The batch that has some offset: its first offset and file position, and the position in its body
# of the entry that begins with that offset.
Place = tuple[int, int, int]


@dataclass(slots=True, frozen=True)
class SegmentView:
    """The segments at a moment; never changed, only replaced, so that threads may use a view."""

    bases: tuple[int, ...]
    segments: tuple[Segment, ...]

    def number_of(self, offset: int) -> int:
        """The number of the segment that has that offset, if any has."""
        return max(bisect_right(self.bases, offset) - 1, 0)


class SegmentSet:
    """Segments in order of their offsets, each beginning where the segment before ends.

    Guarantees: a reader sees a consistent view of the segments, also while some are added or
    dropped. Reads may wait for the disk unless asked not to.
    """

    def __init__(self, segments: Sequence[Segment], interval_bytes: int) -> None:
        self.view = SegmentView((), ())
        self.last: Segment
        self.interval_bytes = interval_bytes
        # Made with the first place: most partitions are neither read nor written.
        self._places: list[tuple[int, Segment, Place] | None] = []
        self._loaded: list[Segment] = []
        self.show(segments)

    def space_index(self, interval_bytes: int) -> None:
        """Use this distance of index entries from now on."""
        self.interval_bytes = interval_bytes

    def show(self, segments: Sequence[Segment]) -> None:
        """Show these segments to readers from now on; the last segment takes the appends."""
        self.view = SegmentView(tuple(segment.base_offset for segment in segments), tuple(segments))
        if segments:
            self.last = segments[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segment files."""
        return sum(segment.size for segment in self.view.segments)

    def facts(self, end_offset: int) -> list[SegmentFacts]:
        """The facts that retention needs of each segment; `end_offset` is the log's end."""
        view = self.view
        nexts = (*view.bases[1:], end_offset)
        return [
            SegmentFacts(
                segment.base_offset, after, segment.size, segment.newest_append_us, segment.is_dated
            )
            for segment, after in zip(view.segments, nexts, strict=True)
        ]

    def note_batch(
        self,
        segment: Segment,
        file_pos: int,
        max_time_before_us: int | None,
        base_offset: int,
        next_offset: int,
    ) -> None:
        """Note a batch that was just written at `file_pos`, the last of the segment.

        Raises: StorageFailed.
        """
        if file_pos - segment.indexed_pos >= self.interval_bytes:
            segment.note_in_index(base_offset, file_pos, max_time_before_us, self.interval_bytes)
        self.remember(next_offset, segment, segment.size)

    def remember(self, offset: int, segment: Segment, file_pos: int) -> None:
        """Note where the batch that begins with `offset` is, or will be."""
        if not self._places:
            self._places = [None] * PLACES
        self._places[offset % PLACES] = (offset, segment, (offset, file_pos, 0))

    def remember_within(self, offset: int, batch: Batch, body_pos: int) -> None:
        """Note the position in a batch's body of the entry that begins with `offset`."""
        view = self.view
        if self._places and view.segments:
            segment = view.segments[view.number_of(offset)]
            place = (batch.base_offset, batch.file_pos, body_pos)
            self._places[offset % PLACES] = (offset, segment, place)

    def read(self, want: Want) -> list[Batch]:
        """Read the wanted batches from the segment that has the offset.

        Raises: BadBatch; WouldBlock; FileGone, if the segment was dropped meanwhile.
        """
        view = self.view
        segment = view.segments[view.number_of(want.offset)]
        place = self._known(segment, want.offset)
        if place is None:
            self.note_loaded(segment)
            offset, interval_bytes = want.offset, self.interval_bytes
            batch_place = place_of_offset(segment, offset, interval_bytes, wait=want.wait)
        else:
            batch_place = place[:2]
        batches = read_batches(segment, batch_place, want)
        if not batches:
            raise BadBatch(segment, segment.size, want.offset, "the records are missing")
        last = batches[-1]
        end_pos = last.file_pos + last.header.stored_bytes
        self.remember(last.next_offset, segment, end_pos)
        # The batches follow each other, all checked.
        if last.header.body_bytes >= IN_PLACE_BYTES_MIN:
            segment.note_checked(batches[0].file_pos, end_pos)
        return batches

    def read_in_place(self, offset: int, want: PlacedWant) -> PlacedRun | None:
        """Return large batches without reading their bodies. The first batch begins with `offset`,
        or has a remembered entry that does. Often there are none: use `read` then. Never waits,
        never raises.
        """
        view = self.view
        segment = view.segments[view.number_of(offset)]
        place = self._known(segment, offset)
        if place is None and offset == segment.base_offset:
            place = offset, SEGMENT_HEADER_BYTES, 0
        run = None if place is None else run_in_place(segment, offset, place, want)
        if run is not None:
            self.remember(run.next_offset, segment, run.end_pos)
        return run

    def offset_at_or_after(self, time_us: int) -> int | None:
        """Base offset of the first batch of that time or later. Raises BadBatch, FileGone."""
        for segment in self.view.segments:
            self.note_loaded(segment)
            offset = first_at_or_after(segment, time_us, self.interval_bytes)
            if segment is not self.last:
                segment.save_index()
            if offset is not None:
                return offset
        return None

    def bytes_between(self, offset_a: int, offset_b: int) -> int:
        """About how many bytes lie between two offsets, a below b: too many rather than too few if
        the index is not in memory. Reads nothing.
        """
        view = self.view
        if not view.segments:
            return 0
        first, last = view.number_of(offset_a), view.number_of(offset_b)
        total = self._file_pos(view.segments[last], offset_b, view.segments[last].size)
        total -= self._file_pos(view.segments[first], offset_a, SEGMENT_HEADER_BYTES)
        return total + sum(
            segment.size - SEGMENT_HEADER_BYTES for segment in view.segments[first:last]
        )

    def _file_pos(self, segment: Segment, offset: int, otherwise: int) -> int:
        known, index = self._known(segment, offset), segment.index_in_memory
        if known is not None:
            return known[1]
        if index is not None:
            with suppress(BadIndex):  # The estimate is rougher then.
                place = index.floor(offset)
                return SEGMENT_HEADER_BYTES if place is None else place[1]
        return otherwise

    def _known(self, segment: Segment, offset: int) -> Place | None:
        if not self._places:
            return None
        known = self._places[offset % PLACES]
        if known is not None and known[0] == offset and known[1] is segment:
            return known[2]
        return None

    def note_loaded(self, segment: Segment) -> None:
        """Keep few indexes of full segments in memory: those loaded last."""
        if segment in self._loaded or segment is self.last:
            return
        self._loaded.append(segment)
        if len(self._loaded) > LOADED_INDEXES_MAX:
            self._loaded.pop(0).drop_index()

    def close(self) -> None:
        """Close all files."""
        for segment in self.view.segments:
            segment.close()
