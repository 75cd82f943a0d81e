"""Foreign bytes at a running broker end their connection at once, cost little, and disturb no other
client.
"""

import random
import socket

import pytest

from conformance.server import RunningBroker
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow

GROWTH_BYTES_MAX = 8 << 20
CROWD = 250
KINDS = {
    "random": random.Random(5).randbytes(300),
    "oversized": b"\x7f\xff\xff\xff",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(range(190)),
    "http": b"GET / HTTP/1.1\r\nHost: broker\r\nUser-Agent: curl/8\r\n\r\n",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with RunningBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def read_to_the_end(stream):
    """Return the broker's answer up to its close; fail if the broker waits for more bytes."""
    received = b""
    try:
        while piece := stream.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("listener", ["kafka", "pulsar", "iggy"])
def test_foreign_bytes_end_the_connection_without_a_wait(broker, listener, kind):
    with socket.create_connection(broker.address(listener), timeout=HANG_S) as stream:
        stream.sendall(KINDS[kind])
        read_to_the_end(stream)


def meet_strangers(broker, listener):
    """Open a crowd of connections with foreign bytes, which the broker closes."""
    kinds = list(KINDS.values())
    streams = []
    for number in range(CROWD):
        stream = socket.create_connection(broker.address(listener), timeout=HANG_S)
        stream.sendall(kinds[number % len(kinds)])
        streams.append(stream)
    for stream in streams:
        read_to_the_end(stream)
        stream.close()


@pytest.mark.parametrize("listener", ["kafka", "pulsar", "iggy"])
def test_a_thousand_foreign_connections_leave_almost_no_memory(broker, listener):
    with socket.create_connection(broker.address(listener), timeout=HANG_S):
        meet_strangers(broker, listener)  # The process keeps its peak memory.
        before = broker.resident_bytes()
        for _ in range(4):
            meet_strangers(broker, listener)
        assert broker.resident_bytes() - before < GROWTH_BYTES_MAX
    with socket.create_connection(broker.address("http"), timeout=HANG_S) as stream:
        stream.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"200" in read_to_the_end(stream)
    assert '"error"' not in broker.log()
