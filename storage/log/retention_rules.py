"""Retention as a pure function: the old segments to drop. Knows sizes, ages and
offsets, no file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from braidlog.storage.log.settings import LogSettings


@dataclass(slots=True, frozen=True)
class SegmentFacts:
    """The facts about a segment that the decision needs; lists begin with the oldest segment.

    `is_dated`: the age comes from the batches in the segment, not only from the file.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    newest_append_us: int
    is_dated: bool = True


def drops_anything(settings: LogSettings) -> bool:
    """Return True if a log with these settings ever drops a segment."""
    limits = (settings.retention_bytes, settings.retention_ms)
    return settings.deletes and (settings.delete_acknowledged or limits != (None, None))


def asks_for_positions(settings: LogSettings) -> bool:
    """Return True if the decision depends on the positions of subscriptions."""
    return settings.keep_unacknowledged or settings.delete_acknowledged


def longest_age_us(settings: LogSettings) -> int:
    """Return the greatest age that the decision depends on; 0 if the decision ignores ages."""
    return max(settings.retention_ms or 0, settings.retention_hold_ms or 0) * 1000


def new_log_start(
    segments: Sequence[SegmentFacts],
    settings: LogSettings,
    now_us: int,
    acknowledged_offset: int | None = None,
    held_offset: int | None = None,
) -> int:
    """Return the base offset of the first segment to keep. The last segment is always kept.

    `acknowledged_offset` is the lowest position of all subscriptions. None means no subscriptions:
    then `keep_unacknowledged` holds nothing back and `delete_acknowledged` drops nothing.
    `held_offset` is the position of the subscription that `retention_hold` names, None without such
    a subscription.
    """
    if not settings.deletes:
        return segments[0].base_offset
    bytes_left = sum(segment.size_bytes for segment in segments)
    for segment in segments[:-1]:
        bytes_kept, bytes_left = bytes_left, bytes_left - segment.size_bytes
        if is_held(segment, settings, now_us, bytes_kept, held_offset):
            return segment.base_offset
        acknowledged = (
            acknowledged_offset is not None and segment.next_offset <= acknowledged_offset
        )
        if settings.delete_acknowledged and acknowledged:
            continue
        held = settings.keep_unacknowledged and acknowledged_offset is not None and not acknowledged
        if held or not is_over(segment, settings, now_us, bytes_left):
            return segment.base_offset
    return segments[-1].base_offset


def is_held(
    segment: SegmentFacts,
    settings: LogSettings,
    now_us: int,
    bytes_kept: int,
    held_offset: int | None,
) -> bool:
    """Return True if `retention_hold` keeps a segment; `bytes_kept`: bytes from the segment on."""
    if held_offset is None or segment.next_offset <= held_offset:
        return False
    bytes_max, age_max_ms = settings.retention_hold_bytes, settings.retention_hold_ms
    if bytes_max is not None and bytes_kept > bytes_max:
        return False
    return age_max_ms is None or now_us - segment.newest_append_us <= age_max_ms * 1000


def is_over(segment: SegmentFacts, settings: LogSettings, now_us: int, bytes_left: int) -> bool:
    """Return True if the limits drop a segment: the log is large enough without this segment, or
    the segment is too old.
    """
    size_over = settings.retention_bytes is not None and bytes_left >= settings.retention_bytes
    return size_over or is_too_old(segment.newest_append_us, settings, now_us)


def is_too_old(newest_append_us: int, settings: LogSettings, now_us: int) -> bool:
    """Return True if the newest record is older than the limit."""
    limit_ms = settings.retention_ms if settings.deletes else None
    return limit_ms is not None and now_us - newest_append_us > limit_ms * 1000
