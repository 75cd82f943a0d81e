"""The publish rate of a partition, for the producers of all protocols together."""

from types import SimpleNamespace

import pytest

from braidlog.broker.delivery.client_policies import ClientPolicies
from braidlog.broker.topics.client_limits import ClientLimits, Rate

RATE = Rate(messages=100, size=None)


@pytest.fixture
def pause_s(broker):
    policies = ClientPolicies(broker.backlogs, broker.subscriptions, lambda: 0.0)

    def pause_s(rate, partition_id, messages):
        topic = SimpleNamespace(client_limits=ClientLimits(publish=rate))
        channel = SimpleNamespace(partition_id=partition_id)
        return policies.publish_pause_s(topic, channel, messages, 0)

    return pause_s


async def test_producers_of_a_partition_share_its_rate(pause_s):
    assert pause_s(RATE, 1, 50) == 0.0  # Half a second's messages may come at once.
    assert pause_s(RATE, 1, 50) == pytest.approx(0.5)
    assert pause_s(RATE, 2, 50) == 0.0


async def test_pause_is_limited(pause_s):
    assert pause_s(RATE, 1, 1_000_000) == 10.0


async def test_there_is_no_pause_without_a_rate(pause_s):
    assert pause_s(None, 1, 1_000_000) == 0.0
