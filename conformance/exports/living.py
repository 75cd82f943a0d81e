"""Repeated runs of the export beside a live writer, without a JVM: tasks run in this process."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from braidlog.storage.export.export import ExportJob, ExportSource, run_export
from braidlog.storage.export.session import Report, Work
from braidlog.storage.metadata.names import parse_topic
from conformance.exports.folder import FolderCounts, check_once
from conformance.exports.writer import TOPIC, LiveWriter, ends_of
from conformance.server import RunningBroker

LOOK_EVERY = 50  # Runs between two checks of the whole folder.


class InThisProcess:
    """Runs tasks in turn, in the place of `braidlog.storage.export.session.Spark`."""

    def map(self, work: Work, parts: Sequence[Any], total: int, report: Report | None) -> list[Any]:
        """Return every outcome; report the bytes of all parts."""
        done: list[int] = []
        outcomes = list(work(done.append, parts))
        if report is not None:
            report(sum(done), total)
        return outcomes


def live_runs(count: int) -> FolderCounts:
    """Export `count` times, then once more without the writer. Raises AssertionError."""
    with tempfile.TemporaryDirectory(prefix="braidlog-") as scratch, RunningBroker() as broker:
        lake = Path(scratch) / "lake"
        job = ExportJob(ExportSource(str(broker.data_dir), (parse_topic(TOPIC),)), lake)
        with LiveWriter(broker, 1):
            for number in range(1, count + 1):
                run_export(job, InThisProcess())  # type: ignore[arg-type]
                if number % LOOK_EVERY == 0:
                    check_once(lake)
        run_export(job, InThisProcess())  # type: ignore[arg-type]
        return check_once(lake, ends_of(broker, TOPIC))
