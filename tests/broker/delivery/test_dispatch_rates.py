"""Rates of delivery hold over seconds, whatever a turn delivers."""

import math

import pytest
import trio

from braidlog.broker.delivery.dispatch_rates import (
    RELATIVE_WAIT_S_MAX,
    WAIT_S_MIN,
    PartitionRates,
    RateLimit,
)
from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.key_shared import KeySharedDispatcher
from braidlog.broker.delivery.key_slots import KeyRing
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.topics.client_limits import Rate
from braidlog.broker.traffic import PartitionTraffic
from tests.broker.delivery.dispatch_fakes import stage


def test_a_limit_counts_messages_and_bytes():
    limit = RateLimit(Rate(10, 1000, 2), lambda: 0.0)  # 5 messages and 500 bytes a second.
    assert limit.room() == (2.5, 250)
    assert limit.spend(1, 750) == 1.0
    assert limit.wait_s() == 1.0
    assert RateLimit(Rate(10, None), lambda: 0.0).room() == (5.0, math.inf)


def test_a_wait_is_long_enough_for_a_turn():
    limit = RateLimit(Rate(10_000, None), lambda: 0.0)
    limit.spend(5000, 0)
    assert limit.wait_s() == WAIT_S_MIN


def test_a_client_that_comes_late_loses_no_part_of_the_rate():
    """A busy machine lets a client ask for the next messages later, up to half a second."""
    now_s = 0.0
    limit = RateLimit(Rate(100, None), lambda: now_s)
    limit.spend(50, 0)  # The burst.
    passed = 0
    for pause_s in (0.3, 0.5) * 10:
        now_s += pause_s
        messages = round(limit.room()[0])
        limit.spend(messages, 0)
        passed += messages
    assert passed == 800  # In 8 s.


def test_subscriptions_of_a_partition_share_its_limit():
    rates = PartitionRates(lambda: 0.0)
    limit = rates.of(1, Rate(10, None))
    assert rates.of(1, Rate(10, None)) is limit
    assert rates.of(1, Rate(20, None)) is not limit
    assert rates.of(1, None) is None and len(rates) == 0


def test_a_relative_rate_is_added_to_the_rate_of_publishing():
    now_s, traffic = 0.0, PartitionTraffic()
    limit = RateLimit(Rate(10, 1000, 2, is_relative=True), lambda: now_s, traffic)
    assert limit.room() == (2.5, 250)
    for _ in range(20):
        now_s += 0.5
        traffic.records_in += 50
        traffic.bytes_in += 500
        limit.room()
    assert limit.room() == (52.5, 750)  # Half a second of 100 + 5 messages, 1000 + 500 bytes.
    for _ in range(20):
        now_s += 0.5
        limit.room()
    assert limit.room() == (2.5, 250)  # Nothing is published any more.


def test_a_pause_is_no_part_of_the_average():
    """After an hour without a look, the rate of publishing counts within seconds."""
    now_s, traffic = 0.0, PartitionTraffic()
    limit = RateLimit(Rate(10, None, is_relative=True), lambda: now_s, traffic)
    now_s = 3600.0
    for _ in range(4):
        now_s += 0.5
        traffic.records_in += 50
        limit.room()
    assert limit.room()[0] > 50


def test_a_relative_rate_waits_a_second_at_most():
    limit = RateLimit(Rate(1, None, is_relative=True), lambda: 0.0, PartitionTraffic())
    limit.spend(1000, 0)
    assert limit.wait_s() == RELATIVE_WAIT_S_MAX


KINDS = [
    (ExclusiveDispatcher, {}),
    (SharedDispatcher, {}),
    (KeySharedDispatcher, {"policy": KeyRing()}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
async def test_a_rate_holds_over_ten_seconds(kind, options, autojump_clock):
    async with stage(kind, **options) as play:
        play.limit(subscription_dispatch=Rate(50, None))
        play.partition.entries(*[1] * 2000)
        consumer = play.join(permits=5000)
        await trio.sleep(10)
        assert 450 <= len(consumer.inbox) <= 550
        play.limit()
        await trio.sleep(1)
        assert len(consumer.inbox) == 2000


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
async def test_a_single_subscription_has_a_rate_of_its_own(kind, options, autojump_clock):
    async with stage(kind, **options) as play:
        own = {b"other": Rate(1, None), b"s": Rate(100, None)}
        play.limit(subscription_dispatch=Rate(50, None), single_dispatch=own)
        play.partition.entries(*[1] * 3000)
        consumer = play.join(permits=5000)
        await trio.sleep(10)
        assert 900 <= len(consumer.inbox) <= 1100
        play.limit(subscription_dispatch=Rate(50, None), single_dispatch={b"s": None})
        await trio.sleep(1)
        assert len(consumer.inbox) == 3000


@pytest.mark.parametrize("level", ["dispatch", "subscription_dispatch"])
async def test_a_relative_rate_follows_the_messages_that_are_published(level, autojump_clock):
    async with stage(SharedDispatcher) as play:
        play.limit(**{level: Rate(50, None, is_relative=True)})
        play.partition.entries(*[1] * 3000)  # A backlog.
        consumer = play.join(permits=5000)
        for _ in range(50):  # 100 messages a second.
            await trio.sleep(0.2)
            play.partition.entries(*[1] * 20)
            play.partition.traffic.records_in += 20
        assert 1350 <= len(consumer.inbox) <= 1650  # 1000 published, and 50 a second more.
