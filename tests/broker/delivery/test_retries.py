"""An unreadable place is retried at growing intervals, and delays only dependent entries."""

import math

import pytest
import structlog

from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.failover import FailoverDispatcher
from braidlog.broker.delivery.key_shared import KeySharedDispatcher
from braidlog.broker.delivery.key_slots import KeyRing
from braidlog.broker.delivery.retries import READ_AGAIN_S, READ_AGAIN_S_MAX, Retries
from braidlog.broker.delivery.shared import SharedDispatcher
from tests.broker.delivery.dispatch_fakes import stage
from tests.broker.delivery.entry_fakes import FailingPartition

pytestmark = pytest.mark.usefixtures("is_warm")


def staged(kind):
    settings = {"policy": KeyRing()} if kind is KeySharedDispatcher else {}
    return stage(kind, partition=FailingPartition(), **settings)


ANY_KIND = pytest.mark.parametrize(
    "kind", [ExclusiveDispatcher, FailoverDispatcher, SharedDispatcher, KeySharedDispatcher]
)


@ANY_KIND
async def test_an_unreadable_place_is_read_again(kind, autojump_clock):
    async with staged(kind) as play:
        for _ in range(3):
            play.partition.entries(1)
        play.partition.failing.add(1)
        with structlog.testing.capture_logs() as lines:
            consumer = play.join(permits=10)
            await play.passed(1000)
        assert consumer.offsets == [0]
        assert 10 <= play.partition.failures <= 25, "ever later, and a minute apart in the end"
        assert len([line for line in lines if line["event"] == "delivery_stopped"]) == 1
        play.partition.failing.clear()
        await play.passed(61)
        assert consumer.offsets == [0, 1, 2]
        assert play.dispatcher.stopped_at is None


@ANY_KIND
async def test_an_unreadable_redelivery_is_read_again(kind, autojump_clock):
    async with staged(kind) as play:
        for _ in range(3):
            play.partition.entries(1)
        consumer = play.join(permits=10)
        await play.settled()
        play.partition.failing.add(1)
        play.nack(consumer)
        await play.passed(1000)
        assert 10 <= play.partition.failures <= 25
        play.partition.failing.clear()
        await play.passed(61)
        assert sorted(consumer.offsets) == [0, 0, 1, 1, 2, 2]
        await play.ack(consumer, 0, 1, 2)
        assert play.cursor.position == 3


async def test_an_unreadable_redelivery_delays_no_other_entry(autojump_clock):
    async with staged(SharedDispatcher) as play:
        for _ in range(3):
            play.partition.entries(1)
        consumer = play.join(permits=20)
        await play.settled()
        play.partition.failing.add(0)
        play.dispatcher.redeliver(consumer, [])
        play.partition.entries(1)
        await play.settled()
        assert sorted(consumer.offsets) == [0, 1, 1, 2, 2, 3]
        play.leave(consumer)
        other = play.join(permits=20)
        await play.passed(100)
        assert other.offsets == [], "a rewind begins with what cannot be read"
        play.partition.failing.clear()
        await play.passed(100)
        assert sorted(other.offsets) == [0, 1, 2, 3]


async def test_an_unreadable_entry_delays_only_its_key(autojump_clock):
    async with staged(KeySharedDispatcher) as play:
        for key in (b"a", b"b", b"a", b"b"):
            play.partition.entries(1, metadata={"partition_key": key})
        consumer = play.join(permits=20)
        await play.settled()
        play.partition.failing.add(0)
        play.dispatcher.redeliver(consumer, [])
        play.partition.entries(1, metadata={"partition_key": b"a"})
        await play.passed(100)
        assert consumer.offsets == [0, 1, 2, 3, 1, 3]
        play.partition.failing.clear()
        await play.passed(100)
        assert consumer.offsets == [0, 1, 2, 3, 1, 3, 0, 2, 4]


def test_each_wait_is_twice_as_long_up_to_a_limit():
    retries, now, waits = Retries(), 0.0, []
    for number in range(9):
        assert retries.failed(5, now) == (number == 0)
        assert 5 in retries and retries
        waits.append(retries.due_at - now)
        assert list(retries.pop_due(retries.due_at - 0.1)) == []
        now = retries.due_at
        assert list(retries.pop_due(now)) == [5]
        assert 5 not in retries and not retries
        assert retries.due_at == math.inf
    assert waits == [min(READ_AGAIN_S * 2**number, READ_AGAIN_S_MAX) for number in range(9)]
    retries.forget(5)
    assert retries.failed(5, now)
    assert retries.due_at == now + READ_AGAIN_S
