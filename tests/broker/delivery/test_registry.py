"""The register of dispatchers: found by name, linked to cursors, readers awaited after a seek."""

from functools import partial

import pytest
import trio
from structlog.testing import capture_logs

from braidlog.broker.closing import STEPS_TOGETHER
from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.delivery.cursor import DispatchCursor
from braidlog.broker.delivery.registry import KEPT_S, Dispatchers
from braidlog.broker.errors import NotOwner, TopicNotFound
from braidlog.broker.reading.entries import EntryId
from braidlog.broker.topics.topic import TopicEvent
from braidlog.storage.metadata.names import TopicName
from tests.broker.delivery.dispatch_fakes import FakeConsumer, memory_cursor
from tests.broker.delivery.entry_fakes import FakePartition
from tests.broker.metadata_fakes import MetadataParts
from tests.broker.pieces import counting

EXCLUSIVE, SHARED = SubscriptionKind.EXCLUSIVE, SubscriptionKind.SHARED


def attached(dispatchers, partition, cursor, kind=EXCLUSIVE):
    dispatcher = dispatchers.make(partition, b"s", kind, cursor)
    consumer = FakeConsumer("c")
    dispatchers.attach(dispatcher, consumer)
    return dispatcher, consumer


async def test_dispatcher_is_found_while_it_has_consumers():
    dispatchers, partition = Dispatchers(), FakePartition()
    dispatcher, consumer = attached(dispatchers, partition, memory_cursor(0))
    assert dispatchers.find(partition, b"s") is dispatcher
    assert dispatchers.find(partition, b"t") is None
    assert dispatchers.find(FakePartition(partition_id=8), b"s") is None
    dispatcher.leave(consumer)
    assert dispatchers.find(partition, b"s") is None
    dispatcher.leave(consumer)
    assert len(dispatchers) == 0


@pytest.mark.parametrize("kind", SubscriptionKind)
async def test_a_pending_acknowledgement_does_not_outlive_its_dispatcher(kind):
    dispatchers, partition, cursor = (
        Dispatchers(),
        FakePartition(gate=trio.Event()),
        memory_cursor(0),
    )
    partition.entries(1, 1)
    dispatcher, consumer = attached(dispatchers, partition, cursor, kind)
    async with trio.open_nursery() as nursery:
        ids = [EntryId(partition.partition_id, 0), EntryId(partition.partition_id, 1)]
        nursery.start_soon(partial(dispatcher.acknowledge, consumer, ids, lazy=True))
        nursery.start_soon(partial(dispatcher.acknowledge_to, consumer, ids[1], lazy=True))
        await trio.testing.wait_all_tasks_blocked()  # The dispatcher looks up the entries.
        dispatcher.leave(consumer)
        cursor.seek(0)  # By another protocol, or by a new subscription of the name.
        partition.gate.set()
    assert cursor.state().acked.within(0, 2) == [] and cursor.position == 0


async def test_a_topic_that_moves_during_a_read_ends_its_delivery():
    dispatchers = Dispatchers()
    dispatcher, consumer = attached(dispatchers, FakePartition(), memory_cursor(0))

    async def read():
        raise NotOwner("no broker owns it now", 0)

    dispatcher.run = read
    with capture_logs() as logged:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispatchers.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert consumer.was_disconnected and not logged


class MovedCursor(DispatchCursor):
    """A cursor whose topic has moved to another broker."""

    has_moved = False

    @property
    def position(self):
        if self.has_moved:
            raise NotOwner("no broker owns it now", 0)
        return 0

    def state(self):
        assert self.position == 0
        return super().state()


