"""Clients of the Pulsar listener of a real broker."""

import pytest

from tests.protocols.pulsar.talk import Client


@pytest.fixture
async def client(open_client):
    """Return a connected client."""
    connected = Client(await open_client("pulsar"))
    await connected.connect()
    yield connected
    await connected.stream.aclose()


@pytest.fixture
def impatient(open_client):
    """Return `impatient`: `await impatient()` returns a client of a listener with a tiny liveness
    timeout.
    """

    async def connect():
        connected = Client(await open_client("pulsar", liveness_check_s=0.05))
        await connected.connect()
        return connected

    return connect


@pytest.fixture
async def other(open_client):
    """Return another client, on its own connection."""
    connected = Client(await open_client("pulsar"))
    await connected.connect()
    yield connected
    await connected.stream.aclose()
