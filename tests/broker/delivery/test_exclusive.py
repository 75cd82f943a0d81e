"""Exclusive delivery: a single consumer, order, redelivery from the first unacknowledged entry."""

import random

import pytest
import trio

from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.limits import READ_AHEAD_BYTES
from braidlog.broker.errors import SubscriptionBusy
from braidlog.broker.limits import OUTPUT_BYTES_ALL_MAX
from tests.broker.delivery.dispatch_fakes import FakeConsumer, stage

pytestmark = pytest.mark.usefixtures("is_warm")


async def test_second_consumer_is_refused():
    async with stage(ExclusiveDispatcher) as play:
        first = play.join()
        with pytest.raises(SubscriptionBusy):
            play.dispatcher.attach(FakeConsumer("d"))
        play.leave(first)
        play.join()


async def test_a_redelivery_drops_the_present_read():
    async with stage(ExclusiveDispatcher) as play:
        consumer = play.join(permits=10)
        play.partition.entries(1, 1)
        await play.settled()
        play.partition.gate = trio.Event()
        play.partition.entries(1, 1)
        await play.settled()
        play.nack(consumer)
        play.partition.gate.set()
        await play.settled()
        assert consumer.offsets == [0, 1, 0, 1, 2, 3]


async def test_cumulative_ack_with_an_ack_set_leaves_the_rest_of_the_entry():
    async with stage(ExclusiveDispatcher) as play:
        play.partition.entries(2, 10)
        consumer = play.join(permits=20)
        await play.settled()
        await play.dispatcher.acknowledge_to(consumer, play.id(2, 992), lazy=True)
        assert play.cursor.position == 7
        play.dispatcher.redeliver(consumer, [])
        await play.settled()
        assert consumer.offsets == [0, 2, 2]
        assert consumer.inbox[-1].ack_set == (992,)


@pytest.mark.parametrize("seed", range(40))
async def test_against_a_model(seed):
    """Order is kept, no unacknowledged entry is skipped, no acknowledged entry is redelivered."""
    rng = random.Random(seed)
    async with stage(ExclusiveDispatcher) as play:
        partition, spans, acked = play.partition, {}, set()
        consumer, seen = play.join(), 0
        expected = 0  # Entries from here on were not sent since the last rewind.
        for _ in range(80):
            step = rng.choice(["append", "flow", "flow", "ack", "ack_to", "nack", "swap"])
            if step == "append":
                counts = [rng.choice([1, 1, 3]) for _ in range(rng.randint(1, 5))]
                spans.update(zip(partition.entries(*counts), counts, strict=True))
            elif step == "flow":
                play.dispatcher.flow(consumer, rng.randint(1, 6))
            elif step == "ack" and consumer.inbox:
                offset = rng.choice(consumer.offsets)
                acked.add(offset)
                await play.ack(consumer, offset)
            elif step == "ack_to" and consumer.inbox:
                offset = rng.choice(consumer.offsets)
                acked |= {start for start in spans if start <= offset}
                await play.dispatcher.acknowledge_to(consumer, play.id(offset), lazy=True)
            elif step == "nack":
                play.nack(consumer)
                expected = 0
            elif step == "swap":
                play.leave(consumer)
                consumer, seen, expected = play.join(), 0, 0
            before = set(acked)
            await play.settled()
            for offset in consumer.offsets[seen:]:
                due = [
                    start for start in sorted(spans) if start >= expected and start not in before
                ]
                assert offset == due[0]
                expected = offset + 1
            seen = len(consumer.inbox)
            if consumer.permits > 0:
                assert not [start for start in spans if start >= expected and start not in acked]
        done = 0
        while done in acked:
            done += spans[done]
        assert play.cursor.position == done


async def test_nothing_is_read_while_the_memory_for_output_is_used():
    async with stage(ExclusiveDispatcher) as play:
        output = play.budget._output
        output.charge(OUTPUT_BYTES_ALL_MAX)
        play.partition.entries(1, 1)
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == []
        output.charge(-OUTPUT_BYTES_ALL_MAX)
        await play.settled()
        assert consumer.offsets == [0, 1]
        # This also holds for records that arrive while the pump waits.
        output.charge(OUTPUT_BYTES_ALL_MAX)
        play.partition.entries(1)
        await play.settled()
        assert consumer.offsets == [0, 1]
        output.charge(-OUTPUT_BYTES_ALL_MAX)
        await play.settled()
        assert consumer.offsets == [0, 1, 2]


async def test_a_read_reserves_its_memory():
    async with stage(ExclusiveDispatcher) as play:
        play.partition.gate = trio.Event()
        play.partition.entries(1, 1)
        play.join(permits=10)
        await play.settled()
        assert play.budget._output.used == READ_AHEAD_BYTES
        play.partition.gate.set()
        await play.settled()
        assert play.budget._output.used == 0
