"""Searches for a position in a partition that is removed before the result."""

import pytest

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.delivery.cursor import DispatchCursor
from braidlog.broker.errors import TopicNotFound
from braidlog.broker.reading.entries import resolve_time
from tests.broker.positions.replaced import GROUP, replace_meanwhile, two_partitions


async def test_expiry_in_a_removed_partition_does_not_affect_its_successor(broker):
    topic = await two_partitions(broker)
    subscription = broker.subscriptions.get(topic, GROUP)
    old = topic.partitions[1]

    async def expire():
        with pytest.raises(TopicNotFound):  # An answer of 0 would claim that nothing is as old.
            await broker.backlogs.expire(subscription, old, 1)

    await replace_meanwhile(broker, topic, expire)
    assert subscription.position(1) == 0


async def test_a_seek_in_a_removed_partition_does_not_affect_its_successor(broker):
    topic = await two_partitions(broker)
    subscription = broker.subscriptions.get(topic, GROUP)
    old = topic.partitions[1]
    cursor = DispatchCursor(subscription, 1)
    dispatcher = broker.dispatchers.make(old, GROUP, SubscriptionKind.EXCLUSIVE, cursor)

    async def seek():
        with pytest.raises(TopicNotFound):
            await dispatcher.reset(lambda: resolve_time(old, broker.now_us()))

    await replace_meanwhile(broker, topic, seek)
    assert subscription.position(1) == 0
