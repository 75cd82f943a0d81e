"""Clients of the Pulsar listener of a real broker."""

import pytest

from braidlog.protocols.pulsar.limits import PulsarLimits
from braidlog.protocols.pulsar.listener_state import SharedState
from tests.protocols.pulsar.talk import RawPulsar


@pytest.fixture
def with_limits(request, broker):
    """Give the broker's Pulsar listeners the limits of the mark `pulsar_limits`."""
    mark = request.node.get_closest_marker("pulsar_limits")
    if mark is not None:
        broker.shared_states["pulsar"] = SharedState(broker, PulsarLimits(**mark.kwargs))


@pytest.fixture
async def client(with_limits, open_client):
    """Return a connected client."""
    connected = RawPulsar(await open_client("pulsar"))
    await connected.connect()
    yield connected
    await connected.stream.aclose()


@pytest.fixture
def impatient(open_client):
    """Return `impatient`: `await impatient()` returns a client of a listener with a tiny liveness
    timeout.
    """

    async def connect():
        connected = RawPulsar(await open_client("pulsar", liveness_check_s=0.05))
        await connected.connect()
        return connected

    return connect


@pytest.fixture
async def other(with_limits, open_client):
    """Return another client, on its own connection."""
    connected = RawPulsar(await open_client("pulsar"))
    await connected.connect()
    yield connected
    await connected.stream.aclose()
