"""The port for other brokers: a vanished peer is no fault of this broker."""

import socket
import struct

import pytest
import trio
from structlog.testing import capture_logs

from braidlog.broker.cluster.links import Hello, connect
from braidlog.broker.server.listener import Listener
from braidlog.protocols.iggy.adapter import ADAPTER as IGGY
from tests.broker.cluster.nodes import SteppedBroker
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import until


class Ends:
    """An adapter whose forwarded connections end with an error."""

    def __init__(self, error):
        self.error = error
        self.served = False

    async def serve_forwarded(self, broker, stream):
        self.served = True
        raise self.error


def listener_of(adapter):
    options = getattr(adapter, "options_type", dict)()
    return Listener("relayed", "iggy", adapter, options, ("127.0.0.1", 0), None)


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (OSError(107, "Transport endpoint is not connected"), "debug"),
        (trio.BrokenResourceError("the socket is broken"), "debug"),
        (ExceptionGroup("tasks", [trio.ClosedResourceError("closed")]), "debug"),
        (KeyError("a bug"), "error"),
    ],
)
async def test_a_vanished_peer_is_a_debug_line_and_a_bug_is_an_error(tmp_path, error, level):
    adapter = Ends(error)
    node = SteppedBroker(SharedStore(tmp_path), 1)
    async with node.running():
        node.broker.listeners["relayed"] = listener_of(adapter)
        hello = Hello(node.shared.session.cluster.cluster_id, 1, "relay", "relayed")
        address = node.internal._bound
        with capture_logs() as logged:
            stream = await connect(address, node.parts.secret, hello)
            assert not await stream.receive_some()
            await until(lambda: any(row["event"] in NAMES for row in logged))
        assert adapter.served
        assert [row["log_level"] for row in logged if row["event"] in NAMES] == [level]
        await stream.aclose()


NAMES = ("peer_gone", "call_failed")


async def test_a_forwarded_client_of_a_vanished_broker_leaves_no_socket(tmp_path):
    node = SteppedBroker(SharedStore(tmp_path), 1)
    async with node.running():
        node.broker.listeners["relayed"] = listener_of(IGGY)
        stream = await reset_connection()
        before = len(node.broker.connections)
        with pytest.raises(OSError, match="not connected"):
            await node.internal._forward(stream, "relayed")
        assert len(node.broker.connections) == before
        await stream.aclose()


async def reset_connection():
    """Return a connection whose peer was reset."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    accepted.setblocking(False)
    return trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
