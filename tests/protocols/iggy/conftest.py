"""Connections to the Iggy listener of a broker in the test's own run."""

import pytest

from tests.protocols.iggy.talk import Talk
from tests.protocols.iggy.vtalk import CREATE_STREAM, STREAM, VClient


@pytest.fixture
async def connect(broker, open_client):
    """Yield `connect`: `await connect()` returns a connection that has not logged in."""

    async def open_talk(**options):
        return Talk(await open_client("iggy", **options))

    return open_talk


@pytest.fixture
async def talk(connect):
    """Return a connection that has logged in."""
    talk = await connect()
    assert await talk.login() == 0
    return talk


@pytest.fixture
async def client(broker, open_client):
    """Return a client of the newest dialect that has logged in, with stream `st`."""
    client = VClient(await open_client("iggy"))
    await client.login()
    assert await client.status(CREATE_STREAM, STREAM[1:]) == 0
    return client
