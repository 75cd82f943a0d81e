"""The servers of a cluster: each finds its own free ports."""

import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from conformance.cluster import servers
from conformance.cluster.servers import Postgres, Seaweed, ServerFailed, free_ports


@pytest.fixture
def folder():
    """Yield a folder that every user may enter: PostgreSQL does not run as root."""
    made = Path(tempfile.mkdtemp(prefix="braidlog-servers-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def taken(port):
    return socket.create_server(("127.0.0.1", port))


def test_ports_are_all_different():
    assert len(set(free_ports(200))) == 200


@pytest.mark.slow
@pytest.mark.skipif(servers.weed_program() is None, reason="SeaweedFS is not installed")
def test_a_port_taken_by_another_process_is_left_alone(folder):
    server = Seaweed(folder)
    before = server.port
    with taken(server._ports[4]), server:
        assert server.answers()
        assert server.port != before


@pytest.mark.slow
@pytest.mark.skipif(servers.postgres_folder() is None, reason="PostgreSQL is not installed")
def test_a_server_with_published_ports_keeps_them(folder):
    server = Postgres(folder / "postgres")
    before = server.port
    with taken(before):
        server.start()
    after = server.port
    assert after != before
    server.stop()
    with taken(after), pytest.raises(ServerFailed, match="ddress already in use"):
        server.start()
    with server:
        assert server.answers()
        assert server.port == after
