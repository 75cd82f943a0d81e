"""Another protocol's commit between the chunks of Pulsar's messages: unacknowledged messages are
delivered whole, with the chunks below the position.
"""

import http.client
import itertools
import json

import pytest

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire, message
from conformance.clients.raw.pulsar import REDELIVER, PulsarWire
from conformance.position.model import ModelEntry
from conformance.position.talk import (
    CUMULATIVE,
    EXCLUSIVE,
    FAILOVER,
    INDIVIDUAL,
    KEY_SHARED,
    SHARED,
    PulsarPlace,
    pulsar_id,
    read_positions,
)
from conformance.server import RunningBroker

pytestmark = pytest.mark.slow
GROUP = "g"
PIECE = b"0123456789"
PUBLISH, UUID, COUNT, TOTAL, NUMBER = 3, 26, 27, 28, 29
KINDS = (EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED)
# Offsets: 0 and 3 are a message, 1 and 4 another message, 2 and 5 are Kafka's.
WHOLE = [0, 3, 1, 4, 5]  # A consumer's deliveries once Kafka has read offset 2.
numbers = itertools.count()


@pytest.fixture(scope="module")
def running():
    with RunningBroker() as broker:
        yield broker


class Mixed:
    """A topic with two chunked messages and Kafka's records among their pieces."""

    def __init__(self, broker, *, is_whole=True):
        self.broker, self.topic = broker, f"pieces-{next(numbers)}"
        self.kafka = KafkaWire(broker.address("kafka"))
        self.kafka.create(self.topic)
        self.writer = PulsarWire(broker.address("pulsar"))
        self.writer.open_producer(self.topic)
        self.pieces(0)
        if is_whole:
            self.kafka.produce(self.topic, message(None, b"k"))
            self.pieces(1)
            self.kafka.produce(self.topic, message(None, b"k"))

    def pieces(self, number):
        """Publish that chunk of both messages."""
        for sequence, uuid in enumerate((b"u", b"v")):
            fields = [(PUBLISH, 1), (UUID, uuid), (COUNT, 2), (TOTAL, 20), (NUMBER, number)]
            self.ledger, _ = self.writer.publish(sequence, fields, PIECE)

    def commit(self, offset):
        assert self.kafka.commit(GROUP, self.topic, offset) == 0

    def consumer(self, kind):
        return PulsarPlace(self.broker.address("pulsar"), self.topic, GROUP, kind=kind)

    def ids(self, *offsets):
        return [pulsar_id(self.ledger, ModelEntry(offset)) for offset in offsets]

    def read_positions(self):
        (cursor,) = read_positions(self.broker, self.topic, GROUP)
        return cursor.kafka, cursor.acked

    def unacked(self):
        """Return the number of unacknowledged messages at consumers, from Pulsar's stats."""
        connection = http.client.HTTPConnection(*self.broker.address("http"), timeout=60)
        path = f"/admin/v2/persistent/public/default/{self.topic}/stats"
        connection.request("GET", path)
        figures = json.loads(connection.getresponse().read())["subscriptions"][GROUP]
        connection.close()
        return figures["unackedMessages"]


def entries(consumer, last=5):
    """Return the delivered entries, up to `last`."""
    numbers = []
    while last not in numbers:
        ((entry, _),) = consumer.deliveries(1)
        numbers.append(entry)
    return numbers


@pytest.mark.parametrize("kind", KINDS)
def test_an_unacknowledged_message_is_redelivered_with_all_its_chunks(running, kind):
    mixed = Mixed(running)
    mixed.commit(3)
    for _ in range(2):
        consumer = mixed.consumer(kind)
        assert entries(consumer) == WHOLE
        consumer.leave()
    assert mixed.read_positions() == (3, ())
    consumer = mixed.consumer(kind)
    entries(consumer)
    consumer.ack(INDIVIDUAL, mixed.ids(0, 3), answered=True)
    consumer.leave()
    assert mixed.read_positions() == (4, ())
    consumer = mixed.consumer(kind)
    assert entries(consumer) == [1, 4, 5]
    consumer.ack(INDIVIDUAL, mixed.ids(1, 4, 5), answered=True)
    assert (mixed.read_positions(), mixed.unacked()) == ((6, ()), 0)
    consumer.leave()


def test_a_fully_acknowledged_message_is_not_redelivered(running):
    mixed = Mixed(running)
    mixed.commit(2)
    consumer = mixed.consumer(EXCLUSIVE)
    assert entries(consumer) == [2, 0, 3, 1, 4, 5]
    consumer.ack(CUMULATIVE, mixed.ids(4), answered=True)
    consumer.leave()
    consumer = mixed.consumer(EXCLUSIVE)
    assert entries(consumer) == [5]
    consumer.leave()


def test_chunks_acknowledged_in_turn_are_no_longer_held(running):
    mixed = Mixed(running)
    mixed.commit(3)
    consumer = mixed.consumer(SHARED)
    entries(consumer)
    for offset in WHOLE:
        consumer.ack(INDIVIDUAL, mixed.ids(offset), answered=True)
    assert (mixed.read_positions(), mixed.unacked()) == ((6, ()), 0)
    consumer.leave()


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_a_closed_consumers_messages_go_whole_to_another_consumer(running, kind):
    mixed = Mixed(running)
    mixed.commit(3)
    first = mixed.consumer(kind)
    entries(first)
    second = mixed.consumer(kind)
    first.ack(INDIVIDUAL, mixed.ids(0), answered=True)  # This does not acknowledge the message.
    first.close()
    numbers = entries(second)
    assert sorted(numbers) == sorted(WHOLE)
    assert numbers.index(0) < numbers.index(3) and numbers.index(1) < numbers.index(4)
    second.leave()


@pytest.mark.parametrize("kind", KINDS)
def test_a_forward_commit_acknowledges_a_message_with_its_last_chunk(running, kind):
    mixed = Mixed(running)
    mixed.commit(3)
    consumer = mixed.consumer(kind)
    entries(consumer)
    mixed.commit(4)
    consumer.command(REDELIVER, [(1, 0)])
    assert entries(consumer) == [1, 4, 5]
    consumer.leave()


def test_iggy_commits_between_chunks_of_incomplete_messages(running):
    """A poll with auto-commit returns nothing, as no message is whole, but passes the present
    chunks.
    """
    mixed = Mixed(running, is_whole=False)
    with IggyWire(running.address("iggy")) as iggy:
        assert iggy.poll_next(mixed.topic, 10, GROUP) == []
    assert mixed.read_positions() == (2, ())
    consumer = mixed.consumer(SHARED)
    mixed.pieces(1)
    assert entries(consumer, 3) == [0, 2, 1, 3]
    consumer.ack(INDIVIDUAL, mixed.ids(0, 1, 2, 3), answered=True)
    assert (mixed.read_positions(), mixed.unacked()) == ((4, ()), 0)
    consumer.leave()
