"""Rates of messages and bytes in Pulsar's statistics."""

import pytest

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.protocols.http.pulsar_admin.client_stats import CONSUMER_RATES
from braidlog.protocols.http.pulsar_admin.statistics import (
    WantedStats,
    partitioned_stats,
    topic_stats,
)
from braidlog.protocols.http.pulsar_admin.traffic_meter import SAMPLED_MAX, TrafficMeter
from braidlog.storage.metadata.names import TopicName
from tests.broker.delivery.dispatch_fakes import FakeConsumer, memory_cursor
from tests.protocols.http.pulsar_admin.test_admin import ADMIN, PARTS, TOPIC
from tests.protocols.http.pulsar_admin.test_non_persistent import NON_PERSISTENT

FIELDS = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut", "averageMsgSize")


class RateClock:
    """The seconds since the start, and the time since 1970."""

    def __init__(self):
        self.seconds = 0.0

    def now_us(self):
        return round((1_000_000 + self.seconds) * 1_000_000)


@pytest.fixture
def clock():
    return RateClock()


@pytest.fixture
def meter(clock):
    return TrafficMeter(clock.now_us, lambda: clock.seconds)


def test_the_first_rate_is_the_average_since_the_counts_began(clock, meter):
    clock.seconds = 50.0
    assert meter.rates("old", (100, 5000), 0) == [2.0, 100.0]  # Since the start of the meter.
    assert meter.rates("new", (100,), clock.now_us() - 20_000_000) == [5.0]
    assert meter.rates("newest", (100,), clock.now_us()) == [100.0]  # As in a second.
    assert meter.rates("future", (100,), clock.now_us() + 5) == [100.0]


def test_later_rates_are_averages_since_a_look_of_ten_seconds_ago_or_more(clock, meter):
    clock.seconds = 100.0
    meter.rates("a", (1000,), 0)
    clock.seconds = 105.0  # Too soon: still since the start.
    assert meter.rates("a", (1050,), 0) == [10.0]
    clock.seconds = 120.0
    assert meter.rates("a", (1040,), 0) == [2.0]  # Since 100.
    clock.seconds = 121.0
    assert meter.rates("a", (1042,), 0) == [2.0]
    clock.seconds = 140.0
    assert meter.rates("a", (1040,), 0) == [0.0]
    clock.seconds = 150.0
    assert meter.rates("a", (5,), 0) == [0.0]  # The counts began again.


def test_the_samples_used_least_are_forgotten(clock, meter):
    clock.seconds = 100.0
    for key in range(SAMPLED_MAX):
        meter.rates(key, (100,), 0)
    meter.rates(0, (100,), 0)
    meter.rates("one more", (100,), 0)
    clock.seconds = 200.0
    assert meter.rates(0, (300,), 0) == [2.0]
    assert meter.rates(1, (300,), 0) == [1.5]


@pytest.fixture
def wanted(meter):
    """Return the wish for statistics of the subscription `s`, by the meter of the test."""
    return WantedStats([b"s"], lambda _: True, "", meter)


async def test_rates_of_topics_and_partitions(ask, broker, clock, wanted):
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    topic = broker.topics.get(TopicName("public", "default", "parts"))
    clock.seconds = 100.0
    await partitioned_stats(broker, topic, wanted, per_partition=True)
    for partition, messages in zip(topic.partitions, (1000, 3000), strict=True):
        broker.metrics.records_in("pulsar", "parts", messages, 50 * messages, partition.traffic)
        broker.metrics.records_out("pulsar", "parts", 2, 20, partition.traffic)
    clock.seconds = 200.0
    whole = await partitioned_stats(broker, topic, wanted, per_partition=True)
    assert [whole[field] for field in FIELDS] == [40.0, 2000.0, 0.04, 0.4, 50.0]
    rates = [shown["msgRateIn"] for shown in whole["partitions"].values()]
    assert rates == [10.0, 30.0]


async def test_rates_of_consumers_and_subscriptions(ask, broker, clock, wanted):
    await ask("PUT", TOPIC, status=204)
    topic = broker.topics.get(TopicName("public", "default", "orders"))
    subscription = broker.subscriptions.open(topic, b"s")
    subscription.start(0, 0)
    consumers = [FakeConsumer("a"), FakeConsumer("b")]
    dispatcher = broker.dispatchers.make(
        topic.partitions[0], b"reader", SubscriptionKind.SHARED, memory_cursor(0)
    )
    for consumer in consumers:
        broker.dispatchers.attach(dispatcher, consumer)
    clock.seconds = 100.0
    await topic_stats(broker, topic, topic.partitions, wanted)
    for consumer in consumers:
        consumer.messages_out, consumer.bytes_out = 1000, 50_000
        consumer.messages_redelivered, consumer.messages_acked = 200, 600
    broker.metrics.expired(topic.name.full, "s", 300)
    clock.seconds = 200.0
    stats = await topic_stats(broker, topic, topic.partitions, wanted)
    shown = stats["subscriptions"]["reader"]
    assert [shown[field] for field in CONSUMER_RATES] == [20.0, 1000.0, 4.0, 12.0]
    for consumer in shown["consumers"]:
        assert [consumer[field] for field in CONSUMER_RATES] == [10.0, 500.0, 2.0, 6.0]
    assert stats["subscriptions"]["s"]["msgRateExpired"] == 3.0


async def test_requests_show_rates(ask, broker):
    await ask("PUT", TOPIC, status=204)
    channel = broker.non_persistent.get(TopicName("public", "default", "news"), None, make=True)
    subscription = channel.subscribe(b"s", SubscriptionKind.SHARED)
    consumer = FakeConsumer("c")
    consumer.messages_out = consumer.bytes_out = subscription.messages_dropped = 100
    subscription.attach(consumer)
    partition = broker.topics.get(TopicName("public", "default", "orders")).partitions[0]
    for traffic in (channel.traffic, partition.traffic):
        broker.metrics.records_in("pulsar", "orders", 400, 40_000, traffic)
    shown = (await ask("GET", f"{NON_PERSISTENT}/stats")).json
    group = shown["subscriptions"]["s"]
    assert min(group["msgRateOut"], group["msgDropRate"], group["consumers"][0]["msgRateOut"]) > 0
    bundles = (await ask("GET", f"{ADMIN}/broker-stats/topics")).json["public/default"]
    (by_name,) = (bundle["persistent"] for bundle in bundles.values())
    of_broker = by_name["persistent://public/default/orders"]
    for stats in (shown, (await ask("GET", f"{TOPIC}/stats")).json, of_broker):
        assert stats["msgRateIn"] > 0
        assert stats["averageMsgSize"] == pytest.approx(100)
