"""Places of a partition's records: the object that holds given bytes of a segment file.

Pure: uses no store and no ledger. Rounds, packs and segments may hold the same bytes for a while; a
whole segment is preferred, then packs. Pieces that do not join are either damage, reported with the
place, or remains of a deleted topic: packs stay while others need them.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from braidlog.storage.errors import DamagedLog
from braidlog.storage.shared.layout import (
    BadObject,
    SliceEntry,
    pack_name,
    segment_name,
    unpack_entries,
)
from braidlog.storage.shared.ledger import Contents, PackRow, SegmentRow


@dataclass(slots=True, frozen=True)
class Piece:
    """Bytes of a segment file in an object."""

    object: str
    object_pos: int
    file_pos: int
    size: int
    end_offset: int
    last_append_us: int

    @property
    def file_end(self) -> int:
        """Position in the segment file after the piece."""
        return self.file_pos + self.size


@dataclass(slots=True)
class SegmentPieces:
    """A segment file as stored in objects, from the first byte on."""

    base: int
    pieces: tuple[Piece, ...]
    index: Piece | None = None  # The index file, if an object holds the index too.

    @property
    def size(self) -> int:
        """Bytes of the segment file."""
        return self.pieces[-1].file_end

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self.pieces[-1].end_offset

    @property
    def last_append_us(self) -> int:
        """Append time of the last record."""
        return max(piece.last_append_us for piece in self.pieces)

    @property
    def is_whole(self) -> bool:
        """True if the segment has an object of its own."""
        return self.index is not None

    def overlapping(self, pos: int, size: int) -> Sequence[Piece]:
        """Return the pieces with any of these bytes, in order."""
        starts = [piece.file_pos for piece in self.pieces]
        first = max(bisect_right(starts, pos) - 1, 0)
        last = bisect_right(starts, pos + size - 1)
        return self.pieces[first:last]


@dataclass(slots=True)
class PartitionPieces:
    """A partition as a new owner finds it."""

    partition_id: int
    shard: int
    log_start: int = 0
    segments: list[SegmentPieces] = field(default_factory=list)
    fault: str = ""  # Why the partition cannot be opened: partition, offset and object.

    def check(self) -> None:
        """Check that the partition can be opened. Raises DamagedLog."""
        if self.fault:
            raise DamagedLog("the shared store", 0, self.log_start, self.fault)

    @property
    def log_end(self) -> int:
        """Offset of the next record."""
        ends = [segment.end_offset for segment in self.segments]
        return max([self.log_start, *ends])

    def offset_before(self, size_bytes: int) -> int:
        """Return an offset with about so many bytes of records from there to the log's end; the log
        start if the log is smaller.
        """
        for segment in reversed(self.segments):
            bases = [segment.base, *(piece.end_offset for piece in segment.pieces)]
            for piece, base in zip(reversed(segment.pieces), reversed(bases[:-1]), strict=True):
                if piece.size >= size_bytes:
                    offsets = -((base - piece.end_offset) * size_bytes // piece.size)
                    return max(self.log_start, piece.end_offset - offsets)
                size_bytes -= piece.size
        return self.log_start


@dataclass(slots=True, frozen=True)
class Located:
    """A slice and the object that holds the slice. `is_round`: not packed yet."""

    entry: SliceEntry
    object: str
    is_round: bool


def pack_slices(packs: Iterable[PackRow], wanted: Collection[int] | None = None) -> list[Located]:
    """Return the slices in all packs; only of `wanted` partitions, if given. Raises BadObject."""
    return [
        Located(entry, pack_name(pack.shard, pack.epoch, pack.pack), False)
        for pack in packs
        for entry in unpack_entries(pack.index, wanted)
    ]


def partitions_of(
    contents: Contents, rounds: Iterable[Located], wanted: Collection[int] | None = None
) -> dict[int, PartitionPieces]:
    """Return all partitions that the ledger and the footers of unpacked rounds name, by id; only
    `wanted` partitions, if given. A partition with pieces that do not join has a fault. Raises
    BadObject.
    """
    pieces_by_id: dict[int, PartitionPieces] = {}

    def is_wanted(number: int) -> bool:
        return wanted is None or number in wanted

    def partition(number: int, shard: int) -> PartitionPieces:
        return pieces_by_id.setdefault(number, PartitionPieces(number, shard))

    for number, (shard, start) in contents.starts.items():
        if is_wanted(number):
            partition(number, shard).log_start = start
    whole = {
        (row.partition_id, row.base): row
        for row in contents.segments
        if is_wanted(row.partition_id)
    }
    slices: dict[tuple[int, int], list[Located]] = {}
    unpacked = (
        stored_round for stored_round in rounds if is_wanted(stored_round.entry.partition_id)
    )
    for located in [*pack_slices(contents.packs, wanted), *unpacked]:
        entry = located.entry
        if (entry.partition_id, entry.segment_base) not in whole:
            slices.setdefault((entry.partition_id, entry.segment_base), []).append(located)
    for (number, _), row in whole.items():
        pieces = partition(number, row.shard)
        if row.end_offset > pieces.log_start:
            pieces.segments.append(whole_segment(row))
    for (number, base), located_slices in slices.items():
        pieces = partition(number, located_slices[0].entry.shard)
        if max(located.entry.end_offset for located in located_slices) > pieces.log_start:
            try:
                pieces.segments.append(joined_segment(number, base, located_slices))
            except BadObject as error:
                pieces.fault = str(error)
    for pieces in pieces_by_id.values():
        pieces.segments.sort(key=lambda segment: segment.base)
        pieces.fault = pieces.fault or _gap(pieces)
    return pieces_by_id


def whole_segment(row: SegmentRow) -> SegmentPieces:
    """Return the segment that a row of the ledger names."""
    name = segment_name(row.partition_id, row.base, row.epoch, row.generation)
    log = Piece(name, 0, 0, row.size, row.end_offset, row.last_append_us)
    index = Piece(name, row.size, 0, row.index_bytes, row.end_offset, row.last_append_us)
    return SegmentPieces(row.base, (log,), index)


def joined_segment(partition_id: int, base: int, located: Iterable[Located]) -> SegmentPieces:
    """Join a segment from its slices, preferring slices in packs. Raises BadObject."""
    pieces: list[Piece] = []
    end = 0
    for source in sorted(located, key=lambda source: (source.entry.file_pos, source.is_round)):
        entry = source.entry
        if entry.file_pos > end:
            raise BadObject(
                f"partition {partition_id}, segment {base}: bytes {end} to {entry.file_pos} are in"
                f" no object; {source.object} goes on behind them"
            )
        skipped = end - entry.file_pos
        if skipped >= entry.size:
            continue
        pieces.append(
            Piece(
                source.object,
                entry.object_pos + skipped,
                end,
                entry.size - skipped,
                entry.end_offset,
                entry.last_append_us,
            )
        )
        end = entry.file_end
    return SegmentPieces(base, tuple(pieces))


def _gap(partition: PartitionPieces) -> str:
    """Describe the first gap between segments from the log start on; empty if there is none."""
    expected: int | None = None
    for segment in partition.segments:
        fits = segment.base <= partition.log_start if expected is None else segment.base == expected
        if not fits:
            wanted = partition.log_start if expected is None else expected
            return (
                f"partition {partition.partition_id}: offset {wanted} is in no object; segment"
                f" {segment.base} of {segment.pieces[0].object} goes on behind it"
            )
        expected = segment.end_offset
    return ""
