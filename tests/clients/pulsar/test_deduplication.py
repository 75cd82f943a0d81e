"""The stock Pulsar client on a broker with deduplication, also over a SIGKILL."""

from collections.abc import Iterator

import pytest

from conformance.server import RunningBroker
from tests.clients.pulsar.kit import EARLIEST, assert_empty, new_client, numbered, take, values

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings=["topics.deduplication=true"]) as running:
        yield running


def test_a_resent_message_is_stored_once_over_a_kill(broker: RunningBroker, topic: str) -> None:
    url = f"pulsar://{broker.addresses['pulsar']}"
    client = new_client(url)
    producer = client.create_producer(topic, producer_name="p", initial_sequence_id=-1)
    for number in range(20):
        producer.send(b"m%d" % number)
    client.close()
    broker.kill()
    broker.start()
    client = new_client(url)
    producer = client.create_producer(topic, producer_name="p", initial_sequence_id=9)
    assert producer.last_sequence_id() == 9
    for number in range(10, 30):
        producer.send(b"m%d" % number)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert values(take(consumer, 30)) == numbered(0, 30)
    assert_empty(consumer)
    producer.close()
    producer = client.create_producer(topic, producer_name="p")
    assert producer.last_sequence_id() == 29
    client.close()
