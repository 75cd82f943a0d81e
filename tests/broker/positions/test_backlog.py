"""Where a position is looked for in a partition, and that one has gone when it is found."""

import pytest

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.delivery.cursor import SubscriptionCursor
from braidlog.broker.delivery.entries import resolve_time
from braidlog.broker.errors import TopicNotFound
from tests.broker.positions.replaced import GROUP, replace_meanwhile, two_partitions


async def test_what_is_too_old_in_a_partition_is_not_expired_in_the_next_of_its_number(broker):
    topic = await two_partitions(broker)
    subscription = broker.subscriptions.get(topic, GROUP)
    old = topic.partitions[1]

    async def expire():
        assert await broker.backlogs.expire(subscription, old, 1) == 0

    await replace_meanwhile(broker, topic, expire)
    assert subscription.position(1) == 0


async def test_a_seek_in_a_partition_does_not_move_a_position_in_the_next_of_its_number(broker):
    topic = await two_partitions(broker)
    subscription = broker.subscriptions.get(topic, GROUP)
    old = topic.partitions[1]
    cursor = SubscriptionCursor(subscription, 1)
    dispatcher = broker.dispatchers.make(old, GROUP, SubscriptionKind.EXCLUSIVE, cursor)

    async def seek():
        with pytest.raises(TopicNotFound):
            await dispatcher.reset(lambda: resolve_time(old, broker.now_us()))

    await replace_meanwhile(broker, topic, seek)
    assert subscription.position(1) == 0
