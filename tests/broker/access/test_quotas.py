"""Limits per principal: rates with a burst of a second, connections, created topics per hour."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.quotas import PAUSE_S_MAX, PRINCIPALS_MAX, Quotas
from braidlog.broker.access.rights import ANONYMOUS, Action, Principal, Resource
from braidlog.broker.config.settings import AccessConfig, PrincipalLimits
from braidlog.broker.errors import LimitExceeded
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import Nothing

ANNA, BERT = Principal("anna"), Principal("bert")
ORDERS = Resource.of_topic(TopicName("public", "default", "orders"))


class TimedQuotas:
    """Quotas with a clock that the test sets."""

    def __init__(self, by_user=None, **limits):
        self.clock_s = 100.0
        config = AccessConfig(limits=PrincipalLimits(**limits), user_limits=by_user or {})
        self.quotas = Quotas(config, lambda: self.clock_s)


def test_a_principal_without_limits_has_no_allowance():
    assert TimedQuotas().quotas.of(ANNA) is None
    assert TimedQuotas(requests_per_s=1).quotas.of(ANONYMOUS) is None


def test_a_rate_allows_a_burst_and_then_waits():
    limited = TimedQuotas(requests_per_s=10)
    allowance = limited.quotas.of(ANNA)
    assert allowance.spend(10, 0) == 0
    assert allowance.spend(5, 0) == pytest.approx(0.5)
    limited.clock_s += 0.5
    assert allowance.spend(0, 0) == pytest.approx(0)
    limited.clock_s += 1000  # Long unused principals are removed.
    assert allowance.spend(20, 0) == pytest.approx(1)


def test_the_slower_of_two_rates_counts_and_pauses_are_bounded():
    allowance = TimedQuotas(requests_per_s=10, bytes_per_s=1000).quotas.of(ANNA)
    assert allowance.spend(1, 3000) == pytest.approx(2)
    assert allowance.spend(1, 10**9) == PAUSE_S_MAX


def test_connections_of_a_principal_are_counted():
    quotas = TimedQuotas(connections=2, by_user={"bert": PrincipalLimits(connections=1)}).quotas
    quotas.of(ANNA).connect()
    quotas.of(ANNA).connect()
    with pytest.raises(LimitExceeded, match="anna has 2 connections already"):
        quotas.of(ANNA).connect()
    quotas.of(BERT).connect()
    with pytest.raises(LimitExceeded):
        quotas.of(BERT).connect()


def test_allowed_topic_creations_are_counted():
    limited = TimedQuotas(topics_per_hour=2)
    access = Access(Nothing(Action.CREATE, Action.PRODUCE), quotas=limited.quotas)
    for _ in range(2):
        access.check(ANNA, Action.CREATE, ORDERS)
    for _ in range(2):  # A refused connection costs nothing.
        with pytest.raises(LimitExceeded, match="the next one in 1800 s"):
            access.check(ANNA, Action.CREATE, ORDERS)
    access.check(ANNA, Action.PRODUCE, ORDERS)
    limited.clock_s += 1801
    access.check(ANNA, Action.CREATE, ORDERS)


def test_principals_without_a_connection_are_forgotten_first():
    quotas = TimedQuotas(connections=2).quotas
    quotas.of(ANNA).connect()
    for number in range(PRINCIPALS_MAX + 10):
        quotas.of(Principal(str(number)))
    assert quotas.of(ANNA).connections == 1
    assert len(quotas._allowances) == PRINCIPALS_MAX
