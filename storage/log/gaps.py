"""Batches without records, which cover offsets that no record will ever have."""

from braidlog.storage.formats.api import BatchFlag, BodyFormat, BodyInfo
from braidlog.storage.formats.batch import BATCH_OFFSETS_MAX
from braidlog.storage.log.log import Log


def append_gap(log: Log, end_offset: int, append_us: int) -> None:
    """Cover the offsets from the log end up to `end_offset` with empty batches.

    Raises: as `Log.append`.
    """
    while log.log_end_offset < end_offset:
        covered = min(end_offset - log.log_end_offset, BATCH_OFFSETS_MAX)
        log.append(
            (),
            BodyInfo(record_count=0, flags=BatchFlag.GAP),
            body_format=BodyFormat.GAP,
            append_us=append_us,
            last_offset_delta=covered - 1,
        )