@pytest.mark.parametrize("kind", SubscriptionKind)
async def test_a_cursor_that_moves_while_its_pump_waits_ends_its_delivery(kind):
    dispatchers, partition, cursor = (
        Dispatchers(),
        FakePartition(),
        MovedCursor(memory_cursor().subscription, 0, is_durable=False),
    )
    dispatcher, first = attached(dispatchers, partition, cursor, kind)
    dispatcher.flow(first, 10)
    with capture_logs() as logged:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispatchers.run)
            await trio.testing.wait_all_tasks_blocked()
            cursor.has_moved = partition.removed = True
            dispatcher.wake()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert first.was_disconnected and not logged


@pytest.mark.parametrize("kind", SubscriptionKind)
async def test_a_connection_may_end_before_the_notice_of_a_moved_topic(kind):
    dispatchers, partition, cursor = (
        Dispatchers(),
        FakePartition(),
        MovedCursor(memory_cursor().subscription, 0, is_durable=False),
    )
    dispatcher, consumer = attached(dispatchers, partition, cursor, kind)
    cursor.has_moved = partition.removed = True
    dispatcher.leave(consumer)
    assert not dispatcher.consumers and not consumer.is_attached


async def test_the_kind_may_change_without_consumers():
    dispatchers, partition = Dispatchers(), FakePartition()
    dispatcher, consumer = attached(dispatchers, partition, memory_cursor(0))
    dispatcher.leave(consumer)
    dispatcher, _ = attached(dispatchers, partition, memory_cursor(0), SHARED)
    assert dispatcher.kind is SHARED


async def test_moves_by_other_listeners_reach_only_that_partitions_consumers():
    house = MetadataParts()
    topic = await house.topics.create(TopicName("public", "default", "t"), 2)
    subscription = house.subscriptions.open(topic, b"s")
    dispatchers = Dispatchers()
    consumers = []
    for index, partition in enumerate((FakePartition(), FakePartition(partition_id=8))):
        subscription.start(index, 0)
        cursor = DispatchCursor(subscription, index)
        consumers.append(attached(dispatchers, partition, cursor)[1])
    subscription.commit(0, 5)
    assert not any(consumer.was_disconnected for consumer in consumers)
    subscription.commit(0, 2)
    assert [consumer.was_disconnected for consumer in consumers] == [True, False]
    subscription.delete()
    assert [consumer.was_disconnected for consumer in consumers] == [True, True]


async def test_link_to_the_cursor_ends_with_the_dispatcher():
    house = MetadataParts()
    topic = await house.topics.create(TopicName("public", "default", "t"), 1)
    subscription = house.subscriptions.open(topic, b"s")
    subscription.start(0, 0)
    dispatchers, cursor = Dispatchers(), DispatchCursor(subscription, 0)
    dispatcher, consumer = attached(dispatchers, FakePartition(), cursor)
    assert len(subscription.listeners) == 1
    dispatcher.leave(consumer)
    assert not subscription.listeners


async def sought(dispatchers, dispatcher, position):
    async def resolve():
        return position

    await dispatcher.reset(resolve)
    dispatchers.keep(dispatcher)
    dispatchers.release(dispatcher)


async def test_position_in_memory_waits_for_the_reader_that_its_seek_closed(autojump_clock):
    dispatchers, partition = Dispatchers(), FakePartition()
    dispatcher, consumer = attached(dispatchers, partition, memory_cursor(0))
    await sought(dispatchers, dispatcher, 4)
    assert consumer.was_disconnected
    await trio.sleep(KEPT_S - 1)
    dispatcher_kept = dispatchers.find(partition, b"s")
    assert dispatcher_kept is dispatcher and dispatcher_kept.cursor.position == 4
    again = FakeConsumer("d")
    dispatchers.attach(dispatcher_kept, again)
    await trio.sleep(KEPT_S + 1)
    assert dispatchers.find(partition, b"s") is dispatcher
    dispatcher.leave(again)
    assert dispatchers.find(partition, b"s") is None


