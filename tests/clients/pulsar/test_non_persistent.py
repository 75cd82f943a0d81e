"""The stock Pulsar client on non-persistent topics: delivery, and nothing else."""

import time
from typing import Any

import pytest

from conformance.server import RunningBroker
from tests.clients.pulsar.kit import (
    EARLIEST,
    RECEIVE_MS,
    SHARED,
    assert_empty,
    new_client,
    pulsar,
    take,
    values,
)
from tests.waiting import HANG_S

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture
def non_persistent(topic: str) -> str:
    return f"non-persistent://public/default/{topic}"


def send_until_seen(producer: Any, consumer: Any) -> list[bytes]:
    """Send until a message arrives: a consumer receives messages only once its permits have
    arrived.
    """
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        producer.send(b"is anybody there?")
        try:
            return values([consumer.receive(100)])
        except pulsar.Timeout:
            continue
    raise AssertionError("nothing ever came")


def test_non_persistent_delivery(client: Any, non_persistent: str) -> None:
    producer = client.create_producer(non_persistent)
    producer.send(b"to nobody")
    consumer = client.subscribe(
        non_persistent, "s", consumer_type=SHARED, initial_position=EARLIEST
    )
    assert send_until_seen(producer, consumer) == [b"is anybody there?"]
    producer.send(b"x", properties={"a": "1"}, partition_key="k")
    message = consumer.receive(RECEIVE_MS)
    while message.data() != b"x":
        message = consumer.receive(RECEIVE_MS)
    assert (message.properties(), message.partition_key()) == ({"a": "1"}, "k")
    consumer.acknowledge(message)
    consumer.close()
    assert_empty(client.subscribe(non_persistent, "s", initial_position=EARLIEST))


def test_batches(client: Any, non_persistent: str) -> None:
    consumer = client.subscribe(non_persistent, "s")
    producer = client.create_producer(
        non_persistent, batching_enabled=True, batching_max_messages=10
    )
    for number in range(10):
        producer.send_async(b"m%d" % number, None)
    producer.flush()
    assert len(take(consumer, 10)) == 10


def test_a_topic_returns_after_a_restart(
    broker: RunningBroker, url: str, non_persistent: str
) -> None:
    client = new_client(url)
    producer, consumer = (
        client.create_producer(non_persistent),
        client.subscribe(non_persistent, "s"),
    )
    send_until_seen(producer, consumer)
    broker.stop()
    broker.start()
    send_until_seen(producer, consumer)
    client.close()
