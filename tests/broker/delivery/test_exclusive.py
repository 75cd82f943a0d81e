"""Exclusive delivery: a single consumer, order, redelivery from the first unacknowledged entry."""

import random

import pytest
import trio

from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.limits import READ_AHEAD_BYTES, DeliveryLimits
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


async def test_redelivery_starts_at_the_first_unacknowledged_entry_and_ignores_ids():
    async with stage(ExclusiveDispatcher) as play:
        play.partition.entries(1, 1, 1, 1)
        consumer = play.join(permits=10)
        await play.settled()
        await play.ack(consumer, 0, 2)
        play.nack(consumer, 3)
        await play.settled()
        assert consumer.offsets == [0, 1, 2, 3, 1, 3]
        assert {delivery.redelivery_count for delivery in consumer.inbox} == {0}


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


async def test_cumulative_ack_resolves_down_and_never_moves_back():
    async with stage(ExclusiveDispatcher) as play:
        play.partition.entries(3, 3, 1)
        consumer = play.join(permits=10)
        await play.settled()
        for entry, position in [(3, 6), (1, 6), (6, 7), (99, 7)]:
            await play.dispatcher.acknowledge_to(consumer, play.id(entry), lazy=True)
            assert play.cursor.position == position


async def test_a_cumulative_ack_below_an_entry_acknowledges_the_entry_before():
    """Clients subtract 1 from the id of a batch within which they are."""
    async with stage(ExclusiveDispatcher) as play:
        play.partition.entries(5, 5)
        consumer = play.join(permits=10)
        await play.settled()
        await play.dispatcher.acknowledge_to(consumer, play.id(5 - 1), lazy=True)
        assert play.cursor.position == 5


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


async def test_acks_of_entries_delivered_long_ago_are_looked_up():
    async with stage(ExclusiveDispatcher, limits=DeliveryLimits(delivered_max=2)) as play:
        play.partition.entries(4, 1, 1, 1)
        consumer = play.join(permits=10)
        await play.settled()
        await play.ack(consumer, 0)
        assert play.cursor.position == 4


@pytest.mark.parametrize("seed", range(40))
async def test_against_a_model(seed):
    """Order is kept, no unacknowledged entry is skipped, no acknowledged entry is redelivered."""
    rng = random.Random(seed)
    async with stage(ExclusiveDispatcher) as play:
        partition, spans, acked = play.partition, {}, set()
        consumer, seen = play.join(), 0
        expected = 0  # Entries from here on were not sent since the last rewind.
        for _ in range(80):
            what = rng.choice(["append", "flow", "flow", "ack", "ack_to", "nack", "swap"])
            if what == "append":
                counts = [rng.choice([1, 1, 3]) for _ in range(rng.randint(1, 5))]
                spans.update(zip(partition.entries(*counts), counts, strict=True))
            elif what == "flow":
                play.dispatcher.flow(consumer, rng.randint(1, 6))
            elif what == "ack" and consumer.inbox:
                offset = rng.choice(consumer.offsets)
                acked.add(offset)
                await play.ack(consumer, offset)
            elif what == "ack_to" and consumer.inbox:
                offset = rng.choice(consumer.offsets)
                acked |= {one for one in spans if one <= offset}
                await play.dispatcher.acknowledge_to(consumer, play.id(offset), lazy=True)
            elif what == "nack":
                play.nack(consumer)
                expected = 0
            elif what == "swap":
                play.leave(consumer)
                consumer, seen, expected = play.join(), 0, 0
            before = set(acked)
            await play.settled()
            for offset in consumer.offsets[seen:]:
                due = [one for one in sorted(spans) if one >= expected and one not in before]
                assert offset == due[0]
                expected = offset + 1
            seen = len(consumer.inbox)
            if consumer.permits > 0:
                assert not [one for one in spans if one >= expected and one not in acked]
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
