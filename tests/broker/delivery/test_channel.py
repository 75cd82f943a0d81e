"""Rules of both kinds of channel: their callers do not ask which kind a channel is."""

from functools import partial

import pytest

from braidlog.broker import errors
from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.reading.entries import EntryId
from braidlog.storage.metadata.names import TopicName
from tests.broker.delivery.dispatch_fakes import FakeConsumer, memory_cursor

NAME = TopicName("public", "default", "t")


@pytest.fixture(params=["persistent", "non-persistent"])
async def opened(broker, request):
    """A channel, a subscription with a consumer, and a call that deletes the topic."""
    consumer = FakeConsumer("c")
    if request.param == "persistent":
        await broker.topics.create(NAME, 1)
        channel = broker.topics.partition(NAME, 0)
        cursor = memory_cursor(0)
        delivery = broker.dispatchers.make(channel, b"s", SubscriptionKind.EXCLUSIVE, cursor)
        delete = partial(broker.topics.delete, NAME)
    else:
        channel = broker.non_persistent.get(NAME, None, make=True)
        delivery = channel.subscribe(b"s", SubscriptionKind.EXCLUSIVE)
        delete = partial(broker.non_persistent.delete, NAME)
    delivery.attach(consumer)
    return channel, delivery, consumer, delete


async def test_a_channel_of_a_deleted_topic_takes_no_messages(opened):
    channel, _, _, delete = opened
    channel.check_open()
    await channel.check_room()
    assert not channel.lacked_room and channel.known_sequences is None
    await delete()
    with pytest.raises(errors.TopicNotFound):
        channel.check_open()


async def test_only_a_persistent_channel_stores(opened):
    channel, delivery, _, _ = opened
    for part in (channel, delivery):
        if channel.is_persistent:
            assert part.stored() is part
        else:
            with pytest.raises(errors.NotSupported):
                part.stored()
    assert delivery.redelivers == channel.is_persistent


async def test_permits_are_kept_and_a_consumer_that_leaves_twice_leaves_once(opened):
    _, delivery, consumer, _ = opened
    delivery.flow(consumer, 3)
    assert (consumer.permits, delivery.backlog) == (3, 0)
    delivery.leave(consumer)
    delivery.leave(consumer)
    assert not delivery.consumers and not consumer.is_attached
    assert delivery.unsubscribe() == 0  # The position was never stored.


async def test_an_acknowledgement_of_no_entry_changes_nothing(opened):
    channel, delivery, consumer, _ = opened
    unknown = EntryId(channel.ledger_id + 1, 0)
    assert await delivery.acknowledge(consumer, [unknown], lazy=True) == 0
    assert await delivery.acknowledge_to(consumer, unknown, lazy=True) == 0
    delivery.redeliver(consumer, [])
    assert not consumer.unacked
