"""Opening and making a partition's log in its folder. Knows files, not the data directory."""

from collections.abc import Callable
from dataclasses import dataclass
from time import time_ns

from braidlog.storage.errors import StorageFull
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.disk_rounds import DiskRounds
from braidlog.storage.log.files import Files
from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.log.log_place import LogPlace
from braidlog.storage.log.plain_end import plain_end
from braidlog.storage.log.recovery import LogIdentity, Recovered, RecoveryReport, recover
from braidlog.storage.log.reservation import OffsetReservation
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import KIND_PARTITION, SegmentHeader, new_salt
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.log.watermark import RESERVED_NAME, WATERMARK_MAGIC, WATERMARK_NAME, SlotFile


def open_log(
    files: Files,
    folder: str,
    partition_id: int,
    settings: LogSettings,
    committer: Committer,
    on_rolled: Callable[[int, int], None] | None = None,
) -> LocalLog:
    """Recover and open a partition's log; its `recovery` holds the findings.

    Records that recovery kept above the watermark slot become visible once the next round has
    synced them. Raises: StorageFull, StorageFailed.
    """
    names = files.names(folder)
    slot_path = f"{folder}/{WATERMARK_NAME}"
    slot = SlotFile(files, slot_path, WATERMARK_MAGIC, KIND_PARTITION, partition_id)
    identity = LogIdentity(folder, KIND_PARTITION, partition_id)
    look = (files, identity, slot.mark, settings.index_interval_bytes, names)
    recovered = plain_end(*look)
    if recovered is None:
        files.adopt(folder)
        recovered = recover(*look)
    is_reserved = RESERVED_NAME in names
    reservation = OffsetReservation(files, folder, partition_id, may_exist=is_reserved)
    place = LogPlace(files, identity, committer, on_rolled)
    return _begun(place, settings, recovered, slot, reservation)


@dataclass(slots=True, frozen=True)
class NewLog:
    """The files of a new, empty log: durable before `open_new_log`, or closed and removed."""

    identity: LogIdentity
    segment: Segment
    slot: SlotFile

    def close(self) -> None:
        """Close the files of a log that is not wanted after all."""
        self.segment.close()
        self.slot.close()


def make_log(files: Files, folder: str, partition_id: int) -> NewLog:
    """Put the first, empty segment and the watermark into a new partition's folder; nothing is
    synced.

    Raises: StorageFull, StorageFailed.
    """
    header = SegmentHeader(KIND_PARTITION, new_salt(), partition_id, 0)
    segment = Segment.create(files, folder, header)
    segment.set_extent(segment.size, time_ns() // 1000)  # Until an append: the time of its making.
    path = f"{folder}/{WATERMARK_NAME}"
    slot = SlotFile(files, path, WATERMARK_MAGIC, KIND_PARTITION, partition_id, may_exist=False)
    new = NewLog(LogIdentity(folder, KIND_PARTITION, partition_id), segment, slot)
    try:
        slot.write(0, 0)
    except StorageFull:
        new.close()
        raise
    return new


def open_new_log(
    files: Files,
    new: NewLog,
    settings: LogSettings,
    committer: Committer,
    on_rolled: Callable[[int, int], None] | None = None,
) -> LocalLog:
    """Open a log as `make_log` made the log: no file is read again. Raises: StorageFull,
    StorageFailed.
    """
    folder, partition_id = new.identity.folder, new.identity.partition_id
    recovered = Recovered(
        segments=[new.segment],
        log_start_offset=0,
        log_end_offset=0,
        durable_offset=0,
        unsynced=[],
        below_start=[],
        takes_appends=True,
        report=RecoveryReport(folder),
    )
    place = LogPlace(files, new.identity, committer, on_rolled)
    reservation = OffsetReservation(files, folder, partition_id, may_exist=False)
    return _begun(place, settings, recovered, new.slot, reservation)


def _begun(
    place: LogPlace,
    settings: LogSettings,
    recovered: Recovered,
    slot: SlotFile,
    reservation: OffsetReservation,
) -> LocalLog:
    rounds = DiskRounds(place.identity.folder, slot)
    log = LocalLog(place, settings, recovered, rounds, reservation)
    log.begin(recovered)
    return log
