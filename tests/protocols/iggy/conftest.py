"""Connections to the Iggy listener of a broker in the test's own run."""

import pytest

from tests.protocols.iggy.talk import Talk


@pytest.fixture
async def connect(broker, open_client):
    """`await connect()`: a connection that has not logged in."""

    async def one(**options):
        return Talk(await open_client("iggy", **options))

    return one


@pytest.fixture
async def talk(connect):
    """A connection that has logged in."""
    talk = await connect()
    assert await talk.login() == 0
    return talk
