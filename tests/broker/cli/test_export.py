"""`braidlog export` where there is nothing to export: one line, and the exit code that says why.

What it writes is tested with the export itself.
"""

import subprocess
import sys

import pytest

from broker.cli.main import run
from storage.codecs.api import BodyFormat
from storage.log.data_dir import DataDir
from tests.storage.spark.test_worker import Data, record

pytest.importorskip("pyspark")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--store", "s3://b/p", "--data-dir", "data"], "--data-dir or --store"),
        (["--database", "host=db"], "go with --store"),
        (["--store", "bucket"], "s3://BUCKET/PREFIX"),
        (["--store", "s3://b/p", "--database", "password=secret"], "PGPASSWORD"),
    ],
)
@pytest.mark.slow
def test_a_store_that_cannot_be_is_one_line(tmp_path, capsys, more, said):
    assert run(["export", "orders", "--to", str(tmp_path / "to"), *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("braidlog: ") and said in line and "secret" not in line


@pytest.mark.parametrize(
    ("more", "said"),
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
def test_values_that_cannot_be_are_one_line(tmp_path, capsys, more, said):
    DataDir.open(tmp_path / "data").abandon()
    place = ["--to", str(tmp_path / "to"), "--data-dir", str(tmp_path / "data")]
    assert run(["export", "orders", *place, *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"braidlog: {said}")


@pytest.mark.parametrize(
    ("topic", "made", "code", "said"),
    [
        ("orders", False, 1, "/partitions: No such file or directory"),
        ("orders", True, 4, "holds no topic public/default/orders"),
        ("a/b", True, 2, "a/b"),
    ],
)
@pytest.mark.slow
def test_refusals_are_one_line(tmp_path, capsys, topic, made, code, said):
    data_dir, target = tmp_path / "data", tmp_path / "to"
    if made:
        DataDir.open(data_dir).abandon()
    assert run(["export", topic, "--to", str(target), "--data-dir", str(data_dir)]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("braidlog: ") and said in line
    assert not target.exists()


@pytest.mark.slow
@pytest.mark.spark
def test_a_spark_that_does_not_start_is_one_line_after_its_own(tmp_path):
    """In a process of its own: one that has a Spark would use that."""
    data = Data(tmp_path)
    data.append(BodyFormat.KAFKA, [record(value=b"a")])
    command = [sys.executable, "-m", "broker.cli.main", "export", "orders", "--master", "nowhere"]
    command += ["--to", str(tmp_path / "to"), "--data-dir", str(data.directory.path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("braidlog: Spark did not start: ")