async def test_position_in_memory_of_a_reader_that_stays_away_is_forgotten(autojump_clock):
    dispatchers, partition = Dispatchers(), FakePartition()
    dispatcher, _ = attached(dispatchers, partition, memory_cursor(0))
    await sought(dispatchers, dispatcher, 4)
    await trio.sleep(KEPT_S + 1)
    assert dispatchers.find(partition, b"s") is None
    assert len(dispatchers) == 0


async def test_durable_position_needs_no_waiting():
    house = MetadataParts()
    topic = await house.topics.create(TopicName("public", "default", "t"), 1)
    subscription = house.subscriptions.open(topic, b"s")
    subscription.start(0, 0)
    dispatchers, cursor = Dispatchers(), DispatchCursor(subscription, 0)
    dispatcher, _ = attached(dispatchers, FakePartition(), cursor)
    await sought(dispatchers, dispatcher, 4)
    assert len(dispatchers) == 0
    assert subscription.position(0) == 4


class Crowd:
    """A topic with consumers of many subscriptions, in `running` dispatchers."""

    def __init__(self, house, topic, nursery):
        self.topic = topic
        self.dispatchers = Dispatchers()
        self.consumers = []
        house.topics.listeners.add(self.dispatchers)
        nursery.start_soon(self.dispatchers.run)
        self.partitions = [
            FakePartition(partition.partition_id, index)
            for index, partition in enumerate(topic.partitions)
        ]

    def join(self, subscriptions, each, kind=SHARED):
        for number in range(subscriptions):
            partition = self.partitions[number % len(self.partitions)]
            name = b"%d" % number
            dispatcher = self.dispatchers.make(partition, name, kind, memory_cursor(0))
            for _ in range(each):
                self.consumers.append(FakeConsumer("c"))
                self.dispatchers.attach(dispatcher, self.consumers[-1])
        return dispatcher

    @property
    def ended(self):
        return sum(consumer.was_disconnected for consumer in self.consumers)


@pytest.fixture
async def crowd(nursery):
    house = MetadataParts()
    topic = await house.topics.create(TopicName("public", "default", "t"), 2)
    return house, Crowd(house, topic, nursery)


async def delete_topic(house, crowd):
    for partition in crowd.partitions:
        partition.removed = True
    await house.topics.delete(crowd.topic.name)


@pytest.mark.parametrize(("subscriptions", "each"), [(2, 500), (1000, 1), (40, 25)])
async def test_consumers_of_a_deleted_topic_are_removed_in_pieces(
    crowd, nursery, subscriptions, each
):
    house, crowd = crowd
    crowd.join(subscriptions, each)
    await trio.testing.wait_all_tasks_blocked()
    await delete_topic(house, crowd)
    assert crowd.ended == 0  # No consumer ends within the deleting call.
    nursery.start_soon(crowd.dispatchers.closing.run)
    with counting(lambda: crowd.ended) as pieces:
        await trio.testing.wait_all_tasks_blocked()
    assert crowd.ended == len(crowd.consumers) and pieces.largest <= STEPS_TOGETHER
    assert len(crowd.dispatchers) == 0
    assert not any(consumer.is_attached for consumer in crowd.consumers)


async def test_no_consumer_joins_a_deleted_topic_before_the_old_consumers_left(crowd):
    house, crowd = crowd
    dispatcher = crowd.join(1, 1)
    await delete_topic(house, crowd)
    with pytest.raises(TopicNotFound):
        crowd.dispatchers.attach(dispatcher, FakeConsumer("late"))
    assert len(dispatcher.consumers) == 1
    fresh = crowd.dispatchers.make(crowd.partitions[0], b"fresh", SHARED, memory_cursor(0))
    with pytest.raises(TopicNotFound):
        crowd.dispatchers.attach(fresh, FakeConsumer("late"))
    assert crowd.dispatchers.find(crowd.partitions[0], b"fresh") is None


