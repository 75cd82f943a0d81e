"""The export job: a Spark batch job that keeps its own positions. Runs beside a running or stopped
broker. `python -m braidlog.storage.export.export` runs `submit.py`.

Tasks decode ranges and write Parquet themselves; the driver only publishes and commits. A run first
publishes the prepared files of an earlier run that died. A run that only wrote its intent is
repeated, if the log still has the records.
"""

import importlib
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from braidlog.storage.export.commit import Commit, ExportFolder, FolderBroken, Intent, StagedFile
from braidlog.storage.export.compact import compact, show_hidden_files
from braidlog.storage.export.files import TableSettings
from braidlog.storage.export.network import report_run
from braidlog.storage.export.places import open_log, shown, tell_positions
from braidlog.storage.export.ranges import Bounds, ExportPlan, Range, is_kept, plan
from braidlog.storage.export.readers import ExportLog, PartitionState, topic_matches
from braidlog.storage.export.session import Report, Spark
from braidlog.storage.export.source.offsets import offset_at
from braidlog.storage.export.worker import DeadLetters, Job, OnCorrupt, TaskFailed, run_ranges
from braidlog.storage.metadata.names import TopicName

FAILURES_TOLD = 3
NAME_MAX, RANGES_REPORTED_MAX = 1000, 100  # Of a report: the broker's limits.
PLANS_MAX = 3  # In one call: topics may be deleted and renamed meanwhile, and retention goes on.


class ExportFailed(Exception):
    """The export stopped; earlier commits are untouched. One line for the operator."""


class PlanOutdated(ExportFailed):
    """Planned records are no longer in the log, or no longer under that name."""


class ExportTopicMissing(ExportFailed):
    """The data directory holds no partition of that topic."""


@dataclass(frozen=True, slots=True)
class ExportSource:
    """The topics to export and their log: topics by name, or all that `pattern` matches whole.

    `braidlog.storage.export.places.open_log` opens `place`.
    """

    place: str
    topics: tuple[TopicName, ...] = ()
    pattern: str | None = None

    def wanted(self, log: ExportLog) -> list[PartitionState]:
        """Return the partitions of these topics. Raises ExportTopicMissing, OSError."""
        if self.pattern is not None:
            return log.partitions(partial(matches, self.pattern))
        names = {topic.full for topic in self.topics}
        states = log.partitions(names.__contains__)
        if missing := names - {state.topic for state in states}:
            raise ExportTopicMissing(
                f"{shown(self.place)} holds no topic {', '.join(sorted(missing))}"
            )
        return states


@dataclass(frozen=True, slots=True)
class Progress:
    """The group name for commits of the export's progress to a broker."""

    url: str
    group: str


@dataclass(frozen=True, slots=True)
class ExportJob:
    """An export: source, target and settings. `start` applies to partitions never exported.

    `until_us`: a run ends in each partition before the first record with that timestamp or a later
    timestamp, in microseconds.
    """

    source: ExportSource
    target: Path
    on_corrupt: OnCorrupt = "fail"
    fail_on_loss: bool = True
    start: Literal["earliest", "latest"] = "earliest"
    until_us: int | None = None
    bounds: Bounds = field(default_factory=Bounds)
    table: TableSettings = field(default_factory=TableSettings)
    progress: Progress | None = None
    compact: bool = False


@dataclass(slots=True)
class Summary:
    """Result of a call: exported records and the position of each partition id.

    `untold` is the reason for a failed commit of positions to a broker, or for a failed report of
    the run; the export itself succeeded.
    """

    rows: int = 0
    files: int = 0
    bytes: int = 0
    dead_letters: int = 0
    lost: int = 0
    runs: list[int] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    ranges: list[Range] = field(default_factory=list)
    replaced: int = 0
    untold: str | None = None

    def add(self, commit: Commit) -> None:
        """Add a run."""
        self.rows += sum(file.rows for file in commit.files)
        self.files += len(commit.files)
        self.bytes += sum(file.bytes for file in commit.files)
        self.dead_letters += commit.dead_letters
        self.lost += sum(gap.end - gap.start for gap in commit.gaps)
        self.runs.append(commit.run)
        for file in commit.files:
            self.topics[file.topic] = self.topics.get(file.topic, 0) + file.rows
        self.positions = commit.positions
        self.ranges += commit.ranges


def run_export(job: ExportJob, spark: Spark, report: Report | None = None) -> Summary:
    """Export all new records, up to the watermarks and within the bounds of a run.

    Raises:
        ExportFailed; storage.export.ranges.RecordsLost, storage.export.ranges.LogTooShort,
        storage.export.commit.FolderBusy, storage.export.jvm.NoJava; OSError if the log or the
        folder cannot be reached.
    """
    run = _ExportRun(spark, open_log(job.source.place), report)
    partitions: Sequence[PartitionState] = job.source.wanted(run.log)
    folder = ExportFolder(job.target.absolute())
    summary = Summary()
    began_us, began = time.time_ns() // 1000, time.monotonic()
    with folder.locked():
        try:
            partitions = _export(job, folder, partitions, summary, run)
            show_hidden_files(folder)
        except FolderBroken as error:
            raise ExportFailed(str(error)) from error
        if job.compact:
            _compact(job, folder, summary)
        last = folder.last_commit()
    summary.positions = last.positions if last else {}
    if job.progress is not None:
        summary.untold = _tell(job.progress, partitions, summary.positions)
    if job.progress is not None and summary.runs and summary.untold is None:
        seconds = time.monotonic() - began
        summary.untold = _report(job.progress, folder, summary, began_us, seconds)
    return summary


