"""Shared delivery: memory, removed entries, any course of events. Its rules are scripts: see
`test_rules.py`.
"""

import random

import pytest

from braidlog.broker.delivery.limits import DeliveryLimits
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.positions.cursor_moves import CursorEvent
from tests.broker.delivery.dispatch_fakes import stage

pytestmark = pytest.mark.usefixtures("is_warm")


async def test_an_ack_from_another_consumer_frees_the_holder():
    async with stage(SharedDispatcher) as play:
        play.partition.entries(4)
        holder = play.join(permits=1)
        await play.settled()
        other = play.join()
        await play.dispatcher.acknowledge(other, [play.id(0, 0b0011)], lazy=True)
        assert holder.unacked == 2
        await play.ack(other, 0)
        assert holder.unacked == 0


async def test_an_ack_of_delivered_entries_does_not_wait():
    async with stage(SharedDispatcher) as play:
        play.partition.entries(1, 1)
        consumer = await play.join_settled(permits=2)
        acknowledge = play.dispatcher.acknowledge_at_once
        assert acknowledge(consumer, [0, 7], lazy=True) is None
        assert (consumer.unacked, play.cursor.position) == (2, 0)
        assert acknowledge(consumer, [0, 1], lazy=True) is not None
        assert (consumer.unacked, play.cursor.position) == (0, 2)


async def test_subscription_at_its_limit_waits_until_half_is_acknowledged():
    async with stage(SharedDispatcher, limits=DeliveryLimits(unacked_max_subscription=4)) as play:
        play.partition.entries(*[1] * 10)
        first = await play.join_settled(permits=2)
        second = await play.join_settled(permits=100)
        assert len(first.inbox) + len(second.inbox) == 4
        await play.ack(first, *first.offsets)
        await play.ack(second, *second.offsets[: 2 - len(first.inbox)])
        await play.settled()
        assert len(first.inbox) + len(second.inbox) == 6


async def test_returned_entries_removed_by_compaction_count_as_acknowledged():
    async with stage(SharedDispatcher) as play:
        for _ in range(4):
            play.partition.entries(1)
        consumer = play.join(permits=100)
        await play.settled()
        await play.ack(consumer, 0, 3)
        del play.partition.batches[1:3]
        play.nack(consumer, 1, 2)
        await play.settled()
        assert consumer.offsets == [0, 1, 2, 3]
        assert play.cursor.position == 4


# Any course of events.


@pytest.mark.parametrize("seed", range(60))
async def test_against_a_model(seed):
    """No entry is lost or at two consumers, no acknowledged entry is redelivered,
    counts are right.
    """
    rng = random.Random(seed)
    async with stage(
        SharedDispatcher,
        limits=DeliveryLimits(
            read_ahead_bytes=rng.choice([1, 200, 1 << 20]),
            read_again_bytes=rng.choice([1, 200, 1 << 20]),
        ),
    ) as play:
        game = SharedGame(rng, play)
        for _ in range(100):
            await game.step()
            await play.settled()
            game.look()
        while game.consumers:
            game.leave()
        game.join(permits=1 << 30)
        await play.settled()
        game.look()
        assert set(game.held) == set(game.counts) - game.acked, "all that is left is with the last"


class SharedGame:
    """The entries that consumers hold, by the rules."""

    def __init__(self, rng, play):
        self.rng = rng
        self.play = play
        self.consumers = []
        self.counts = {}  # Messages of each entry.
        self.held = {}  # The holder of each entry.
        self.acked = set()
        self.nacked = {}
        self.seen = {}

    async def step(self):
        rng, play = self.rng, self.play
        moves = [self.append, self.flow, self.flow, self.ack, self.ack, self.nack, self.nack_all]
        moves += [self.join, self.leave, self.commit]
        move = rng.choice(moves)
        if move in (self.append, self.join) or self.consumers:
            done = move()
            if done is not None:
                await done
        await play.settled()

    def append(self):
        if self.rng.random() < 0.3:
            for offset in self.play.partition.records(self.rng.randint(1, 4)):
                self.counts[offset] = 1
        else:
            counts = [self.rng.choice([1, 1, 3]) for _ in range(self.rng.randint(1, 5))]
            self.counts.update(zip(self.play.partition.entries(*counts), counts, strict=True))

    def join(self, permits=0):
        consumer = self.play.join(permits)
        self.consumers.append(consumer)
        self.seen[consumer] = 0

    def leave(self):
        consumer = self.consumers.pop(self.rng.randrange(len(self.consumers)))
        self.play.leave(consumer)
        self.held = {o: holder for o, holder in self.held.items() if holder is not consumer}
        if not self.consumers:
            self.nacked.clear()

    def flow(self):
        self.play.dispatcher.flow(self.rng.choice(self.consumers), self.rng.randint(1, 8))

    async def ack(self):
        consumer = self.rng.choice(self.consumers)
        mine = self.some_of(consumer)
        await self.play.ack(consumer, *mine)
        self.forget(mine)

    def commit(self):
        """Acknowledge everything below a position by another listener."""
        if self.rng.random() < 0.2:
            position = self.rng.randint(0, self.play.partition.next_offset)
            self.play.cursor.ack_to(position, lazy=True)
            self.play.dispatcher.cursor_moved(CursorEvent.ACKED, is_own=False)
            self.forget([o for o, count in self.counts.items() if o + count <= position])

    def nack(self):
        consumer = self.rng.choice(self.consumers)
        self.give_back(consumer, self.some_of(consumer))

    def nack_all(self):
        consumer = self.rng.choice(self.consumers)
        mine = [offset for offset, holder in self.held.items() if holder is consumer]
        self.play.dispatcher.redeliver(consumer, [])
        self.note_nack(mine)

    def give_back(self, consumer, offsets):
        if offsets:
            self.play.nack(consumer, *offsets)
            self.note_nack(offsets)

    def note_nack(self, offsets):
        for offset in offsets:
            del self.held[offset]
            self.nacked[offset] = self.nacked.get(offset, 0) + 1

    def some_of(self, consumer):
        mine = [offset for offset, holder in self.held.items() if holder is consumer]
        return self.rng.sample(mine, self.rng.randint(0, len(mine)))

    def forget(self, offsets):
        for offset in offsets:
            self.acked.add(offset)
            self.held.pop(offset, None)
            self.nacked.pop(offset, None)

    def look(self):
        """Take and check the received entries."""
        for consumer in self.consumers:
            for delivery in consumer.inbox[self.seen[consumer] :]:
                offset = delivery.offset
                assert offset not in self.acked, f"{offset} came again though acknowledged"
                assert offset not in self.held, f"{offset} is with two"
                assert delivery.redelivery_count == self.nacked.get(offset, 0)
                self.held[offset] = consumer
            self.seen[consumer] = len(consumer.inbox)
            mine = [self.counts[o] for o, holder in self.held.items() if holder is consumer]
            assert consumer.unacked >= len(mine)
        if any(consumer.permits > 0 for consumer in self.consumers):
            left = set(self.counts) - self.acked - set(self.held)
            assert not left, f"{left} are with nobody, though one wants them"


async def test_a_redelivery_waits_for_output_memory():
    async with stage(SharedDispatcher) as play:
        consumer = play.join(permits=10)
        play.partition.entries(1)
        await play.settled()
        output = play.budget._output
        output.charge(output._bytes_max)
        play.nack(consumer, 0)
        await play.settled()
        assert consumer.offsets == [0]
        output.charge(-output._bytes_max)
        await play.settled()
        assert consumer.offsets == [0, 0]
        assert output.used == 0
