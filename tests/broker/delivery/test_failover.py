"""Failover delivery: the active consumer, its changes, and their notifications."""

import pytest

from braidlog.broker.delivery.failover import DELAY_S, FailoverDispatcher
from tests.broker.delivery.dispatch_fakes import stage
from tests.broker.delivery.entry_fakes import FakePartition

pytestmark = pytest.mark.usefixtures("is_warm")


def partition_of_a_partitioned_topic(index):
    return FakePartition(index=index, partitioned=True)


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
        present = {name: play.join(name=name) for name in "bd"}
        await play.settled()
        for name in "cacd":  # The numbers of the other consumers change too.
            if name in present:
                play.leave(present.pop(name))
            else:
                present[name] = play.join(name=name)
            await play.passed(DELAY_S + 1)
            names = sorted(present)
            assert play.dispatcher.active.name == names[index % len(names)]
            assert [n for n in names if present[n].changes[-1]] == [play.dispatcher.active.name]


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
