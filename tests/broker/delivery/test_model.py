"""Every kind of delivery against a model, with random steps.

Consumers join and leave, acknowledge entries, single messages or everything up to an entry, and
return entries; other protocols commit and seek. The model knows the acknowledged messages and the
holders of entries, and nothing of a dispatcher. Its rules must hold after each step, and in the end
everything is delivered and acknowledged.
"""

import random

import pytest

from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.failover import DELAY_S, FailoverDispatcher
from braidlog.broker.delivery.key_shared import KeySharedDispatcher
from braidlog.broker.delivery.key_slots import KeyRing
from braidlog.broker.delivery.limits import DeliveryLimits
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.positions.cursor_moves import CursorEvent
from tests.broker.delivery.dispatch_fakes import stage

pytestmark = pytest.mark.usefixtures("is_warm")

KINDS = {
    "exclusive": (ExclusiveDispatcher, {}, 1),
    "failover": (FailoverDispatcher, {}, 4),
    "shared": (SharedDispatcher, {}, 4),
    "key_shared": (KeySharedDispatcher, {"policy": KeyRing}, 4),
}
SEEDS = range(20)
STEPS = 120
KEYS = [b"k%d" % number for number in range(5)]


class DeliveryModel:
    """The life of a subscription."""

    def __init__(self, play, kind, consumers_max, rng):
        self.play = play
        self.kind = kind
        self.consumers_max = consumers_max
        self.random = rng
        self.counts = {}  # Messages of each entry, by offset.
        self.keys = {}
        self.acked = set()  # Offsets of messages.
        self.consumers = []
        # Entry offsets by consumer: sent since it joined, neither acknowledged nor returned.
        self.held = {}
        self.read_to = {}  # Number of checked entries of a consumer's inbox.
        self.names = 0

    @property
    def shares(self):
        return self.kind in ("shared", "key_shared")

    def wanted(self, offset):
        return [n for n in range(offset, offset + self.counts[offset]) if n not in self.acked]

    # Steps.

    def publish(self):
        for _ in range(self.random.randrange(1, 6)):
            key = self.random.choice(KEYS)
            count = self.random.choice([1, 1, 1, 3, 10])
            (offset,) = self.play.partition.entries(count, metadata={"partition_key": key})
            self.counts[offset], self.keys[offset] = count, key

    def join(self):
        if len(self.consumers) < self.consumers_max:
            self.names += 1
            permits = self.random.choice([0, 1, 5, 1000])
            consumer = self.play.join(permits, name=f"c{self.names}")
            self.consumers.append(consumer)
            self.held[consumer], self.read_to[consumer] = [], 0

    def leave(self):
        if self.consumers:
            self.forget(consumer := self.random.choice(self.consumers))
            self.play.leave(consumer)

    def forget(self, consumer):
        self.consumers.remove(consumer)
        del self.held[consumer]

    def flow(self):
        if self.consumers:
            consumer = self.random.choice(self.consumers)
            self.play.dispatcher.flow(consumer, self.random.choice([1, 3, 50]))

    async def ack(self):
        consumer, offset = self.some_held()
        if consumer is None:
            return
        more = self.random.sample(self.held[consumer], min(3, len(self.held[consumer])))
        chosen = sorted({offset, *more})
        await self.play.ack(consumer, *chosen)
        for entry_offset in chosen:
            self.done(entry_offset)

    async def ack_messages(self):
        """Acknowledge some messages of a batch, by the set of the other messages."""
        consumer, offset = self.some_held()
        if consumer is None or self.counts[offset] == 1:
            return
        count = self.counts[offset]
        left = self.random.getrandbits(count)
        entry_id = self.play.id(offset, left) if left else self.play.id(offset)
        await self.play.dispatcher.acknowledge(consumer, [entry_id], lazy=True)
        self.acked |= {offset + n for n in range(count) if not left >> n & 1}
        if not self.wanted(offset):
            self.done(offset)

    async def ack_up_to(self):
        consumer, offset = self.some_held()
        if consumer is not None and not self.shares:
            entry_id = self.play.id(offset)
            await self.play.dispatcher.acknowledge_to(consumer, entry_id, lazy=True)
            for acked_offset in [
                acked_offset for acked_offset in self.counts if acked_offset <= offset
            ]:
                self.done(acked_offset)

    def nack(self):
        consumer, offset = self.some_held()
        if consumer is None:
            return
        self.play.nack(consumer, offset)
        if self.shares:
            self.held[consumer].remove(offset)
        elif consumer is self.play.dispatcher.active:
            self.held[consumer].clear()

    async def seek(self):
        if self.random.random() < 0.8:  # Rarely a seek: it disconnects all consumers.
            return
        position = self.random.choice([0, *self.counts])

        async def new_position():
            return position

        for consumer in list(self.consumers):
            self.forget(consumer)
        await self.play.dispatcher.reset(new_position)
        self.acked = set(range(position))

    def commit(self):
        """Move the position forward by another protocol."""
        if self.counts and self.random.random() < 0.3:
            position = self.random.choice([*self.counts])
            if position > self.play.cursor.position:
                self.play.cursor.ack_to(position, lazy=True)
                self.play.dispatcher.cursor_moved(CursorEvent.ACKED, is_own=False)
                for passed_offset in [
                    passed_offset
                    for passed_offset in self.counts
                    if passed_offset + self.counts[passed_offset] <= position
                ]:
                    self.done(passed_offset)
                self.acked |= set(range(position))

    def some_held(self):
        holders = [consumer for consumer in self.consumers if self.held[consumer]]
        if not holders:
            return None, None
        consumer = self.random.choice(holders)
        return consumer, self.random.choice(self.held[consumer])

    def done(self, offset):
        self.acked |= set(range(offset, offset + self.counts[offset]))
        for held in self.held.values():
            if offset in held:
                held.remove(offset)

    # Rules.

    def look(self):
        """Take the entries sent since the last check."""
        for consumer in self.consumers:
            for entry in consumer.inbox[self.read_to[consumer] :]:
                self.received(consumer, entry)
            self.read_to[consumer] = len(consumer.inbox)

    def received(self, consumer, entry):
        offset = entry.offset
        assert self.wanted(offset), f"{offset} came and is acknowledged"
        if entry.ack_set:
            bits = sum((word & (1 << 64) - 1) << 64 * n for n, word in enumerate(entry.ack_set))
            left = {offset + n for n in range(self.counts[offset]) if bits >> n & 1}
            assert left >= set(self.wanted(offset)), f"messages of {offset} are kept back"
        held = self.held[consumer]
        if not self.shares:
            assert consumer is self.play.dispatcher.active
            if offset in held:  # All entries are redelivered from the first.
                held.clear()
            assert not held or offset > max(held), "out of order"
        else:
            holders = [c for c in self.consumers if offset in self.held[c]]
            assert not holders, f"{offset} is at {len(holders)} others"
        if self.kind == "key_shared":
            key = self.keys[offset]
            for other in self.consumers:
                mine = other is consumer
                assert mine or all(
                    self.keys[held_offset] != key for held_offset in self.held[other]
                )
        held.append(offset)

    async def end(self):
        """Give enough permits, so that everything is delivered and acknowledged."""
        if self.random.random() < 0.5:
            for consumer in list(self.consumers):
                self.forget(consumer)
                self.play.leave(consumer)
        if not self.consumers:
            self.join()
        for consumer in self.consumers:
            self.play.dispatcher.flow(consumer, 100_000)
        for _ in range(len(self.counts) + 2):
            await self.play.passed(DELAY_S + 0.1)
            await self.play.settled()
            self.look()
            if not any(self.held.values()):
                break
            for consumer in self.consumers:
                chosen = list(self.held[consumer])
                await self.play.ack(consumer, *chosen)
                for offset in chosen:
                    self.done(offset)
        missing = [offset for offset in self.counts if self.wanted(offset)]
        assert not missing, f"never came: {missing}"
        assert self.play.cursor.position == self.play.partition.high_watermark


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
async def test_delivery_follows_the_model(kind, seed, autojump_clock):
    await live(kind, random.Random(f"{kind} {seed}"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_delivery_follows_the_model_with_returns_in_pieces(kind, seed, autojump_clock):
    limits = DeliveryLimits(returned_together=2)
    await live(kind, random.Random(f"{kind} {seed} in pieces"), limits)


async def live(kind, rng, limits=None):
    dispatcher, settings, consumers_max = KINDS[kind]
    settings = {name: make() for name, make in settings.items()}
    async with stage(dispatcher, limits=limits, **settings) as play:
        model = DeliveryModel(play, kind, consumers_max, rng)
        steps = [model.publish, model.join, model.leave, model.flow, model.nack, model.commit]
        waiting = [model.ack, model.ack_messages, model.ack_up_to, model.seek]
        weights = [6, 4, 1, 6, 2, 1, 8, 3, 2, 1]
        for _ in range(STEPS):
            (step,) = rng.choices([*steps, *waiting], weights)
            if step in waiting:
                await step()
            else:
                step()
            if rng.random() < 0.2:
                await play.passed(DELAY_S + 0.1)
            await play.settled()
            model.look()
        await model.end()
