"""Plans of a run: ranges of offsets, split into tasks. Pure; knows no Spark and no Parquet."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import TypeVar

from braidlog.storage.export.readers import PartitionState

KeyT = TypeVar("KeyT", bound=Hashable)

TASK_BYTES = 96 << 20  # Log bytes: between the 64 and 128 MB at which a task outweighs its start.
TASK_BYTES_MIN = 8 << 20  # Below this, more files cost more than idle cores.


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition: the work of one task."""

    partition_id: int
    index: int
    start: int
    end: int
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a run, None for no limit; shared in proportion to the backlogs.

    Below `bytes_min` of log there is no run, because a run would make small files.
    """

    rows_max: int | None = None
    bytes_max: int | None = None
    bytes_min: int = 0


@dataclass(slots=True)
class ExportPlan:
    """The tasks of a run, and the records that retention dropped before export."""

    ranges: list[Range] = field(default_factory=list)
    gaps: list[Range] = field(default_factory=list)


class RecordsLost(Exception):
    """Records were dropped from the log before they were exported."""

    def __init__(self, topic: str, index: int, wanted: int, log_start_offset: int) -> None:
        super().__init__(
            f"{topic} partition {index}: offsets {wanted} to {log_start_offset - 1} were dropped "
            "from the log before they were exported; --lost skip goes on behind them"
        )


class LogTooShort(Exception):
    """The log ends before the exported position: a different log, or an older state of this log."""

    def __init__(self, topic: str, index: int, position: int, watermark: int) -> None:
        super().__init__(
            f"{topic} partition {index} (log ends at {watermark}) was exported up to {position}: "
            "this is an older state of the log, or another data directory, which needs another "
            "folder for its export; after a power cut, start the broker first"
        )


def plan(
    partitions: Sequence[PartitionState],
    positions: Mapping[int, int],
    *,
    fail_on_loss: bool = True,
    bounds: Bounds = Bounds(),
    cores: int = 1,
    from_latest: bool = False,
    ends: Mapping[int, int] = MappingProxyType({}),
) -> ExportPlan:
    """Plan tasks from the exported positions (partition id to next offset) up to the watermarks.

    A partition that was never exported starts at its log start, or at its watermark with
    `from_latest`. `ends` (partition id to offset) end the run of a partition before its watermark.
    There are tasks for all `cores` if the backlog is large enough.

    Raises:
        RecordsLost: a position lies below the log start, unless `fail_on_loss` is False.
        LogTooShort: a position lies above the watermark. Waiting for the log to reach the position
            would leave out the records written meanwhile.
    """
    export_plan = ExportPlan()
    backlogs: list[tuple[PartitionState, int, int]] = []  # with the start and the end
    for state in partitions:
        end = min(ends.get(state.partition_id, state.watermark), state.watermark)
        first = end if from_latest else state.log_start_offset
        start = positions.get(state.partition_id, first)
        if start > state.watermark:
            raise LogTooShort(state.topic, state.index, start, state.watermark)
        if start < state.log_start_offset:
            if fail_on_loss:
                raise RecordsLost(state.topic, state.index, start, state.log_start_offset)
            gap = Range(state.partition_id, state.index, start, state.log_start_offset, state.topic)
            export_plan.gaps.append(gap)
            start = state.log_start_offset
        if start < end or (from_latest and state.partition_id not in positions):
            backlogs.append((state, start, end))
    backlog = sum(bytes_of(state, end - start) for state, start, end in backlogs)
    if backlog < bounds.bytes_min:  # An empty range, which fixes a beginning, makes no file.
        backlogs = [(state, start, end) for state, start, end in backlogs if start == end]
    counts = _shares([(state, end - start) for state, start, end in backlogs], bounds)
    size = sum(bytes_of(state, count) for (state, *_), count in zip(backlogs, counts, strict=True))
    task_bytes = min(TASK_BYTES, max(TASK_BYTES_MIN, size // max(1, cores)))
    for (state, start, _), count in zip(backlogs, counts, strict=True):
        export_plan.ranges += _split(state, start, count, task_bytes)
    return export_plan


def shares(wanted: Mapping[KeyT, int], limit: int) -> dict[KeyT, int]:
    """Return the share of each backlog in a run or micro-batch.

    Each share is at least 1 if the limit allows, so that no backlog waits for ever beside a large
    backlog. The rest is shared in proportion. Rounding remainders go to the largest backlog.
    """
    total = sum(wanted.values())
    if total <= limit:
        return dict(wanted)
    waiting = sum(map(bool, wanted.values()))
    least = int(limit >= waiting)
    room, rest = limit - least * waiting, total - least * waiting
    result = {
        name: least + (count - least) * room // rest if count else 0
        for name, count in wanted.items()
    }
    left = limit - sum(result.values())
    for name in sorted(wanted, key=lambda name: result[name] - wanted[name])[:left]:
        result[name] += 1
    return result


def is_kept(part: Range, partitions: Sequence[PartitionState]) -> bool:
    """Return True if the log still has the whole range."""
    return any(
        state.partition_id == part.partition_id
        and state.log_start_offset <= part.start
        and part.end <= state.watermark
        for state in partitions
    )


def _shares(backlogs: Sequence[tuple[PartitionState, int]], bounds: Bounds) -> list[int]:
    """Return the number of offsets of each backlog, given with its whole number, within the bounds;
    at least 1 in all, if any.
    """
    wanted = [count for _, count in backlogs]
    total = sum(wanted)
    fraction = 1.0
    if bounds.rows_max is not None and total:
        fraction = min(fraction, bounds.rows_max / total)
    if bounds.bytes_max is not None and total:
        size = sum(bytes_of(state, count) for state, count in backlogs)
        fraction = min(fraction, bounds.bytes_max / max(1, size))
    if fraction >= 1:
        return wanted
    return list(shares(dict(enumerate(wanted)), max(1, int(total * fraction))).values())


def bytes_of(state: PartitionState, count: int) -> int:
    """Estimate bytes by the average record size of this partition."""
    records_held = max(1, state.watermark - state.log_start_offset)
    return state.size_bytes * count // records_held


def _split(state: PartitionState, start: int, wanted: int, task_bytes: int) -> list[Range]:
    """Split into even pieces of about `task_bytes`; an empty range fixes the beginning of an
    export.
    """
    pieces = max(1, min(wanted, -(-bytes_of(state, wanted) // task_bytes)))
    cuts = [start + wanted * i // pieces for i in range(pieces + 1)]
    return [
        Range(state.partition_id, state.index, first, end, state.topic)
        for first, end in pairwise(cuts)
        if end > first or not wanted
    ]
