"""One partition's log in the shared store: a `PartitionLog` whose records count once their round is
published.

Segments of earlier owners are in objects and only read; the first append begins a segment of our
own, as a local file. The log says which of its bytes a round, pack or upload should take. Knows no
object's name.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from braidlog.storage.errors import StorageFull, UnwritableChange
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.log.batch import Buffer
from braidlog.storage.log.committer import SyncPoint
from braidlog.storage.log.partition_log import LogPlace, PartitionLog
from braidlog.storage.log.recovery import Recovered, RecoveryReport
from braidlog.storage.log.reservation import Reservation
from braidlog.storage.log.segment import KIND_PARTITION, SEGMENT_HEADER_BYTES, Segment
from braidlog.storage.log.settings import Durability, LogSettings
from braidlog.storage.log.watermark import WATERMARK_MAGIC, WATERMARK_NAME, SlotFile
from braidlog.storage.shared.cached_file import CachedFile, CachedFiles
from braidlog.storage.shared.layout import SliceEntry
from braidlog.storage.shared.pieces import PartitionPieces, SegmentPieces
from braidlog.storage.shared.points import Backlog, SharedPoint, Slice


@dataclass(slots=True)
class Track:
    """How far a segment of our own was taken into rounds, published and packed."""

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
    """What a log knows of its shard."""

    shard: int
    epoch: int
    backlog: Backlog


class SharedLog(PartitionLog):
    """The log of a partition that this session owns. `open_shared_log` makes instances."""

    has_records = True  # Rounds with this log have records (`Publisher.wait_s`).

    def __init__(
        self, place: LogPlace, settings: LogSettings, recovered: Recovered, link: ShardLink
    ) -> None:
        identity = place.identity
        slot_path = f"{identity.folder}/{WATERMARK_NAME}"
        number = identity.partition_id
        slot = SlotFile(
            place.files, slot_path, WATERMARK_MAGIC, KIND_PARTITION, number, may_exist=False
        )
        reservation = Reservation(place.files, identity.folder, number, may_exist=False)
        self._link = link
        self._active: Segment | None = None
        # Tracks with bytes that no round has taken; the last track is active.
        self._growing: list[Track] = []
        self.tracks: dict[int, Track] = {}  # Own segments without an own object, by base.
        self._counted: tuple[Segment | None, int] = (None, 0)
        check_settings(settings)
        super().__init__(place, settings, recovered, slot, reservation)
        self.owner_epoch = link.epoch
        self._unsynced.names_changed = False

    def _begin(self, recovered: Recovered) -> None:
        """Do nothing: everything recovered is published, and the first append begins a segment."""

    @property
    def shard(self) -> int:
        """The shard of the partition."""
        return self._link.shard

    # Append

    def append(
        self,
        body: Sequence[Buffer],
        info: BodyInfo,
        *,
        body_format: int,
        body_version: int = 1,
        append_us: int,
        last_offset_delta: int | None = None,
        positions: Sequence[int] | None = None,
    ) -> int:
        """Append as `PartitionLog.append`. Raises StorageFull also while too much is
        unpublished.
        """
        self._check_backlog()
        base_offset = super().append(
            body,
            info,
            body_format=body_format,
            body_version=body_version,
            append_us=append_us,
            last_offset_delta=last_offset_delta,
            positions=positions,
        )
        self._count()
        return base_offset

    def append_all(
        self, pieces: Sequence[tuple[Buffer, BodyInfo]], *, body_format: int, append_us: int
    ) -> int:
        """Append as `PartitionLog.append_all`. Raises as `append`."""
        self._check_backlog()
        base_offset = super().append_all(pieces, body_format=body_format, append_us=append_us)
        self._count()
        return base_offset

    def _check_backlog(self) -> None:
        if self._link.backlog.is_full:
            raise StorageFull("the shared store does not keep up: too much is not published yet")

    def _count(self) -> None:
        """Count the bytes of the append."""
        segment, pos = self._counted
        last = self._segments.last
        self._counted = (last, last.size)
        self._link.backlog.appended(last.size - (pos if segment is last else 0))

    def _segment_for(self, stored_bytes: int, next_offset: int, append_us: int) -> Segment:
        """Return the segment that takes a batch: never a segment of an earlier owner."""
        if not self.takes_appends:
            self._refuse_append()
        segment = self._active
        if segment is None:
            segment = self._new_segment()
            self._segments.show([*self._segments.view.segments, segment])
        elif segment.is_full_for(stored_bytes, append_us, self.settings):
            segment = self._roll(segment)
        if segment.file not in self._unsynced.files:
            self._unsynced.hold(segment.file)
        return segment

    def _new_segment(self) -> Segment:
        segment = super()._new_segment()
        self._active = segment
        track = Track.of(segment)
        self._growing.append(track)
        self.tracks[segment.base_offset] = track
        return segment

    # Rounds

    def begin_sync(self) -> SyncPoint:
        """Return, for the committer, everything appended since the last round."""
        self._marked = False
        taken = self._unsynced.take(self.log_end_offset)
        slices = list(self._slices())
        self._growing = self._growing[-1:]
        self._link.backlog.begun(sum(one.entry.size for one in slices))
        return SharedPoint(taken.files, (), taken.end_offset, slices)

    def _slices(self) -> Iterator[Slice]:
        ends = [track.segment.base_offset for track in self._growing[1:]] + [self.log_end_offset]
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
            self._link.shard, self.partition_id, base, file_pos, size, *offsets, 0, last_us
        )

    def finish_sync(self, point: SyncPoint) -> None:
        """Note for the committer that the point of `begin_sync` is published."""
        assert isinstance(point, SharedPoint)
        self._unsynced.synced(point)
        self._link.backlog.ended(sum(one.entry.size for one in point.slices))
        if self._closed:
            return
        self.durable_offset = max(self.durable_offset, point.end_offset)
        self._shown_offset = max(self._shown_offset, self.durable_offset)
        for one in point.slices:
            track = self.tracks.get(one.entry.segment_base)
            if track is not None:
                track.published_pos = one.entry.file_end
                track.published_offset = one.entry.end_offset

    def _write_slot(self) -> None:
        """Do nothing: the ledger replaces the slot."""

    # Packs and uploads. Owner's thread.

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

    def segments_to_upload(self) -> list[tuple[Segment, int]]:
        """Return the segments without an own object that are full and published whole, or belong to
        an earlier owner; each with the end offset.
        """
        view = self._segments.view
        if not view.segments:
            return []
        ends = (*view.bases[1:], self.log_end_offset)
        return [
            (segment, end)
            for segment, end in zip(view.segments, ends, strict=True)
            if segment is not self._active and self._can_upload(segment)
        ]

    def _can_upload(self, segment: Segment) -> bool:
        track = self.tracks.get(segment.base_offset)
        if track is not None:
            return track.published_pos == segment.size
        return isinstance(segment.file, CachedFile) and not segment.file.pieces.is_whole

    def repacked(self, base: int, pieces: SegmentPieces) -> None:
        """Note that a segment of an earlier owner is now in other objects."""
        for segment in self._segments.view.segments:
            if segment.base_offset == base and isinstance(segment.file, CachedFile):
                segment.file.pieces = pieces

    def uploaded(self, segment: Segment, pieces: SegmentPieces) -> None:
        """Note that a segment has an own object: the local file is a cache from now on."""
        files = self._files
        assert isinstance(files, CachedFiles)
        files.note_index(segment.path, pieces)
        if isinstance(segment.file, CachedFile):
            segment.file.pieces = pieces
            return
        if self.tracks.pop(segment.base_offset, None) is None:
            return  # Retention dropped the segment meanwhile.
        local, cached = segment.file, files.segment_file(segment.path, pieces)
        cached.adopt_local()
        segment.file = cached
        local.close()

    # Retention

    def drop(self, count: int | None = None) -> int:
        """Drop segments as `PartitionLog.drop`."""
        return super().drop(count) if self._segments.view.segments else 0

    def _drop_old(self, now_us: int, offsets: tuple[int | None, int | None]) -> int:
        return super()._drop_old(now_us, offsets) if self._segments.view.segments else 0

    def _roll_expired(self, now_us: int) -> None:
        if self._segments.view.segments:
            super()._roll_expired(now_us)

    def delete_below(self, offset: int) -> int:
        """Delete as `PartitionLog.delete_below`, but in whole segments."""
        return self._drop_below(offset) if self._segments.view.segments else 0

    def _drop_below(self, start: int, log_start: int | None = None) -> int:
        """Drop whole segments below an offset; the next pack tells the ledger."""
        view = self._segments.view
        # Only published segments are dropped: the log must never end below an acknowledged offset.
        count = bisect_right(view.bases, min(start, self.durable_offset)) - 1
        if count <= 0:
            return 0
        self.log_start_offset = view.bases[count]
        self._segments.show(view.segments[count:])
        for segment in view.segments[:count]:
            self.tracks.pop(segment.base_offset, None)
            segment.remove()
        return count

    # Ending

    def alter(self, settings: LogSettings) -> None:
        """Apply settings as `PartitionLog.alter`. Raises UnwritableChange as `check_settings`."""
        check_settings(settings)
        super().alter(settings)

    def reserve_ahead(self) -> None:
        """Raise UnwritableChange: the shared store has no `written` mode."""
        check_settings(replace(self.settings, durability=Durability.WRITTEN))

    def close(self) -> None:
        """Close as `PartitionLog.close`; records that no round took never count."""
        self._link.backlog.begun(waiting := sum(self._waiting_bytes()))
        self._link.backlog.ended(waiting)
        self._growing = []
        super().close()

    def _waiting_bytes(self) -> Iterator[int]:
        return (track.segment.size - track.taken_pos for track in self._growing)

    def seal(self) -> None:
        """Refuse appends for a clean stop: everything is already published."""
        self.takes_appends = False
        self._sealed = True


def check_settings(settings: LogSettings) -> None:
    """Check the settings. Raises UnwritableChange for durability `written`, whose reservation is on
    a local disk, and for compaction, which writes local files.
    """
    if settings.compacts:
        raise UnwritableChange("compaction is not possible in the shared store")
    if settings.durability == Durability.WRITTEN:
        raise UnwritableChange("durability `written` is not possible in the shared store")


def open_shared_log(
    place: LogPlace, settings: LogSettings, found: PartitionPieces, link: ShardLink
) -> SharedLog:
    """Return the log of a partition as found in the shared store; no object is read."""
    identity, files = place.identity, place.files
    assert isinstance(files, CachedFiles)
    segments = []
    for pieces in found.segments:
        segment = Segment(
            files, identity.folder, pieces.base, KIND_PARTITION, identity.partition_id
        )
        segment.file = files.segment_file(segment.path, pieces)
        segment.size = pieces.size
        segment.newest_append_us = pieces.last_append_us
        segments.append(segment)
    recovered = Recovered(
        segments=segments,
        log_start_offset=found.log_start,
        log_end_offset=found.log_end,
        durable_offset=found.log_end,
        unsynced=[],
        below_start=[],
        takes_appends=True,
        report=RecoveryReport(identity.folder),
    )
    return SharedLog(place, settings, recovered, link)
