"""At rest no consumer could receive more: no wake-up of a pump is lost. Random steps, every kind.

A consumer's connection fills up and empties, records arrive in passes of the poller, reads are
slow, memory is taken back. A consumer wakes its dispatcher only if `takes_more` was asked while the
consumer was full, like real connections. At rest, the test wakes the pump without cause: any entry
sent then was forgotten before. In the end everything is delivered and acknowledged.
"""

import math
import random
from dataclasses import dataclass, field

import pytest
import trio

from braidlog.broker.commit.waiters import Waiters
from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.failover import FailoverDispatcher
from braidlog.broker.delivery.key_shared import KeySharedDispatcher
from braidlog.broker.delivery.key_slots import KeyRanges, KeyRing
from braidlog.broker.delivery.limits import DeliveryLimits
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.positions.cursor_moves import CursorEvent
from tests.broker.delivery.dispatch_fakes import FakeConsumer, stage
from tests.broker.delivery.entry_fakes import FakePartition

KINDS = {
    "exclusive": (ExclusiveDispatcher, {}, 1),
    "failover": (FailoverDispatcher, {}, 3),
    "shared": (SharedDispatcher, {}, 4),
    "key_shared": (KeySharedDispatcher, {"policy": KeyRing}, 4),
    "out of order": (KeySharedDispatcher, {"policy": KeyRing, "in_order": bool}, 4),
    "sticky": (KeySharedDispatcher, {"policy": KeyRanges}, 2),
}
SEEDS = range(60)
STEPS = 100
# Share of probed rests. A pump without new entries asks consumers for room: that hides faults.
PROBED = 0.3
KEYS = [b"a", b"hello world", b"k1", b"k2", b"k3"]
HALVES = [(0, 30_000), (30_001, 65_535)]  # Of the slots; each half has some of the keys.
# Each limit is sometimes small, so that few entries reach it.
LIMITS = {
    "at_once_records_max": (2, 100),
    "read_ahead_bytes": (1, 200, 1 << 20),
    "read_ahead_bytes_foreign": (1, 1 << 20),
    "read_at_once_bytes": (1, 200, 1 << 20),
    "turn_bytes": (1, 200, 1 << 20),
    "turn_entries": (20, 200),
    "look_ahead_max": (1, 3, 20_000),
    "ready_lanes_max": (1, 100),
    "turn_entries_shared": (1, 3, 20),
    "read_again_bytes": (1, 200, 1 << 20),
    "due_max": (1, 3, 1000),
    "unacked_max_consumer": (4, 50_000),
    "unacked_max_subscription": (8, 200_000),
    "returned_together": (1, 2, 2000),
}


class SteppedPoller:
    """A poller whose passes the test makes."""

    def __init__(self):
        self.in_pass = False
        self._soon = []

    def call_soon(self, call):
        assert self.in_pass
        self._soon.append(call)

    def begin(self):
        self.in_pass = True

    def end(self):
        calls, self._soon = self._soon, []
        for call in calls:
            call()
        self.in_pass = False


@dataclass(eq=False)
class WakingPartition(FakePartition):
    """Wakes its readers like the broker; the entries of a read are in memory or not, at random."""

    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self):
        super().__post_init__()
        self.waits = {}
        self.poller = SteppedPoller()
        # A real clock would give a different result each time.
        self.waiters = Waiters(self.poller, at_once_s=self.rng.choice((0, math.inf)))

    def show_all(self):
        self.high_watermark = self.next_offset
        self.waiters.wake(self)

    def read_warm(self, offset, bytes_max):
        is_there = self.gate is None and self.rng.random() < 0.8
        return self._batches_at(offset, bytes_max) if is_there else None

    async def wait_for(self, offset, at_once=None):
        await self.waiters.wait_any([(self, offset)], at_once)


class SlowConsumer(FakeConsumer):
    """A consumer whose socket is full after `room` entries."""

    room = math.inf

    def send(self, entries, size):
        super().send(entries, size)
        self.room -= len(entries)
        self.is_full |= self.room <= 0

    def make_room(self, room):
        self.room, self.is_full = room, False
        was_asked, self.was_asked = self.was_asked, False
        return was_asked


