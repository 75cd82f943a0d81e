"""Rates of a consumer, measured since an earlier query that is long enough ago."""

from braidlog.broker.delivery.consumer_rates import WINDOW_US, RateMeter, Rates
from tests.broker.delivery.dispatch_fakes import FakeConsumer

SECOND = 1_000_000


def test_the_first_query_returns_the_average_since_the_start():
    consumer = FakeConsumer("c")
    consumer.messages_out, consumer.bytes_out, consumer.messages_acked = 100, 5000, 50
    assert RateMeter(0).look(consumer, 10 * SECOND) == Rates(10.0, 500.0, 0.0, 5.0)
    assert RateMeter(5).look(consumer, 5) == Rates()


def test_later_queries_cover_the_time_since_an_earlier_query():
    consumer, meter = FakeConsumer("c"), RateMeter(0)
    consumer.messages_out = 1000
    meter.look(consumer, WINDOW_US)
    meter.look(consumer, 2 * WINDOW_US)
    consumer.messages_out = 1100
    assert meter.look(consumer, 2 * WINDOW_US + WINDOW_US // 2).messages_out == 100 / 15
    meter.look(consumer, 3 * WINDOW_US)
    assert meter.look(consumer, 4 * WINDOW_US).messages_out == 100 / 20
    meter.look(consumer, 5 * WINDOW_US)
    assert meter.look(consumer, 6 * WINDOW_US).messages_out == 0.0
