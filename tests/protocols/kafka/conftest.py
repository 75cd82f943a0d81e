"""A connection to the Kafka listener of a broker with a single topic."""

import pytest

from braidlog.broker.broker import Broker
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, OpenClient, second_client


@pytest.fixture
async def client(broker: Broker, open_client: OpenClient) -> RawKafka:
    """Yield a connection, after creating the topic foo of a single partition."""
    client = await second_client(open_client)
    await client.call(m.MetadataRequest([FOO]))
    return client
