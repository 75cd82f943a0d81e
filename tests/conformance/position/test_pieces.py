"""A commit of another protocol that ends between the pieces of Pulsar's chunked messages: what is
not acknowledged comes whole, with the pieces that lie below the position.
"""

import http.client
import itertools
import json

import pytest

from conformance.position.model import Entry
from conformance.position.talk import (
    CUMULATIVE,
    EXCLUSIVE,
    FAILOVER,
    INDIVIDUAL,
    KEY_SHARED,
    SHARED,
    PulsarPlace,
    pulsar_id,
    told,
)
from conformance.raw.iggy import IggyWire
from conformance.raw.kafka import KafkaWire, message
from conformance.raw.pulsar import REDELIVER, PulsarWire
from conformance.server import RunningBroker

pytestmark = pytest.mark.slow
GROUP = "g"
PIECE = b"0123456789"
PUBLISH, UUID, COUNT, TOTAL, NUMBER = 3, 26, 27, 28, 29
KINDS = (EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED)
# Offsets: 0 and 3 are one message, 1 and 4 another, 2 and 5 are Kafka's.
WHOLE = [0, 3, 1, 4, 5]  # What a consumer needs once Kafka has read offset 2.
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
        """That piece of both messages."""
        for sequence, uuid in enumerate((b"u", b"v")):
            fields = [(PUBLISH, 1), (UUID, uuid), (COUNT, 2), (TOTAL, 20), (NUMBER, number)]
            self.ledger, _ = self.writer.publish(sequence, fields, PIECE)

    def commit(self, offset):
        assert self.kafka.commit(GROUP, self.topic, offset) == 0

    def consumer(self, kind):
        return PulsarPlace(self.broker.address("pulsar"), self.topic, GROUP, kind=kind)

    def ids(self, *offsets):
        return [pulsar_id(self.ledger, Entry(offset)) for offset in offsets]

    def told(self):
        (found,) = told(self.broker, self.topic, GROUP)
        return found.kafka, found.acked

    def unacked(self):
        """Messages that consumers hold, as Pulsar's stats tell."""
        connection = http.client.HTTPConnection(*self.broker.address("http"), timeout=60)
        path = f"/admin/v2/persistent/public/default/{self.topic}/stats"
        connection.request("GET", path)
        found = json.loads(connection.getresponse().read())["subscriptions"][GROUP]
        connection.close()
        return found["unackedMessages"]


def entries(consumer, last=5):
    """The entries that come, up to this one."""
    found = []
    while last not in found:
        ((entry, _),) = consumer.deliveries(1)
        found.append(entry)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_acknowledged_comes_with_its_earlier_pieces_again_and_again(running, kind):
    mixed = Mixed(running)
    mixed.commit(3)
    for _ in range(2):
        consumer = mixed.consumer(kind)
        assert entries(consumer) == WHOLE
        consumer.leave()
    assert mixed.told() == (3, ())
    consumer = mixed.consumer(kind)
    entries(consumer)
    consumer.ack(INDIVIDUAL, mixed.ids(0, 3), answered=True)
    consumer.leave()
    assert mixed.told() == (4, ())
    consumer = mixed.consumer(kind)
    assert entries(consumer) == [1, 4, 5]
    consumer.ack(INDIVIDUAL, mixed.ids(1, 4, 5), answered=True)
    assert (mixed.told(), mixed.unacked()) == ((6, ()), 0)
    consumer.leave()


def test_what_was_acknowledged_whole_does_not_come_again(running):
    mixed = Mixed(running)
    mixed.commit(2)
    consumer = mixed.consumer(EXCLUSIVE)
    assert entries(consumer) == [2, 0, 3, 1, 4, 5]
    consumer.ack(CUMULATIVE, mixed.ids(4), answered=True)
    consumer.leave()
    consumer = mixed.consumer(EXCLUSIVE)
    assert entries(consumer) == [5]
    consumer.leave()


def test_pieces_that_are_acknowledged_one_after_the_other_are_held_no_longer(running):
    mixed = Mixed(running)
    mixed.commit(3)
    consumer = mixed.consumer(SHARED)
    entries(consumer)
    for offset in WHOLE:
        consumer.ack(INDIVIDUAL, mixed.ids(offset), answered=True)
    assert (mixed.told(), mixed.unacked()) == ((6, ()), 0)
    consumer.leave()


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_a_consumer_leaves_behind_goes_to_another_one_whole(running, kind):
    mixed = Mixed(running)
    mixed.commit(3)
    first = mixed.consumer(kind)
    entries(first)
    second = mixed.consumer(kind)
    first.ack(INDIVIDUAL, mixed.ids(0), answered=True)  # Its message is not acknowledged by that.
    first.close()
    found = entries(second)
    assert sorted(found) == sorted(WHOLE)
    assert found.index(0) < found.index(3) and found.index(1) < found.index(4)
    second.leave()


@pytest.mark.parametrize("kind", KINDS)
def test_a_forward_commit_takes_a_message_whose_last_piece_it_passes(running, kind):
    mixed = Mixed(running)
    mixed.commit(3)
    consumer = mixed.consumer(kind)
    entries(consumer)
    mixed.commit(4)
    consumer.command(REDELIVER, [(1, 0)])
    assert entries(consumer) == [1, 4, 5]
    consumer.leave()


def test_iggy_commits_in_the_middle_of_messages_whose_other_pieces_are_still_to_come(running):
    """A poll with auto-commit that gives nothing, as no message is whole, passes what is there."""
    mixed = Mixed(running, is_whole=False)
    with IggyWire(running.address("iggy")) as iggy:
        assert iggy.poll_next(mixed.topic, 10, GROUP) == []
    assert mixed.told() == (2, ())
    consumer = mixed.consumer(SHARED)
    mixed.pieces(1)
    assert entries(consumer, 3) == [0, 2, 1, 3]
    consumer.ack(INDIVIDUAL, mixed.ids(0, 1, 2, 3), answered=True)
    assert (mixed.told(), mixed.unacked()) == ((4, ()), 0)
    consumer.leave()
