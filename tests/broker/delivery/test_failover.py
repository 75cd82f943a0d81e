"""Failover delivery: the active consumer, its changes, and their notifications."""

import pytest

from braidlog.broker.delivery.failover import DELAY_S, FailoverDispatcher
from tests.broker.delivery.dispatch_fakes import stage
from tests.broker.delivery.entry_fakes import FakePartition

pytestmark = pytest.mark.usefixtures("is_warm")


def partition_of_a_partitioned_topic(index):
    return FakePartition(index=index, partitioned=True)


async def test_the_first_consumer_is_active_and_receives_everything_in_order():
    async with stage(FailoverDispatcher) as play:
        play.partition.entries(1, 1, 1)
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == [0, 1, 2]
        assert consumer.changes == [True]


@pytest.mark.parametrize("index", range(4))
async def test_partitions_are_spread_over_the_names(index):
    async with stage(FailoverDispatcher, partition=partition_of_a_partitioned_topic(index)) as play:
        play.partition.entries(1)
        consumers = [play.join(permits=10, name=name) for name in ("b", "a", "c")]
        await play.settled()
        order = sorted(consumers, key=lambda consumer: consumer.name)
        assert play.dispatcher.active is order[index % 3]
        assert [consumer.offsets for consumer in order].index([0]) == index % 3


@pytest.mark.parametrize("index", range(4))
async def test_each_join_and_leave_spreads_the_partitions_again(autojump_clock, index):
    async with stage(FailoverDispatcher, partition=partition_of_a_partitioned_topic(index)) as play:
        there = {name: play.join(name=name) for name in "bd"}
        await play.settled()
        for name in "cacd":  # The numbers of the other consumers change too.
            if name in there:
                play.leave(there.pop(name))
            else:
                there[name] = play.join(name=name)
            await play.passed(DELAY_S + 1)
            names = sorted(there)
            assert play.dispatcher.active.name == names[index % len(names)]
            assert [n for n in names if there[n].changes[-1]] == [play.dispatcher.active.name]


async def test_a_better_priority_precedes_the_name():
    async with stage(FailoverDispatcher, partition=partition_of_a_partitioned_topic(0)) as play:
        play.join(permits=10, name="a", priority=1)
        better = play.join(permits=10, name="z", priority=0)
        await play.settled()
        assert play.dispatcher.active is better


async def test_an_unpartitioned_topic_uses_the_ring_of_names():
    async with stage(FailoverDispatcher) as play:
        names = [f"c{number}" for number in range(5)]
        consumers = [play.join(permits=10, name=name) for name in names]
        await play.settled()
        chosen = play.dispatcher.active.name
        for consumer in consumers:
            play.leave(consumer)
        for name in reversed(names):
            play.join(permits=10, name=name)
        await play.settled()
        assert play.dispatcher.active.name == chosen, "whoever came first"


async def test_an_inactive_new_consumer_alone_is_notified_at_once():
    async with stage(FailoverDispatcher, partition=partition_of_a_partitioned_topic(0)) as play:
        first = play.join(permits=10, name="a")
        await play.settled()
        second = play.join(permits=10, name="b")
        assert second.changes == [False]
        await play.settled()
        play.leave(second)
        await play.settled()
        assert first.changes == [True]


async def test_the_next_consumer_receives_the_unacknowledged_entries():
    async with stage(FailoverDispatcher, partition=partition_of_a_partitioned_topic(0)) as play:
        play.partition.entries(1, 1, 1)
        first = play.join(permits=10, name="a")
        await play.settled()
        second = play.join(permits=10, name="b")
        await play.settled()
        await play.ack(first, 0)
        assert (first.offsets, second.offsets) == ([0, 1, 2], [])
        play.leave(first)
        await play.settled()
        assert second.offsets == [1, 2]
        assert second.changes == [False, True]


async def test_a_record_during_a_leave_of_the_active_consumer_hides_no_entry():
    async with stage(FailoverDispatcher, partition=partition_of_a_partitioned_topic(0)) as play:
        first, second = (play.join(permits=10, name=name) for name in ("a", "b"))
        play.partition.entries(1, 1)
        await play.settled()
        assert first.offsets == [0, 1]
        play.leave(first)
        play.partition.entries(1)  # The pump waits for the entry, and has no turn before.
        await play.settled()
        assert second.offsets == [0, 1, 2]


async def test_a_displaced_consumer_has_a_second_for_its_acknowledgements(autojump_clock):
    async with stage(FailoverDispatcher, partition=partition_of_a_partitioned_topic(0)) as play:
        play.partition.entries(1, 1)
        old = play.join(permits=10, name="b")
        await play.settled()
        before = autojump_clock.current_time()
        new = play.join(permits=10, name="a")
        play.partition.entries(1)
        await play.ack(old, 0)
        await play.passed(DELAY_S + 1)
        assert autojump_clock.current_time() >= before + DELAY_S
        assert (old.offsets, new.offsets) == ([0, 1], [1, 2])
        assert (old.changes, new.changes) == ([True, False], [True])


async def test_an_inactive_consumer_triggers_no_redelivery():
    async with stage(FailoverDispatcher, partition=partition_of_a_partitioned_topic(0)) as play:
        play.partition.entries(1, 1)
        first, second = (play.join(permits=10, name=name) for name in "ab")
        await play.settled()
        play.nack(second)
        await play.settled()
        assert first.offsets == [0, 1]
        play.nack(first)
        await play.settled()
        assert first.offsets == [0, 1, 0, 1]