class RestLife:
    """The life of a subscription."""

    def __init__(self, play, nursery, kind, rng):
        self.play = play
        self.nursery = nursery
        self.kind = kind
        self.consumers_max = KINDS[kind][2]
        self.random = rng
        self.log = {}  # Messages of each entry, by offset.
        self.unfinished = []  # Chunked messages: the metadata of the latest chunk.
        self.names = 0
        self.first_permits = rng.choice([[0, 1, 5, 1000], [1000]])
        self.rooms = rng.choice([[1, 2, 5, math.inf], [1, math.inf], [math.inf]])

    @property
    def dispatcher(self):
        return self.play.dispatcher

    @property
    def partition(self):
        return self.play.partition

    @property
    def consumers(self):
        return self.dispatcher.consumers

    # Steps. No step waits for the pump.

    def publish(self):
        for _ in range(self.random.choice([1, 1, 1, 2, 6])):
            if self.random.random() < 0.5:
                self.put(1, self.piece())
            else:
                key = {"partition_key": self.random.choice(KEYS)}
                self.put(self.random.choice([1, 1, 1, 3, 10]), key | self.delay())

    def piece(self):
        """Publish the next chunk of a chunked message."""
        if not self.unfinished or self.random.random() < 0.2:
            new = {
                "uuid": b"u%d" % self.partition.next_offset,
                "chunk_id": -1,
                "num_chunks_from_msg": self.random.randrange(2, 10),
                "total_chunk_msg_size": 100,
                "partition_key": self.random.choice(KEYS),
            }
            self.unfinished.append(new | self.delay())
        message = self.random.choice(self.unfinished)
        message["chunk_id"] += 1
        if message["chunk_id"] == message["num_chunks_from_msg"] - 1:
            self.unfinished.remove(message)
        return message

    def delay(self):
        delay_ms = self.random.choice([0, 0, 0, 300, 2000])
        return {"deliver_at_time": self.play.clock.now // 1000 + delay_ms} if delay_ms else {}

    def put(self, count, metadata):
        (offset,) = self.partition.entries(count, metadata=metadata)
        self.log[offset] = count

    def publish_otherwise(self):
        """Publish as another protocol, or as an aborted transaction."""
        if self.random.random() < 0.3:
            self.partition.gap(2)
        else:
            records = self.partition.records(3, keep=self.random.choice([None, [0, 2], [1]]))
            self.log |= dict.fromkeys(records, 1)

    def join(self):
        if len(self.consumers) >= self.consumers_max or self.dispatcher.resetting is not None:
            return
        settings = {}
        if self.kind == "sticky":
            used = [consumer.key_ranges for consumer in self.consumers]
            settings["key_ranges"] = next([half] for half in HALVES if [half] not in used)
        elif self.kind != "failover":
            settings["priority"] = self.random.choice([0, 0, 0, 1])
        self.names += 1
        consumer = SlowConsumer(f"c{self.names}", **settings)
        consumer.room = self.random.choice(self.rooms)
        self.dispatcher.attach(consumer)
        self.dispatcher.flow(consumer, self.random.choice(self.first_permits))

    def leave(self):
        if self.consumers:
            self.play.leave(self.random.choice(self.consumers))

    def flow(self):
        if self.consumers:
            consumer = self.random.choice(self.consumers)
            self.dispatcher.flow(consumer, self.random.choice([1, 1, 3, 50]))

    def fill(self):
        if self.consumers:
            self.random.choice(self.consumers).is_full = True

    def drain(self):
        full = [consumer for consumer in self.consumers if consumer.is_full]
        if full and self.random.choice(full).make_room(self.random.choice(self.rooms)):
            self.dispatcher.wake()

    def serve(self):
        """Let all consumers take more, for a while."""
        for consumer in self.consumers:
            if consumer.make_room(self.random.choice(self.rooms)):
                self.dispatcher.wake()
            self.dispatcher.flow(consumer, 20)

    def ack(self):
        if not self.consumers:
            return
        consumer = self.random.choice(self.consumers)
        wanted = self.wanted(consumer)
        if wanted and self.random.random() < 0.2:
            offset = self.random.choice(wanted)
            count = self.log[offset]
            message_id = (
                self.play.id(offset, (1 << count) - 2) if count > 1 else self.play.id(offset)
            )
            self.soon(self.dispatcher.acknowledge, consumer, [message_id])
        elif wanted and self.random.random() < 0.2:
            message_id = self.play.id(self.random.choice(wanted))
            self.soon(self.dispatcher.acknowledge_to, consumer, message_id)
        elif wanted:
            few = self.random.sample(wanted, min(len(wanted), self.random.choice([1, 1, 4])))
            self.nursery.start_soon(self.play.ack, consumer, *few)

    def soon(self, call, consumer, ids):
        async def acknowledge():
            await call(consumer, ids, lazy=True)

        self.nursery.start_soon(acknowledge)

    def wanted(self, consumer):
        """Return the received entries that the consumer may acknowledge, even if it no longer holds
        them.
        """
        sent = dict.fromkeys(consumer.offsets)
        return [
            sent_offset
            for sent_offset in sent
            if sent_offset in consumer.pending or not self.is_acked(sent_offset)
        ]

    def is_done(self, offset):
        """Return True if an entry is acknowledged or removed."""
        return offset < self.partition.log_start_offset or self.is_acked(offset)

    def is_acked(self, offset):
        return self.play.cursor.state().covers(offset, offset + self.log[offset])

    def nack(self):
        if self.consumers:
            consumer = self.random.choice(self.consumers)
            few = consumer.offsets[-3:]
            if few:
                self.play.nack(consumer, *self.random.sample(few, 1))

    def nack_all(self):
        if self.consumers:
            self.play.nack(self.random.choice(self.consumers))

    def commit(self):
        """Move the position forward by another protocol."""
        self.play.cursor.ack_to(self.some_place(), lazy=True)
        self.dispatcher.cursor_moved(CursorEvent.ACKED, is_own=False)

    def seek_elsewhere(self):
        self.play.cursor.seek(self.some_place())
        self.dispatcher.cursor_moved(CursorEvent.SOUGHT, is_own=False)

    def seek(self):
        async def place():
            await trio.lowlevel.checkpoint()
            return self.some_place()

        async def reset():
            if self.dispatcher.resetting is None:
                await self.dispatcher.reset(place)

        self.nursery.start_soon(reset)

    def some_place(self):
        return self.random.choice([*self.log, self.partition.high_watermark])

    def retention(self):
        start = max(self.partition.log_start_offset, self.some_place())
        self.partition.log_start_offset = start
        # The cursor's move is silent. The entry that delayed others may be removed.
        self.dispatcher.wake()

    def take_memory_back(self):
        self.play.budget.drop()

    def slow_disk(self):
        gate, self.partition.gate = self.partition.gate, None
        if gate is None:
            self.partition.gate = trio.Event()
        else:
            gate.set()

    def time_passes(self):
        self.jump(self.random.choice([0.3, 1.1, 2.5]))

    def jump(self, seconds):
        self.play.clock.now += int(seconds * 1_000_000)
        trio.lowlevel.current_clock().jump(seconds + 1e-6)  # Sums of floats may fall short.

    # At rest.

    async def probe(self):
        """Wake the pump without cause. Full consumers that were not asked have room by now; due
        entries are scheduled.
        """
        for consumer in self.consumers:
            if consumer.is_full and not consumer.was_asked:
                consumer.make_room(self.random.choice(self.rooms))
        if self.random.random() < 0.3:
            self.time_passes()
            await self.play.settled()
        before = {consumer: consumer.offsets for consumer in self.consumers}
        self.dispatcher.wake()
        await self.play.settled()
        for consumer, offsets in before.items():
            late = consumer.offsets[len(offsets) :]
            assert not late, f"{late} had been left lying for {consumer.name}"

    async def end(self):
        """Let all consumers take everything."""
        if self.partition.gate is not None:
            self.slow_disk()
        await self.play.settled()
        while len(self.consumers) < self.consumers_max:
            self.join()
        for _ in range(len(self.log) + 5):
            for consumer in self.consumers:
                if consumer.make_room(math.inf):
                    self.dispatcher.wake()
                if consumer.permits < 1000:
                    self.dispatcher.flow(consumer, 1000)
            self.jump(2)
            await self.play.settled()
            for consumer in list(self.consumers):
                await self.play.ack(consumer, *self.wanted(consumer))
            if all(map(self.is_done, self.log)):
                return
        pytest.fail(f"never came: {[missing for missing in self.log if not self.is_done(missing)]}")


STEP_WEIGHTS = {
    RestLife.publish: 16,
    RestLife.publish_otherwise: 2,
    RestLife.join: 4,
    RestLife.leave: 2,
    RestLife.flow: 8,
    RestLife.fill: 4,
    RestLife.drain: 6,
    RestLife.serve: 2,
    RestLife.ack: 8,
    RestLife.nack: 2,
    RestLife.nack_all: 0.5,
    RestLife.commit: 0.2,
    RestLife.seek: 0.2,
    RestLife.seek_elsewhere: 0.2,
    RestLife.retention: 0.2,
    RestLife.take_memory_back: 1,
    RestLife.slow_disk: 2,
    RestLife.time_passes: 2,
}


def some_weights(rng):
    """Return weights of the steps: in each life some steps are never made, others often."""
    return [
        weight * (1 if step in (RestLife.publish, RestLife.join) else rng.choice([0, 1, 1, 4]))
        for step, weight in STEP_WEIGHTS.items()
    ]


def some_limits(rng):
    """Return limits: in some lives no limit is small, in others many are."""
    share = rng.choice([0, 0.1, 0.4])
    return DeliveryLimits(
        **{
            name: rng.choice(values) if rng.random() < share else values[-1]
            for name, values in LIMITS.items()
        }
    )


async def live(kind, rng):
    make, settings, _ = KINDS[kind]
    settings = {name: make() for name, make in settings.items()}
    partition = WakingPartition(rng=rng)
    poller = partition.poller
    limits = some_limits(rng)
    async with (
        stage(make, partition=partition, limits=limits, **settings) as play,
        trio.open_nursery() as nursery,
    ):
        life = RestLife(play, nursery, kind, rng)
        for step in rng.choices([*STEP_WEIGHTS], some_weights(rng), k=STEPS):
            if step is RestLife.publish and not poller.in_pass and rng.random() < 0.7:
                await play.settled()  # The pump may wait only for this.
                poller.begin()
            elif not poller.in_pass and rng.random() < 0.4:
                poller.begin()
            step(life)
            if poller.in_pass and rng.random() < 0.6:
                poller.end()
            if not poller.in_pass and rng.random() < 0.6:
                await play.settled()
                if rng.random() < PROBED:
                    await life.probe()
        if poller.in_pass:
            poller.end()
        await life.end()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
async def test_at_rest_no_consumer_could_receive_more(kind, seed, mock_clock, monkeypatch):
    rng = random.Random(f"{kind} {seed}")
    monkeypatch.setattr("trio._core._run._r", rng)  # Trio shuffles tasks with this.
    await live(kind, rng)
