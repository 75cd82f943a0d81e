"""`braidlog export`: its output, and the exit code. The tests of the export check the written
files.

The work runs in this process instead of in Spark.
"""

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from braidlog.broker.cli import export as module
from braidlog.broker.cli.main import run
from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.formats.api import BodyFormat, BodyInfo
from tests.storage.export.test_worker import Data, record

pytest.importorskip("pyspark")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--store", "s3://b/p", "--data-dir", "data"], "--data-dir or --store"),
        (["--database", "host=db"], "go with --store"),
        (["--store", "bucket"], "s3://BUCKET/PREFIX"),
        (["--store", "s3://b/p", "--database", "password=secret"], "PGPASSWORD"),
    ],
)
@pytest.mark.slow
def test_an_invalid_store_is_a_single_line(tmp_path, capsys, more, reason):
    assert run(["export", "orders", "--to", str(tmp_path / "to"), *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("braidlog: ") and reason in line and "secret" not in line


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--max-rows", "0"], "--max-rows is 1 or more"),
        (["--max-rows=-1"], "--max-rows is 1 or more"),
        (["--max-bytes", "0"], "--max-bytes is 1 or more"),
        (["--compression", "snappy:3"], "compression 'snappy:3'"),
        (["--compression", "zstd:x"], "compression 'zstd:x'"),
        (["--compression", "gzip:10"], "compression 'gzip:10'"),
    ],
)
@pytest.mark.slow
def test_invalid_values_are_a_single_line(tmp_path, capsys, more, reason):
    DataDir.open(tmp_path / "data").abandon()
    place = ["--to", str(tmp_path / "to"), "--data-dir", str(tmp_path / "data")]
    assert run(["export", "orders", *place, *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"braidlog: {reason}")


@pytest.mark.parametrize(
    ("topic", "is_created", "code", "reason"),
    [
        ("orders", False, 4, "/data is no data directory of a broker"),
        ("orders", True, 4, "holds no topic public/default/orders"),
        ("a/b", True, 2, "a/b"),
    ],
)
@pytest.mark.slow
def test_refusals_are_a_single_line(tmp_path, capsys, topic, is_created, code, reason):
    data_dir, target = tmp_path / "data", tmp_path / "to"
    if is_created:
        DataDir.open(data_dir).abandon()
    assert run(["export", topic, "--to", str(target), "--data-dir", str(data_dir)]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("braidlog: ") and reason in line
    assert not target.exists()


@pytest.mark.slow
def test_a_broker_that_does_not_answer_has_its_own_exit_code(tmp_path, capsys):
    place = ["--to", str(tmp_path / "to"), "--url", "http://127.0.0.1:1"]
    assert run(["export", "orders", *place]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("braidlog: no broker answers at http://127.0.0.1:1: ")


@pytest.mark.slow
@pytest.mark.spark
def test_a_failed_spark_start_is_a_single_line_after_its_output(tmp_path):
    """A separate process: a process with a Spark would use that Spark."""
    data = Data(tmp_path)
    data.append(BodyFormat.KAFKA, [record(value=b"a")])
    command = [
        sys.executable,
        "-m",
        "braidlog.broker.cli.main",
        "export",
        "orders",
        "--master",
        "nowhere",
    ]
    command += ["--to", str(tmp_path / "to"), "--data-dir", str(data.directory.path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("braidlog: Spark did not start: ")


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path)


@pytest.fixture
def export(data, tmp_path, capsys, monkeypatch):
    """Yield `export(...)`, which returns the exit code, standard output and standard error."""
    from braidlog.storage.export import session
    from tests.storage.export.test_job import InThisProcess

    class Here(InThisProcess):
        def __init__(self, java, master):
            super().__init__()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(session, "Spark", Here)

    def export(*arguments):
        where = ["--to", str(tmp_path / "lake"), "--data-dir", data.directory.path]
        code = run(["export", *arguments, *where])
        output = capsys.readouterr()
        return code, output.out.strip(), output.err.strip()

    return export


def fill(data, *values):
    data.append(BodyFormat.KAFKA, [record(value=value) for value in values])


def test_a_summary_has_the_exported_rows_and_files(data, export, tmp_path):
    fill(data, b"a", b"b")
    code, out, err = export("orders")
    assert (code, err) == (0, "")
    assert out.startswith("2 records in 1 files, ") and out.endswith(f"under {tmp_path / 'lake'}")
    fill(data, b"c")
    code, out, _ = export("orders", "--output", "json")
    summary = json.loads(out)
    assert (code, summary["rows"], summary["files"], summary["to"]) == (
        0,
        1,
        1,
        str(tmp_path / "lake"),
    )
    assert summary["topics"] == {"public/default/orders": 1}
    assert export("orders")[1].startswith("0 records in 0 files")


def test_a_summary_lists_each_topic(data, export):
    from braidlog.storage.directory.directory import NewPartition
    from braidlog.storage.log.settings import LogSettings

    fill(data, b"a", b"b")
    partitions = [NewPartition(2, "public/default/bills", 0)]
    (data.log,) = data.directory.create_partitions(partitions, LogSettings(), data.committer)
    data.append(BodyFormat.KAFKA, [record(value=b"x")])
    code, out, _ = export("--pattern", ".*")
    rows = [line.replace("│", " ").split() for line in out.splitlines()]
    assert code == 0
    assert ["public/default/bills", "1"] in rows and ["public/default/orders", "2"] in rows
    assert any(line.startswith("3 records in 2 files") for line in out.splitlines())


def test_small_files_are_merged_on_request(data, export):
    for value in (b"a", b"b"):
        fill(data, value)
        assert export("orders")[0] == 0
    code, out, _ = export("orders", "--compact")
    assert code == 0 and "2 small files were merged" in out


def test_records_without_row_and_dropped_records_are_reported(data, export, tmp_path):
    fill(data, b"a", b"b")
    assert export("orders")[0] == 0
    fill(data, b"lost")
    fill(data, b"kept")
    data.append_body(b"\xff" * 40, BodyInfo(3), BodyFormat.PULSAR, 1)
    data.log.delete_below(3)
    data.committer.commit()
    code, out, err = export("orders", "--corrupt", "deadletter", "--lost", "skip")
    assert code == 0, err
    assert "1 offsets were dropped from the log before their turn" in out
    place = tmp_path / "lake" / "_export" / "deadletter"
    assert f"3 records have no row: {place}" in err


def test_a_failure_is_a_single_line(data, export):
    fill(data, b"a")
    data.append_body(b"\xff" * 40, BodyInfo(3), BodyFormat.PULSAR, 1)
    code, out, err = export("orders")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert err.startswith("braidlog: ")
    assert export() == (2, "", "braidlog: name topics, or give one --pattern")
    assert export("orders", "--pattern", "x")[0] == 2
    code, _, err = export("--pattern", "(")
    assert (code, "no regular expression" in err) == (2, True)


def test_a_loop_exports_again_after_its_pause(data, export, monkeypatch):
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt
        fill(data, b"v")

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    fill(data, b"v")
    code, out, _ = export("orders", "--loop", "5s")
    assert code != 0 and out.count("1 records in 1 files") == 3
    assert pauses == [5.0] * 3


def test_a_failed_position_commit_is_reported_after_the_export(data, export):
    fill(data, b"a")
    code, out, err = export("orders", "--url", "http://127.0.0.1:1")
    assert code == 0 and out.startswith("1 records")
    assert err.startswith("the broker was not told of the export: no broker answers at")
