"""Sessions of the ZooKeeper listener of a broker."""

import pytest

from tests.protocols.zookeeper.talk import RawZooKeeper


@pytest.fixture
async def session(broker, open_client):
    """Return `session(...)`, which connects a client; the Kafka listener is open too."""
    await (await open_client("kafka")).aclose()

    async def begin(**fields):
        return await RawZooKeeper(await open_client("zookeeper")).connect(**fields)

    return begin


@pytest.fixture
async def client(session):
    return await session()
