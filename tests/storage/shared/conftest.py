"""PostgreSQL and SeaweedFS for the tests of this folder, shared by all of them."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from conformance.cluster import servers


@pytest.fixture(scope="session")
def postgres():
    """Yield a temporary PostgreSQL."""
    pytest.importorskip("psycopg", reason="the extra `shared` is not installed")
    if servers.postgres_folder() is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="braidlog-pg-"))
    os.chmod(folder, 0o755)
    with servers.Postgres(folder / "pg") as server:
        yield server
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def seaweed():
    """Yield a temporary SeaweedFS."""
    pytest.importorskip("obstore", reason="the extra `shared` is not installed")
    if servers.weed_program() is None:
        pytest.skip("SeaweedFS is not installed")
    os.environ.update(servers.KEYS)
    folder = Path(tempfile.mkdtemp(prefix="braidlog-weed-"))
    with servers.Seaweed(folder) as server:
        yield server
    shutil.rmtree(folder, ignore_errors=True)
