"""The rounds of a log in the shared store: the places up to which each segment is taken, published
and packed.

The segment files of this session are a cache; a record counts once the round with its bytes is
published. Chooses the bytes for a round, pack or upload. Owner's thread. Knows no object's name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from braidlog.storage.log.committer import SyncPoint
from braidlog.storage.log.extent import Extent
from braidlog.storage.log.recovery import LogIdentity
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.unsynced import Unsynced
from braidlog.storage.shared.cached_file import CachedFile, CachedFiles
from braidlog.storage.shared.layout import SliceEntry
from braidlog.storage.shared.pieces import SegmentPieces
from braidlog.storage.shared.points import Backlog, SharedPoint, Slice


@dataclass(slots=True)
class Track:
    """Places up to which a segment of our own is taken into rounds, published and packed."""

    segment: Segment
    taken_pos: int
    taken_offset: int
    published_pos: int
    published_offset: int
    packed_pos: int
    packed_offset: int

    @classmethod
    def of(cls, segment: Segment) -> "Track":
        """Return the track of a new segment: nothing taken, published or packed."""
        return cls(segment, 0, segment.base_offset, 0, segment.base_offset, 0, segment.base_offset)


@dataclass(slots=True, frozen=True)
class ShardLink:
    """A log's knowledge of its shard."""

    shard: int
    backlog: Backlog


class ShardRounds:
    """The `Rounds` of a log whose segments are a cache. Nothing is synced, and no slot is written:
    the ledger has the log's begin and end.
    """

    __slots__ = ("_counted", "_files", "_growing", "_identity", "_link", "tracks", "unsynced")

    def __init__(self, files: CachedFiles, identity: LogIdentity, link: ShardLink) -> None:
        self.unsynced = Unsynced(identity.folder)
        self.tracks: dict[int, Track] = {}  # Own segments without an own object, by base.
        self._files = files
        self._identity = identity
        self._link = link
        # Tracks with bytes that no round has taken; the last track takes the appends.
        self._growing: list[Track] = []
        self._counted: tuple[Segment | None, int] = (None, 0)

    def began(self, segment: Segment) -> None:
        """Track a new segment; keep the file open for the round."""
        self.unsynced.hold(segment.file)
        track = Track.of(segment)
        self._growing.append(track)
        self.tracks[segment.base_offset] = track

    def count_append(self) -> None:
        """Count the bytes of the last append as unpublished."""
        segment, pos = self._counted
        last = self._growing[-1].segment
        self._counted = (last, last.size)
        self._link.backlog.appended(last.size - (pos if segment is last else 0))

    def begin(self, end_offset: int) -> SyncPoint:
        """Return all bytes appended since the last round."""
        files = self.unsynced.take(end_offset)
        slices = list(self._slices(end_offset))
        self._growing = self._growing[-1:]
        self._link.backlog.begun(sum(entry_slice.entry.size for entry_slice in slices))
        return SharedPoint(files.files, (), end_offset, slices)

    def _slices(self, log_end: int) -> Iterator[Slice]:
        ends = [track.segment.base_offset for track in self._growing[1:]] + [log_end]
        for track, end_offset in zip(self._growing, ends, strict=True):
            segment = track.segment
            size = segment.size - track.taken_pos
            if segment.size <= SEGMENT_HEADER_BYTES or not size:
                continue
            yield Slice(
                self._entry(segment, track.taken_pos, size, (track.taken_offset, end_offset)),
                segment.file,
            )
            track.taken_pos, track.taken_offset = segment.size, end_offset

    def _entry(
        self, segment: Segment, file_pos: int, size: int, offsets: tuple[int, int]
    ) -> SliceEntry:
        base, last_us = segment.base_offset, segment.newest_append_us
        return SliceEntry(
            self._link.shard,
            self._identity.partition_id,
            base,
            file_pos,
            size,
            *offsets,
            0,
            last_us,
        )

    def synced(self, point: SyncPoint) -> None:
        """Note that bytes are published."""
        assert isinstance(point, SharedPoint)
        self.unsynced.synced(point)
        self._link.backlog.ended(sum(entry_slice.entry.size for entry_slice in point.slices))

    def finish(self, point: SyncPoint, extent: Extent) -> bool:
        """Note how far segments are published."""
        assert isinstance(point, SharedPoint)
        for entry_slice in point.slices:
            track = self.tracks.get(entry_slice.entry.segment_base)
            if track is not None:
                track.published_pos = entry_slice.entry.file_end
                track.published_offset = entry_slice.entry.end_offset
        return False

    def note(self, extent: Extent, *, in_round: bool = False) -> None:
        """Do nothing: the ledger has the offsets."""

    def move_start(self, log_start: int, extent: Extent) -> None:
        """Do nothing: the next pack tells the ledger."""

    def drop(self, segments: Sequence[Segment]) -> bool:
        """Remove the cached files at once."""
        for segment in segments:
            self.tracks.pop(segment.base_offset, None)
            segment.remove()
        return False

    def close(self) -> None:
        """Release all files; records that no round took never count."""
        waiting = sum(track.segment.size - track.taken_pos for track in self._growing)
        self._link.backlog.begun(waiting)
        self._link.backlog.ended(waiting)
        self._growing = []
        self.unsynced.close()

    # Packs and uploads.

    def slices_to_pack(self) -> list[Slice]:
        """Return the published slices in no pack, of segments that are not uploaded whole."""
        return [
            Slice(
                self._entry(
                    track.segment,
                    track.packed_pos,
                    track.published_pos - track.packed_pos,
                    (track.packed_offset, track.published_offset),
                ),
                track.segment.file,
            )
            for track in self.tracks.values()
            if track.published_pos > track.packed_pos
        ]

    def packed(self, entry: SliceEntry) -> None:
        """Note that a slice is in a pack."""
        track = self.tracks.get(entry.segment_base)
        if track is not None:
            track.packed_pos, track.packed_offset = entry.file_end, entry.end_offset

    def segments_to_upload(
        self, segments: Sequence[Segment], log_end: int
    ) -> list[tuple[Segment, int]]:
        """Return the segments without an own object that are full and published whole, or belong to
        an earlier owner; each with the end offset.
        """
        active = self._growing[-1].segment if self._growing else None
        ends = [segment.base_offset for segment in segments[1:]] + [log_end]
        return [
            (segment, end)
            for segment, end in zip(segments, ends, strict=False)
            if segment is not active and self._can_upload(segment)
        ]

    def _can_upload(self, segment: Segment) -> bool:
        track = self.tracks.get(segment.base_offset)
        if track is not None:
            return track.published_pos == segment.size
        return isinstance(segment.file, CachedFile) and not segment.file.pieces.is_whole

    def repacked(self, segments: Sequence[Segment], base: int, pieces: SegmentPieces) -> None:
        """Note that a segment of an earlier owner is now in other objects."""
        for segment in segments:
            if segment.base_offset == base and isinstance(segment.file, CachedFile):
                segment.file.replace_pieces(pieces)

    def uploaded(self, segment: Segment, pieces: SegmentPieces) -> None:
        """Note that a segment has an own object: the local file is a cache from now on."""
        files = self._files
        files.note_index(segment.path, pieces)
        if isinstance(segment.file, CachedFile):
            segment.file.replace_pieces(pieces)
            return
        if self.tracks.pop(segment.base_offset, None) is None:
            return  # Retention dropped the segment meanwhile.
        local, cached = segment.file, files.segment_file(segment.path, pieces)
        cached.adopt_local()
        segment.use_file(cached)
        local.close()
