"""The register of dispatchers: found by name, linked to cursors, readers awaited after a seek."""

import trio
from structlog.testing import capture_logs

from broker.delivery.consumer import SubscriptionKind
from broker.delivery.cursor import MemoryCursor, SubscriptionCursor
from broker.delivery.registry import KEPT_S, Dispatchers
from broker.errors import OwnedElsewhere
from storage.metadata.names import TopicName
from tests.broker.delivery.dispatch_fakes import FakeConsumer
from tests.broker.delivery.entry_fakes import FakePartition
from tests.broker.metadata_fakes import House

EXCLUSIVE, SHARED = SubscriptionKind.EXCLUSIVE, SubscriptionKind.SHARED


def attached(dispatchers, partition, cursor, kind=EXCLUSIVE):
    dispatcher = dispatchers.make(partition, b"s", kind, cursor)
    consumer = FakeConsumer("c")
    dispatchers.attach(dispatcher, consumer)
    return dispatcher, consumer


async def test_dispatcher_is_found_while_it_has_consumers():
    dispatchers, partition = Dispatchers(), FakePartition()
    dispatcher, consumer = attached(dispatchers, partition, MemoryCursor(0))
    assert dispatchers.find(partition, b"s") is dispatcher
    assert dispatchers.find(partition, b"t") is None
    assert dispatchers.find(FakePartition(partition_id=8), b"s") is None
    dispatchers.detach(dispatcher, consumer)
    assert dispatchers.find(partition, b"s") is None
    dispatchers.detach(dispatcher, consumer)
    assert len(dispatchers) == 0


async def test_a_topic_that_moves_while_it_is_read_ends_its_delivery_and_is_no_error():
    dispatchers = Dispatchers()
    dispatcher, consumer = attached(dispatchers, FakePartition(), MemoryCursor(0))

    async def read():
        raise OwnedElsewhere("no broker owns it now", 0)

    dispatcher.run = read
    with capture_logs() as logged:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispatchers.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert consumer.was_disconnected and not logged


async def test_kind_may_change_once_nobody_is_there():
    dispatchers, partition = Dispatchers(), FakePartition()
    dispatcher, consumer = attached(dispatchers, partition, MemoryCursor(0))
    dispatchers.detach(dispatcher, consumer)
    dispatcher, _ = attached(dispatchers, partition, MemoryCursor(0), SHARED)
    assert dispatcher.kind is SHARED


async def test_moves_of_other_listeners_reach_the_consumers_of_that_partition_alone():
    house = House()
    topic = await house.topics.create(TopicName("public", "default", "t"), 2)
    subscription = house.subscriptions.open(topic, b"s")
    dispatchers = Dispatchers()
    consumers = []
    for index, partition in enumerate((FakePartition(), FakePartition(partition_id=8))):
        subscription.start(index, 0)
        cursor = SubscriptionCursor(subscription, index)
        consumers.append(attached(dispatchers, partition, cursor)[1])
    subscription.commit(0, 5)
    assert not any(consumer.was_disconnected for consumer in consumers)
    subscription.commit(0, 2)
    assert [consumer.was_disconnected for consumer in consumers] == [True, False]
    subscription.delete()
    assert [consumer.was_disconnected for consumer in consumers] == [True, True]


async def test_link_to_the_cursor_ends_with_the_dispatcher():
    house = House()
    topic = await house.topics.create(TopicName("public", "default", "t"), 1)
    subscription = house.subscriptions.open(topic, b"s")
    subscription.start(0, 0)
    dispatchers, cursor = Dispatchers(), SubscriptionCursor(subscription, 0)
    dispatcher, consumer = attached(dispatchers, FakePartition(), cursor)
    assert len(subscription.listeners) == 1
    dispatchers.detach(dispatcher, consumer)
    assert not subscription.listeners


async def sought(dispatchers, dispatcher, position):
    async def resolve():
        return position

    await dispatcher.reset(resolve)
    dispatchers.keep(dispatcher)
    dispatchers.release(dispatcher)


async def test_position_in_memory_waits_for_the_reader_that_its_seek_closed(autojump_clock):
    dispatchers, partition = Dispatchers(), FakePartition()
    dispatcher, consumer = attached(dispatchers, partition, MemoryCursor(0))
    await sought(dispatchers, dispatcher, 4)
    assert consumer.was_disconnected
    await trio.sleep(KEPT_S - 1)
    kept = dispatchers.find(partition, b"s")
    assert kept is dispatcher and kept.cursor.position == 4
    again = FakeConsumer("d")
    dispatchers.attach(kept, again)
    await trio.sleep(KEPT_S + 1)
    assert dispatchers.find(partition, b"s") is dispatcher
    dispatchers.detach(dispatcher, again)
    assert dispatchers.find(partition, b"s") is None


async def test_position_in_memory_of_a_reader_that_stays_away_is_forgotten(autojump_clock):
    dispatchers, partition = Dispatchers(), FakePartition()
    dispatcher, _ = attached(dispatchers, partition, MemoryCursor(0))
    await sought(dispatchers, dispatcher, 4)
    await trio.sleep(KEPT_S + 1)
    assert dispatchers.find(partition, b"s") is None
    assert len(dispatchers) == 0


async def test_durable_position_needs_no_waiting():
    house = House()
    topic = await house.topics.create(TopicName("public", "default", "t"), 1)
    subscription = house.subscriptions.open(topic, b"s")
    subscription.start(0, 0)
    dispatchers, cursor = Dispatchers(), SubscriptionCursor(subscription, 0)
    dispatcher, _ = attached(dispatchers, FakePartition(), cursor)
    await sought(dispatchers, dispatcher, 4)
    assert len(dispatchers) == 0
    assert subscription.position(0) == 4
