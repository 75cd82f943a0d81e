"""Opening and making a partition's log in its folder. Knows files, not the data directory."""

from collections.abc import Callable

from braidlog.storage.log.committer import Committer
from braidlog.storage.log.disk_rounds import DiskRounds
from braidlog.storage.log.files import Files
from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.log.log_place import LogPlace
from braidlog.storage.log.plain_end import plain_end
from braidlog.storage.log.recovery import LogIdentity, recover
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
    log = LocalLog(place, settings, recovered, DiskRounds(folder, slot), reservation)
    log.begin(recovered)
    return log


def begin_log(files: Files, folder: str, partition_id: int) -> None:
    """Put the first, empty segment into a new partition's folder; nothing is synced.

    Raises: StorageFull, StorageFailed.
    """
    header = SegmentHeader(KIND_PARTITION, new_salt(), partition_id, 0)
    Segment.create(files, folder, header).close()
