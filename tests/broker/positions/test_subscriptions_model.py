"""Any mix of commits, acks and seeks of all listeners, against a plain set of offsets."""

import random

import pytest

from braidlog.broker.positions.subscriptions import KafkaCommit
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.metadata.ranges import RangeSet
from tests.broker.metadata_fakes import MetadataParts

ORDERS = TopicName("public", "default", "orders")
NAME = b"billing"


class AckedOffsets:
    """The meaning of a cursor in the plainest form: the acknowledged offsets."""

    def __init__(self):
        self.below = None  # All offsets below are acknowledged.
        self.above = set()
        self.kafka = None

    @property
    def position(self):
        if self.below is None:
            return None
        return next(o for o in range(self.below, self.below + 1000) if o not in self.above)

    def commit(self, offset, kafka):
        position = self.position
        follows = kafka and self.kafka and self.kafka.offset <= kafka.offset
        if position is None or (offset < position and not follows):
            self.below, self.above, self.kafka = offset, set(), kafka
        elif offset > position:
            self.below, self.kafka = offset, kafka
        elif kafka:
            self.kafka = kafka

    def ack(self, offsets):
        if self.below is None:
            return
        before = self.position
        self.above |= offsets
        if self.position != before:
            self.kafka = None

    def seek(self, offset):
        self.below, self.above, self.kafka = offset, set(), None

    def acknowledged(self, span):
        return {
            o for o in range(span) if self.below is not None and (o < self.below or o in self.above)
        }


@pytest.mark.parametrize("seed", range(40))
async def test_any_mix_of_listeners_follows_the_model_over_restarts(seed):
    rng = random.Random(seed)
    house = MetadataParts()
    topic = await house.topics.create(ORDERS, 1)
    subscription = house.subscriptions.open(topic, NAME)
    model = AckedOffsets()
    span = 60
    for step in range(250):
        offset = rng.randrange(span)
        kind = rng.random()
        if kind < 0.12:
            if model.kafka and rng.random() < 0.3:
                offset = model.kafka.offset + rng.randrange(3)
            kafka = KafkaCommit(offset, rng.choice([None, b"", b"m"]), step)
            subscription.commit(0, offset, kafka=kafka, lazy=rng.random() < 0.5)
            model.commit(offset, kafka)
        elif kind < 0.2:
            subscription.commit(0, offset)
            model.commit(offset, None)
        elif kind < 0.75:
            ranges = [
                (s, s + rng.randrange(1, 5)) for s in rng.sample(range(span), rng.randrange(4))
            ]
            subscription.ack(0, ranges, lazy=rng.random() < 0.5)
            model.ack({o for start, end in ranges for o in range(start, end)})
        elif kind < 0.9:
            subscription.ack_to(0, offset, lazy=rng.random() < 0.5)
            model.ack(set(range(offset)))
        elif kind < 0.93:
            subscription.seek(0, offset)
            model.seek(offset)
        elif kind < 0.95:
            subscription.delete_cursor(0)
            model = AckedOffsets()
        elif kind < 0.98:
            house.cursor_journal.extra_bytes = 1 << 40  # The next change triggers a snapshot.
        else:
            house = house.restarted()
            topic = house.topics.get(ORDERS)
            subscription = house.subscriptions.open(topic, NAME)
        check(subscription, model, span)


def check(subscription, model, span):
    position = subscription.position(0)
    assert position == model.position
    acknowledged = model.acknowledged(span)
    assert {o for o in range(span) if position is not None and o < position} | {
        o for start, end in subscription.acked(0) for o in range(start, min(end, span))
    } == acknowledged
    assert subscription.standing(0)[1] <= (position or 0)
    committed = subscription.committed(0)
    expected = model.kafka or (position is not None and KafkaCommit(position, b"", 0)) or None
    assert committed == expected
    assert isinstance(subscription.acked(0), RangeSet)
    assert not subscription.acked(0).contains(position or 0, (position or 0) + 1)
