"""The work of a task, inside a Spark Python worker: read a range, decode, write Parquet.

The worker writes the files itself: rows never cross into the JVM. Every failure is returned as a
value, since Spark would wrap an exception into pages of trace and retry the task.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from braidlog.storage.errors import StorageError, UnreadableBody, reason_of
from braidlog.storage.export.commit import ExportFolder, StagedFile
from braidlog.storage.export.files import DeadFile, TableSettings, TaskFiles
from braidlog.storage.export.places import open_log
from braidlog.storage.export.process import tune_process
from braidlog.storage.export.ranges import Range
from braidlog.storage.export.readers import ExportPartition, check_holds
from braidlog.storage.export.rows import BadBody, RangeRows
from braidlog.storage.formats.columns.records import ColumnTarget
from braidlog.storage.formats.columns.schema import FILE_SCHEMA


class TaskFailed(msgspec.Struct, frozen=True):
    """The reason for a failed range, for the operator."""

    text: str


class DeadLetters(msgspec.Struct, frozen=True):
    """Records set aside: their number and file."""

    count: int
    file: StagedFile


OnCorrupt = Literal["fail", "deadletter"]
Outcome = StagedFile | DeadLetters | TaskFailed


class Job(msgspec.Struct, frozen=True):
    """Settings of every task of a run."""

    root: str
    place: str
    run: int
    on_corrupt: OnCorrupt = "fail"
    table: TableSettings = TableSettings()


def write_range(
    job: Job, part: Range, progress: Callable[[int], None] = lambda _: None
) -> list[Outcome]:
    """Export a range into staged files, a file for each date of its records.

    `progress` is called with the number of rows of each written piece.
    """
    if part.start == part.end:
        return []
    try:
        with open_log(job.place).open(part.topic, part.index, part.partition_id) as log:
            check_holds(log, part.end)
            return _write(job, part, log, progress)
    except (StorageError, OSError) as error:
        return [TaskFailed(f"{part.topic} partition {part.index}: {reason_of(error)}")]


def _write(
    job: Job, part: Range, log: ExportPartition, progress: Callable[[int], None]
) -> list[Outcome]:
    staging = ExportFolder(Path(job.root)).staging(job.run)
    files = TaskFiles(staging, part, job.table, FILE_SCHEMA)
    dead = DeadFile(staging, part, job.run)

    def set_aside(bad: BadBody) -> None:
        if bad.is_damage and job.on_corrupt == "fail":
            raise UnreadableBody(f"offset {bad.offset} cannot be opened: {bad.reason}")
        dead.add(bad)

    try:
        target = ColumnTarget(part.partition_id, part.index)
        for batch in RangeRows(log, part.start, part.end, target, set_aside):
            files.add(batch)
            progress(batch.num_rows)
        done: list[Outcome] = list(files.finish())
        letters = dead.finish()
        if letters is not None:
            done.append(DeadLetters(dead.count, letters))
        return done
    finally:
        files.close()
        dead.close()


def run_ranges(
    job: Job, progress: Callable[[int], None], parts: Iterable[Range]
) -> Iterator[Outcome]:
    """Call `write_range` for each range of a task."""
    tune_process()
    for part in parts:
        yield from write_range(job, part, progress)
