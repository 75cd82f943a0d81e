"""A partition's log in the shared store: records count once their round is published.

Holds a local log, whose segment files are a cache. Segments of earlier owners are in objects and
only read; the first append begins a segment of our own. Decides what the local log may not: appends
while too much is unpublished, and settings that need a local disk.
"""

from collections.abc import Sequence
from dataclasses import replace

from braidlog.storage.errors import StorageFull, UnwritableChange
from braidlog.storage.formats.api import BodyInfo, WriteAtOnce, WrittenBatch
from braidlog.storage.formats.batch import Buffer
from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.log.log_place import LogPlace
from braidlog.storage.log.recovery import Recovered, RecoveryReport
from braidlog.storage.log.reservation import OffsetReservation
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import KIND_PARTITION
from braidlog.storage.log.settings import Durability, LogSettings
from braidlog.storage.shared.cached_file import CachedFiles
from braidlog.storage.shared.pieces import PartitionPieces, SegmentPieces
from braidlog.storage.shared.shard_rounds import ShardLink, ShardRounds


class SharedLog:
    """The `Log` of a partition that this session owns. `open_shared_log` makes instances.

    Implements `Extent`.
    """

    __slots__ = (
        "_link",
        "_rounds",
        "batch_before",
        "bytes_between",
        "close",
        "compacted",
        "delete_below",
        "drop",
        "folder",
        "keep_reservation",
        "local",
        "offset_at_or_after",
        "packed",
        "partition_id",
        "places_from",
        "read",
        "read_compacted",
        "read_in_place",
        "recovery",
        "remember_within",
        "retain",
        "seal",
        "segments",
        "slices_to_pack",
        "tracks",
        "undated",
        "uploaded",
    )

    def __init__(self, local: LocalLog, rounds: ShardRounds, link: ShardLink) -> None:
        self.local = local
        self._rounds = rounds
        self._link = link
        self.partition_id, self.folder = local.partition_id, local.folder
        self.recovery, self.compacted = local.recovery, local.compacted
        self.segments = local.segments
        self.read, self.read_compacted = local.read, local.read_compacted
        self.read_in_place, self.remember_within = local.read_in_place, local.remember_within
        self.batch_before, self.bytes_between = local.batch_before, local.bytes_between
        self.offset_at_or_after, self.places_from = local.offset_at_or_after, local.places_from
        self.retain, self.undated, self.drop = local.retain, local.undated, local.drop
        self.delete_below = local.drop_below  # In whole segments: an object has a whole segment.
        self.keep_reservation = local.keep_reservation
        self.seal = local.refuse_appends  # Everything is already published.
        self.close = local.close
        self.tracks, self.slices_to_pack = rounds.tracks, rounds.slices_to_pack
        self.packed, self.uploaded = rounds.packed, rounds.uploaded

    # Extent

    @property
    def shard(self) -> int:
        """The shard of the partition."""
        return self._link.shard

    @property
    def settings(self) -> LogSettings:
        return self.local.settings

    @property
    def takes_appends(self) -> bool:
        return self.local.takes_appends

    @property
    def log_start_offset(self) -> int:
        return self.local.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.local.log_end_offset

    @property
    def durable_offset(self) -> int:
        return self.local.durable_offset

    @property
    def high_watermark(self) -> int:
        return self.local.high_watermark

    @property
    def is_closed(self) -> bool:
        return self.local.is_closed

    @property
    def was_used(self) -> bool:
        """True if anything was written since this start."""
        return self.local.was_used

    @property
    def size_bytes(self) -> int:
        """Bytes of all segment files."""
        return self.local.size_bytes

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
        """Store a batch as `Log.append`."""
        self._check_backlog()
        base_offset = self.local.append(
            body,
            info,
            body_format=body_format,
            body_version=body_version,
            append_us=append_us,
            last_offset_delta=last_offset_delta,
            positions=positions,
        )
        self._rounds.count_append()
        return base_offset

    def append_at_once(self, body: memoryview, once: WriteAtOnce) -> WrittenBatch | None:
        """Store a batch as `Log.append_at_once`."""
        self._check_backlog()
        written = self.local.append_at_once(body, once)
        if written is not None:
            self._rounds.count_append()
        return written

    def append_all(
        self, pieces: Sequence[tuple[Buffer, BodyInfo]], *, body_format: int, append_us: int
    ) -> int:
        """Store batches as `Log.append_all`."""
        self._check_backlog()
        base_offset = self.local.append_all(pieces, body_format=body_format, append_us=append_us)
        self._rounds.count_append()
        return base_offset

    def _check_backlog(self) -> None:
        if self._link.backlog.is_full:
            raise StorageFull("the shared store does not keep up: too much is not published yet")

    # Packs and uploads. Owner's thread.

    def segments_to_upload(self) -> list[tuple[Segment, int]]:
        """Return segments as `ShardRounds.segments_to_upload`."""
        segments = self.local.segment_set.view.segments
        return self._rounds.segments_to_upload(segments, self.local.log_end_offset)

    def repacked(self, base: int, pieces: SegmentPieces) -> None:
        """Note that a segment of an earlier owner is now in other objects."""
        self._rounds.repacked(self.local.segment_set.view.segments, base, pieces)

    # Settings

    def alter(self, settings: LogSettings) -> None:
        """Apply settings as `Log.alter`. Raises UnwritableChange as `check_settings`."""
        check_settings(settings)
        self.local.alter(settings)

    def reserve_ahead(self) -> None:
        """Raise UnwritableChange: the shared store has no `written` mode."""
        check_settings(replace(self.settings, durability=Durability.WRITTEN))


def check_settings(settings: LogSettings) -> None:
    """Check the settings. Raises UnwritableChange for durability `written`, whose reservation is on
    a local disk, and for compaction, which writes local files.
    """
    if settings.compacts:
        raise UnwritableChange("compaction is not possible in the shared store")
    if settings.durability == Durability.WRITTEN:
        raise UnwritableChange("durability `written` is not possible in the shared store")


def open_shared_log(
    place: LogPlace, settings: LogSettings, log_pieces: PartitionPieces, link: ShardLink
) -> SharedLog:
    """Return the log of a partition as found in the shared store; no object is read."""
    check_settings(settings)
    identity, files = place.identity, place.files
    assert isinstance(files, CachedFiles)
    segments = []
    for pieces in log_pieces.segments:
        segment = Segment(
            files, identity.folder, pieces.base, KIND_PARTITION, identity.partition_id
        )
        segment.use_file(files.segment_file(segment.path, pieces))
        segment.set_extent(pieces.size, pieces.last_append_us)
        segments.append(segment)
    recovered = Recovered(
        segments=segments,
        log_start_offset=log_pieces.log_start,
        log_end_offset=log_pieces.log_end,
        durable_offset=log_pieces.log_end,
        unsynced=[],
        below_start=[],
        takes_appends=True,
        report=RecoveryReport(identity.folder),
    )
    rounds = ShardRounds(files, identity, link)
    number, folder = identity.partition_id, identity.folder
    reservation = OffsetReservation(files, folder, number, may_exist=False)
    return SharedLog(LocalLog(place, settings, recovered, rounds, reservation), rounds, link)
