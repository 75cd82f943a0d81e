"""What a run exports: ranges of offsets, split into tasks. Pure; knows no Spark and no Parquet."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

TASK_BYTES = 96 << 20  # Of log: between the 64 and 128 MB at which a task outweighs its start.


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as the run found it; `size_bytes` is that of its log."""

    partition_id: int
    index: int
    folder: str
    log_start_offset: int
    watermark: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition: the work of one task."""

    partition_id: int
    index: int
    folder: str
    start: int
    end: int


class RecordsLost(Exception):
    """Records were dropped from the log before they were exported."""

    def __init__(self, index: int, wanted: int, log_start_offset: int) -> None:
        super().__init__(
            f"partition {index}: offsets {wanted} to {log_start_offset - 1} were dropped from the "
            "log before they were exported"
        )


def plan(
    partitions: list[PartitionState], positions: Mapping[int, int], *, fail_on_loss: bool = True
) -> list[Range]:
    """Tasks from the exported positions (partition id to next offset) up to the watermarks.

    A partition that was never exported starts at its log start.

    Raises:
        RecordsLost: a position lies below the log start, unless `fail_on_loss` is False.
    """
    tasks: list[Range] = []
    for state in partitions:
        start = positions.get(state.partition_id, state.log_start_offset)
        if start < state.log_start_offset:
            if fail_on_loss:
                raise RecordsLost(state.index, start, state.log_start_offset)
            start = state.log_start_offset
        tasks += _split(state, start)
    return tasks


def _split(state: PartitionState, start: int) -> list[Range]:
    """Even pieces of about TASK_BYTES, on the average size of a record of this partition."""
    wanted = state.watermark - start
    if wanted <= 0:
        return []
    kept = max(1, state.watermark - state.log_start_offset)
    pieces = max(1, min(wanted, -(-state.size_bytes * wanted // (kept * TASK_BYTES))))
    cuts = [start + wanted * i // pieces for i in range(pieces + 1)]
    return [
        Range(state.partition_id, state.index, state.folder, first, end)
        for first, end in pairwise(cuts)
    ]
