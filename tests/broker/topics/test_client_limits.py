"""Limits of clients by settings: three levels, the nearest level counts."""

import pytest

from braidlog.broker.config.topics import TopicsConfig
from braidlog.broker.topics.client_limits import (
    UNLIMITED,
    ClientLimits,
    KnownLimits,
    Rate,
    client_limits,
)
from braidlog.broker.topics.registry import TopicDefaults
from braidlog.broker.topics.topic_setting import NO_LIMIT


def test_no_setting_limits_nothing():
    assert client_limits({}) == ClientLimits()


@pytest.mark.parametrize("none", [0, NO_LIMIT])
def test_zero_and_no_limit_are_no_limit(none):
    settings = {"producers_max": none, "unacked_consumer_max": none, "publish_rate_messages": none}
    limits = client_limits(settings)
    assert (limits.producers, limits.publish) == (None, None)
    assert limits.unacked_consumer == UNLIMITED  # Not the default of the broker.


def test_a_rate_has_a_period_of_a_second_at_least():
    settings = {"dispatch_rate_bytes": 5, "dispatch_rate_period_s": 0}
    assert client_limits(settings).dispatch == Rate(None, 5, 1)
    assert client_limits({"subscribe_rate": 2}).subscribe == Rate(2, None, 30)


def test_limits_are_computed_once_for_a_change_of_a_level():
    known, inherited, own = KnownLimits(), {"producers_max": 1}, {}
    first = known.of(inherited, own)
    assert first.producers == 1 and known.of(inherited, own) is first
    assert known.of(dict(inherited), own) is first  # Nothing changed for clients.
    assert known.of(inherited, {"producers_max": 2}).producers == 2


def test_the_broker_has_the_lowest_level():
    config = TopicsConfig(producers_max=7, unacked_consumer_max=None)
    settings = TopicDefaults.of(config).settings
    assert settings == {"producers_max": 7, "unacked_consumer_max": NO_LIMIT}
    assert TopicDefaults.of(TopicsConfig()).settings == {}
