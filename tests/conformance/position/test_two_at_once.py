"""Two protocols on a subscription at the same time, as in the table of docs/positions.md."""

import base64
import itertools

import pytest

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire, message
from conformance.clients.raw.pulsar import CLOSE_CONSUMER, REDELIVER, field_of, parse
from conformance.position.model import ModelEntry
from conformance.position.talk import (
    CUMULATIVE,
    INDIVIDUAL,
    HttpPlace,
    PulsarPlace,
    http_id,
    pulsar_id,
    read_positions,
)
from conformance.server import RunningBroker

pytestmark = pytest.mark.slow
GROUP = "both"
COUNT = 10
numbers = itertools.count()


@pytest.fixture(scope="module")
def running():
    with RunningBroker() as broker:
        yield broker


class ClientPair:
    """A Pulsar consumer that holds all records of a topic, and clients of the other protocols."""

    def __init__(self, broker):
        self.broker, self.topic = broker, f"both-{next(numbers)}"
        self.kafka = KafkaWire(broker.address("kafka"))
        self.kafka.create(self.topic)
        self.iggy = IggyWire(broker.address("iggy"))
        self.kafka.produce(self.topic, message(None, b"v") * COUNT)
        self.pulsar = self.consumer()
        self.ledger = None
        assert self.pulsar.deliveries(COUNT) == [(at, ()) for at in range(COUNT)]

    def consumer(self):
        return PulsarPlace(self.broker.address("pulsar"), self.topic, GROUP)

    def ids(self, *offsets):
        if self.ledger is None:
            cursors = HttpPlace(self.broker.address("http"), self.topic, GROUP).read_positions()
            self.ledger = ledger_of(cursors[0]["read_position"])
        return [pulsar_id(self.ledger, ModelEntry(at)) for at in offsets]

    def commit(self, offset):
        assert self.kafka.commit(GROUP, self.topic, offset) == 0

    def position(self):
        return read_positions(self.broker, self.topic, GROUP)[0].kafka

    def redelivered(self, count):
        """Request redelivery of all held messages; return the entry ids."""
        self.pulsar.command(REDELIVER, [(1, 0)])
        return [entry for entry, _ in self.pulsar.deliveries(count)]


def ledger_of(text):
    return field_of(parse(base64.b64decode(text)), 1)


@pytest.fixture
def client_pair(running):
    clients = ClientPair(running)
    yield clients
    for wire in (clients.kafka, clients.iggy, clients.pulsar):
        wire.close()


def test_a_forward_commit_removes_held_messages_from_a_pulsar_consumer(client_pair):
    client_pair.commit(6)
    assert client_pair.redelivered(COUNT - 6) == [6, 7, 8, 9]


def test_an_ack_below_a_commit_is_ignored_and_an_ack_above_is_kept(client_pair):
    client_pair.commit(6)
    client_pair.pulsar.ack(INDIVIDUAL, client_pair.ids(2, 7), answered=True)
    assert client_pair.position() == 6
    assert read_positions(client_pair.broker, client_pair.topic, GROUP)[0].acked == ((7, 7),)
    client_pair.commit(7)
    (after,) = read_positions(client_pair.broker, client_pair.topic, GROUP)
    assert (after.kafka, after.iggy) == (7, 7)  # Kafka's own number; the position is 8.


def test_a_backward_commit_closes_the_pulsar_consumer_and_redelivers(client_pair):
    client_pair.pulsar.ack(CUMULATIVE, client_pair.ids(6), answered=True)
    client_pair.commit(3)
    kind, *_ = client_pair.pulsar.take_command()
    assert kind == CLOSE_CONSUMER
    client_pair.pulsar.close()
    client_pair.pulsar = client_pair.consumer()
    assert [entry for entry, _ in client_pair.pulsar.deliveries(COUNT - 3)] == list(range(3, COUNT))


def test_a_commit_to_the_present_position_does_not_affect_the_pulsar_consumer(client_pair):
    client_pair.pulsar.ack(CUMULATIVE, client_pair.ids(3), answered=True)
    client_pair.commit(4)
    assert client_pair.redelivered(COUNT - 4) == list(range(4, COUNT))


def test_iggy_polls_unacknowledged_records_and_its_commit_covers_the_holes(client_pair):
    client_pair.pulsar.ack(INDIVIDUAL, client_pair.ids(1, 3), answered=True)
    assert client_pair.iggy.poll_next(client_pair.topic, 3, GROUP) == [0, 2, 4]
    assert client_pair.position() == 5
    assert client_pair.redelivered(COUNT - 5) == list(range(5, COUNT))


def test_a_message_acknowledged_over_http_is_not_redelivered(client_pair):
    client_pair.ids()
    place = HttpPlace(client_pair.broker.address("http"), client_pair.topic, GROUP)
    assert place.change("Individual", messageIds=[http_id(client_pair.ledger, 4)]) == 200
    assert client_pair.redelivered(COUNT - 1) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_a_consumer_continues_above_a_commit_beyond_the_end(client_pair):
    client_pair.commit(COUNT + 2)
    client_pair.kafka.produce(client_pair.topic, message(None, b"n") * 4)
    assert [entry for entry, _ in client_pair.pulsar.deliveries(2)] == [COUNT + 2, COUNT + 3]
