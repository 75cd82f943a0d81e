"""The servers of a cluster: each has its own ports."""

import shutil
import tempfile
from pathlib import Path

import pytest

from conformance.cluster import servers
from conformance.cluster.servers import Postgres, Seaweed


@pytest.fixture
def folder():
    """Yield a folder that every user may enter: PostgreSQL does not run as root."""
    scratch = Path(tempfile.mkdtemp(prefix="braidlog-servers-"))
    scratch.chmod(0o755)
    yield scratch
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.skipif(servers.missing() is not None, reason="a server is not installed")
@pytest.mark.parametrize("kind", [Postgres, Seaweed])
def test_a_server_starts_again_on_its_reserved_ports(folder, kind):
    with kind(folder / "server") as server:
        before = server.port
        server.stop()
        server.start()
        assert server.answers()
        assert server.port == before