def _compact(job: ExportJob, folder: ExportFolder, summary: Summary) -> None:
    merged = compact(folder, job.table.compression)
    if merged is not None:
        summary.replaced = len(merged.replaced)


def _tell(
    progress: Progress, partitions: Sequence[PartitionState], positions: dict[int, int]
) -> str | None:
    """Commit the export's progress to the broker; return the reason if that fails."""
    answer = {
        (state.topic, state.index): positions[state.partition_id]
        for state in partitions
        if state.partition_id in positions
    }
    try:
        tell_positions(progress.url, progress.group, answer)
    except OSError as error:
        return str(error)
    return None


def _report(
    progress: Progress, folder: ExportFolder, summary: Summary, began_us: int, seconds: float
) -> str | None:
    """Report the run to the broker; return the reason if that fails."""
    run = {
        "target": str(folder.root)[:NAME_MAX],
        "group": progress.group[:NAME_MAX],
        "began_us": began_us,
        "seconds": round(seconds, 3),
        "rows": summary.rows,
        "files": summary.files,
        "bytes": summary.bytes,
        "dead_letters": summary.dead_letters,
        "lost": summary.lost,
        "ranges": [
            {"topic": part.topic, "partition": part.index, "start": part.start, "end": part.end}
            for part in summary.ranges[:RANGES_REPORTED_MAX]
        ],
    }
    try:
        report_run(progress.url, run)
    except OSError as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class _ExportRun:
    spark: Spark
    log: ExportLog
    report: Report | None


def _export(
    job: ExportJob,
    folder: ExportFolder,
    partitions: Sequence[PartitionState],
    summary: Summary,
    run: _ExportRun,
) -> Sequence[PartitionState]:
    """Export once; plan again if the log has changed. Return the planned partitions."""
    for _ in range(PLANS_MAX - 1):
        try:
            _export_once(job, folder, partitions, summary, run)
            return partitions
        except PlanOutdated:
            partitions = job.source.wanted(run.log)
    _export_once(job, folder, partitions, summary, run)
    return partitions


def _export_once(
    job: ExportJob,
    folder: ExportFolder,
    partitions: Sequence[PartitionState],
    summary: Summary,
    run: _ExportRun,
) -> None:
    """Finish an earlier run, then export the new records. Raises PlanOutdated."""
    prepared = folder.finish_prepared()
    if prepared is not None:
        summary.add(prepared)
    number = folder.next_run()
    left = folder.open_intent(number)
    if left is not None:
        if _is_kept(left, run.log):
            summary.add(_run(job, folder, left, run))
            number += 1
        else:
            folder.drop_intent(number)
    last = folder.last_commit()
    export_plan = _planned(job, partitions, last.positions if last else {}, run.log)
    if export_plan.ranges or export_plan.gaps:
        intent = Intent(number, export_plan.ranges, export_plan.gaps)
        folder.write_intent(intent)
        summary.add(_run(job, folder, intent, run))


def _planned(
    job: ExportJob, partitions: Sequence[PartitionState], positions: dict[int, int], log: ExportLog
) -> ExportPlan:
    ends = {}
    if job.until_us is not None:
        bounded = ((state, offset_at(log, state, job.until_us)) for state in partitions)
        ends = {state.partition_id: end for state, end in bounded if end is not None}
    return plan(
        partitions,
        positions,
        fail_on_loss=job.fail_on_loss,
        bounds=job.bounds,
        cores=os.cpu_count() or 1,
        from_latest=job.start == "latest",
        ends=ends,
    )


def _run(job: ExportJob, folder: ExportFolder, intent: Intent, run: _ExportRun) -> Commit:
    task = Job(str(folder.root), job.source.place, intent.run, job.on_corrupt, job.table)
    parts = [part for part in intent.ranges if part.end > part.start]
    total = sum(part.end - part.start for part in parts)
    outcomes = []
    if parts:
        outcomes = run.spark.map(partial(run_ranges, task), parts, total, run.report)
    failures = [outcome for outcome in outcomes if isinstance(outcome, TaskFailed)]
    if failures:
        reasons = "; ".join(failure.text for failure in failures[:FAILURES_TOLD])
        if _is_kept(intent, run.log):
            raise ExportFailed(reasons)
        folder.drop_intent(intent.run)
        raise PlanOutdated(reasons)
    files = [outcome for outcome in outcomes if isinstance(outcome, StagedFile)]
    dead = [outcome for outcome in outcomes if isinstance(outcome, DeadLetters)]
    last = folder.last_commit()
    positions = dict(last.positions) if last else {}
    for part in intent.ranges + intent.gaps:
        positions[part.partition_id] = max(positions.get(part.partition_id, 0), part.end)
    commit = Commit(
        intent.run,
        positions,
        files,
        sum(letters.count for letters in dead),
        intent.ranges,
        intent.gaps,
        dead_files=[letters.file for letters in dead],
    )
    folder.commit(commit)
    return commit


def _is_kept(intent: Intent, log: ExportLog) -> bool:
    """Return True if the log still has all records of an intent, under the same names."""
    partitions = log.partitions({part.topic for part in intent.ranges}.__contains__)
    return all(is_kept(part, partitions) for part in intent.ranges)


def matches(pattern: str, topic: str) -> bool:
    """Return True if a pattern matches a whole name: the full name, or the short name in
    public/default.

    Raises ExportFailed for an invalid regular expression.
    """
    try:
        return topic_matches(pattern, topic)
    except re.error as error:
        raise ExportFailed(f"{pattern!r} is no regular expression: {error}") from None


if __name__ == "__main__":  # Imported by name, because that module imports this module.
    sys.exit(importlib.import_module("braidlog.storage.export.submit").main())