async def test_a_deleted_topic_delivers_and_reports_nothing(crowd, nursery):
    house, crowd = crowd
    crowd.partitions[0].entries(*[1] * 10)
    dispatcher = crowd.join(1, 2)
    first, second = crowd.consumers
    dispatcher.flow(first, 5)
    await trio.testing.wait_all_tasks_blocked()
    assert len(first.pending) == 5
    with capture_logs() as logged:
        await delete_topic(house, crowd)
        # Otherwise this consumer would receive the first consumer's entries.
        dispatcher.flow(second, 100)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(crowd.dispatchers.closing.run)
        await trio.testing.wait_all_tasks_blocked()
    assert not second.inbox and not first.pending
    assert first.was_disconnected and second.was_disconnected and not logged


async def test_a_consumer_that_leaves_before_its_turn_is_not_notified(crowd, nursery):
    house, crowd = crowd
    dispatcher = crowd.join(1, 2)
    await delete_topic(house, crowd)
    dispatcher.leave(crowd.consumers[0])
    nursery.start_soon(crowd.dispatchers.closing.run)
    await trio.testing.wait_all_tasks_blocked()
    assert [consumer.was_disconnected for consumer in crowd.consumers] == [False, True]


async def test_a_partition_that_has_moved_is_free_for_new_consumers_at_once(crowd, nursery):
    _, crowd = crowd
    crowd.join(1, 1)
    crowd.partitions[0].removed = True
    crowd.dispatchers.topic_changed(crowd.topic, TopicEvent.MOVED)
    assert crowd.dispatchers.find(crowd.partitions[0], b"0") is None
    crowd.partitions[0] = FakePartition(crowd.partitions[0].partition_id)
    crowd.join(1, 1)
    nursery.start_soon(crowd.dispatchers.closing.run)
    await trio.testing.wait_all_tasks_blocked()
    assert [consumer.was_disconnected for consumer in crowd.consumers] == [True, False]
    assert crowd.dispatchers.find(crowd.partitions[0], b"0").consumers == [crowd.consumers[1]]


async def test_a_bug_in_a_delivery_ends_only_its_consumers():
    dispatchers = Dispatchers()
    broken, consumer = attached(dispatchers, FakePartition(), memory_cursor(0))
    other, stays = attached(dispatchers, FakePartition(partition_id=8), memory_cursor(0))

    async def read():
        raise KeyError("a bug")

    broken.run = read
    with capture_logs() as logged:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispatchers.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert consumer.was_disconnected and not stays.was_disconnected
    assert [event["event"] for event in logged] == ["delivery_failed"]
    assert dispatchers.find(broken.partition, b"s") is None
    assert dispatchers.find(other.partition, b"s") is other


async def test_a_bug_in_a_copy_of_dead_letters_ends_only_its_consumers():
    class BrokenCopier:
        async def bury(self, dispatcher):
            raise KeyError("a bug")

    dispatchers = Dispatchers()
    dispatchers.copy_dead_letters(BrokenCopier())
    queue, consumer = attached(dispatchers, FakePartition(), memory_cursor(0), SHARED)
    _, stays = attached(dispatchers, FakePartition(partition_id=8), memory_cursor(0))
    with capture_logs() as logged:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispatchers.run)
            await trio.testing.wait_all_tasks_blocked()
            queue._context.bury(queue)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert consumer.was_disconnected and not stays.was_disconnected
    assert [event["event"] for event in logged] == ["delivery_failed"]


async def test_a_dispatcher_without_consumers_is_replaced():
    """As when a subscription's first consumer joins while a seek still awaits its reader."""
    dispatchers, partition = Dispatchers(), FakePartition()
    first = dispatchers.make(partition, b"s", EXCLUSIVE, memory_cursor(0))
    second = dispatchers.make(partition, b"s", SHARED, memory_cursor(5))
    assert dispatchers.find(partition, b"s") is second is not first
    dispatchers.release(first)
    assert dispatchers.find(partition, b"s") is second
    assert len(dispatchers) == 1
