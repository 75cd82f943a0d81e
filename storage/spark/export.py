"""The export job: a Spark batch job that keeps its own positions. Runs beside a running or stopped
broker.

Tasks decode ranges and write Parquet themselves; the driver only publishes and commits. A run that
died is taken up by the next one as its intent stands, before anything new is planned.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.log.reader import ReadOnlyLog, list_partitions
from storage.metadata.names import TopicName
from storage.spark import jvm
from storage.spark.commit import Commit, ExportFolder, Intent, StagedFile
from storage.spark.ranges import PartitionState, Range, plan
from storage.spark.worker import DeadLetters, Job, OnCorrupt, TaskFailed, run_ranges

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PROGRESS_INTERVAL_S = 0.25

LOG_SETTINGS = Path(__file__).resolve().parent / "log4j2.properties"

SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.task.maxFailures": "1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{LOG_SETTINGS}",
}

# (tasks done, tasks in all)
Progress = Callable[[int, int], None]


class ExportFailed(Exception):
    """The export stopped; what was committed before is untouched. One line for the operator."""


class NoSuchTopic(ExportFailed):
    """The data directory holds no partition of that topic."""


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What to export, where to, and how."""

    topic: TopicName
    data_dir: Path
    target: Path
    java: str = jvm.AUTO
    on_corrupt: OnCorrupt = "fail"
    fail_on_loss: bool = True


@dataclass(frozen=True, slots=True)
class Summary:
    """What one call exported."""

    rows: int
    files: int
    bytes: int
    dead_letters: int
    positions: dict[int, int]


def run_export(job: ExportJob, progress: Progress | None = None) -> Summary:
    """Export everything up to the watermarks that was not exported yet.

    Raises:
        ExportFailed, storage.spark.ranges.RecordsLost, storage.spark.commit.FolderBusy,
        storage.spark.jvm.NoJava.
    """
    partitions = _partitions(job)
    folder = ExportFolder(job.target.absolute())
    with folder.locked():
        with _Spark(job.java) as spark:
            commits = [
                _run(spark, folder, intent, job.on_corrupt, progress)
                for intent in _intents(folder, job, partitions)
            ]
        last = folder.last_commit()
    files = [file for commit in commits for file in commit.files]
    return Summary(
        rows=sum(file.rows for file in files),
        files=len(files),
        bytes=sum(file.bytes for file in files),
        dead_letters=sum(commit.dead_letters for commit in commits),
        positions=last.positions if last else {},
    )


def _partitions(job: ExportJob) -> list[PartitionState]:
    states = []
    for found in list_partitions(job.data_dir):
        if found.topic != job.topic.full:
            continue
        with ReadOnlyLog(found.folder) as log:
            states.append(
                PartitionState(
                    found.partition_id,
                    found.index,
                    found.folder,
                    log.log_start_offset,
                    log.high_watermark,
                    log.size_bytes,
                )
            )
    if not states:
        raise NoSuchTopic(f"{job.data_dir} holds no topic {job.topic.full}")
    return states


def _intents(
    folder: ExportFolder, job: ExportJob, partitions: list[PartitionState]
) -> Iterator[Intent]:
    """First what an earlier run left half-done, then what is new."""
    last = folder.last_commit()
    run = last.run + 1 if last else 1
    left = folder.open_intent(run)
    if left is not None:
        yield left
        last = folder.last_commit()
        run += 1
    positions = last.positions if last else {}
    ranges = plan(partitions, positions, fail_on_loss=job.fail_on_loss)
    if ranges:
        intent = Intent(run, job.topic.full, ranges)
        folder.write_intent(intent)
        yield intent


def _run(
    spark: "_Spark",
    folder: ExportFolder,
    intent: Intent,
    on_corrupt: OnCorrupt,
    progress: Progress | None,
) -> Commit:
    job = Job(str(folder.root), intent, on_corrupt)
    outcomes = spark.map(partial(run_ranges, job), intent.ranges, progress)
    failures = [outcome for outcome in outcomes if isinstance(outcome, TaskFailed)]
    if failures:
        raise ExportFailed("; ".join(failure.text for failure in failures[:3]))
    files = [outcome for outcome in outcomes if isinstance(outcome, StagedFile)]
    dead = [outcome for outcome in outcomes if isinstance(outcome, DeadLetters)]
    folder.publish(files + [letters.file for letters in dead])
    last = folder.last_commit()
    positions = dict(last.positions) if last else {}
    for part in intent.ranges:
        positions[part.partition_id] = max(positions.get(part.partition_id, 0), part.end)
    letters_count = sum(letters.count for letters in dead)
    commit = Commit(intent.run, intent.topic, positions, files, letters_count)
    folder.commit(commit)
    return commit


class _Spark:
    """A local Spark session, started when there is work for it."""

    def __init__(self, java: str) -> None:
        self._java = java
        self._session: SparkSession | None = None

    def __enter__(self) -> "_Spark":
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.stop()

    def map(
        self,
        work: Callable[[Iterable[Range]], Iterable[Any]],
        ranges: list[Range],
        progress: Progress | None,
    ) -> list[Any]:
        """Run `work` over the ranges, a task each."""
        context = self._started().sparkContext
        tasks = context.parallelize(ranges, len(ranges)).mapPartitions(work)
        with _reporting(context, len(ranges), progress):
            return list(tasks.collect())

    def _started(self) -> "SparkSession":
        if self._session is None:
            os.environ["JAVA_HOME"] = str(jvm.java_home(self._java))
            os.environ["PYSPARK_PYTHON"] = sys.executable
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.master("local[*]").appName("braidlog export")
            for key, value in SPARK_SETTINGS.items():
                builder = builder.config(key, value)
            self._session = builder.getOrCreate()
        return self._session


@contextmanager
def _reporting(context: "SparkContext", tasks: int, progress: Progress | None) -> Iterator[None]:
    """Tell `progress` how many tasks are done while the body runs."""
    if progress is None:
        yield
        return
    done = threading.Event()
    tracker = context.statusTracker()

    def report() -> None:
        while not done.wait(PROGRESS_INTERVAL_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            progress(sum(stage.numCompletedTasks for stage in stages if stage), tasks)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
        progress(tasks, tasks)
    finally:
        done.set()
        thread.join()
