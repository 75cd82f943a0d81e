"""Topics with slow folder creation: the loop continues, no client sees half a topic, and a single
creation wins.
"""

import pytest
import trio
import trio.testing

from braidlog.broker import errors
from braidlog.broker.topics.topic import TopicEvent
from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import FakeFactory, MetadataParts, RecordingListener
from tests.waiting import until

ORDERS = TopicName("public", "default", "orders")


class SlowFactory(FakeFactory):
    """Creates folders on the test's request: calls while `is_slow` wait for `gate`."""

    def __init__(self):
        super().__init__()
        self.is_slow = True
        self.gate = trio.Event()
        self.begun = 0

    async def create(self, topic, first_index, partition_ids):
        self.begun += 1
        if self.is_slow:
            await self.gate.wait()
        return await super().create(topic, first_index, partition_ids)


@pytest.fixture
def house():
    return MetadataParts(factory=SlowFactory())


async def create_topic(house):
    """Return a topic of a single partition, created at once."""
    house.factory.is_slow = False
    topic = await house.topics.create(ORDERS, 1)
    house.factory.is_slow = True
    return topic


async def begun(house, count=1):
    """Wait until that many creations have started."""
    await until(lambda: house.factory.begun >= count)


async def test_a_topic_is_visible_once_its_folders_exist(house):
    heard = RecordingListener()
    house.topics.listeners.add(heard)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.topics.create, ORDERS, 3)
        await begun(house)
        assert house.topics.find(ORDERS) is None
        assert heard.take() == []
        house.factory.gate.set()
    topic = house.topics.get(ORDERS)
    assert [partition.index for partition in topic.partitions] == [0, 1, 2]
    assert topic.partitioned
    assert all(partition.topic is topic.meta for partition in topic.partitions)
    assert heard.take() == [("orders", TopicEvent.CREATED)]
    assert house.restarted().topics.get(ORDERS).meta.partition_ids == topic.meta.partition_ids


async def test_a_second_creation_is_refused_and_leaves_no_folders(house):
    async def make():
        with pytest.raises(errors.TopicExists):
            await house.topics.create(ORDERS, 3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(make)
        await begun(house)
        quicker = await create_topic(house)
        house.factory.gate.set()
    assert house.topics.get(ORDERS) is quicker
    assert house.factory.folders == set(quicker.meta.partition_ids)


async def test_many_requests_for_a_missing_topic_create_it_once(house):
    topics = []

    async def ask():
        topics.append(await house.topics.auto_create(ORDERS))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
        await begun(house)
        await trio.testing.wait_all_tasks_blocked()
        house.factory.gate.set()
    assert house.factory.begun == 1
    assert topics == [house.topics.get(ORDERS)] * 5
    assert await house.topics.auto_create(ORDERS) is topics[0]


async def test_after_a_failed_creation_the_next_waiting_request_tries(house):
    house.factory.room = 0
    failed = []

    async def ask():
        try:
            await house.topics.auto_create(ORDERS)
        except errors.StorageFull:
            failed.append(house.factory.begun)
            house.factory.room = 10

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await begun(house)
        house.factory.gate.set()
    assert failed == [1]
    assert house.topics.get(ORDERS).partitions


async def test_no_topic_is_created_automatically_if_disabled():
    house = MetadataParts(auto_create=False)
    with pytest.raises(errors.TopicNotFound):
        await house.topics.auto_create(ORDERS)
    await house.topics.create(ORDERS, 1)
    assert await house.topics.auto_create(ORDERS)


async def test_growing_adds_partitions_and_cursors_at_once(house):
    topic = await create_topic(house)
    billing = house.subscriptions.open(topic, b"billing")
    billing.commit(0, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.topics.add_partitions, ORDERS, 3)
        await begun(house, 2)
        assert len(topic.partitions) == 1
        house.factory.gate.set()
    assert [partition.index for partition in topic.partitions] == [0, 1, 2]
    assert [billing.position(index) for index in range(3)] == [5, 0, 0]


@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        (["delete", ORDERS], errors.TopicNotFound),
        (["add_partitions", ORDERS, 2], errors.Conflict),
        (["add_partitions", ORDERS, 3], errors.InvalidRequest),
    ],
)
async def test_an_overtaken_growth_is_refused_and_leaves_no_folders(house, meanwhile, error):
    await create_topic(house)

    async def grow():
        with pytest.raises(error):
            await house.topics.add_partitions(ORDERS, 3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(grow)
        await begun(house, 2)
        house.factory.is_slow = False
        change, *arguments = meanwhile
        await getattr(house.topics, change)(*arguments)
        house.topics.leaving.round_ended(1 << 62)
        house.factory.gate.set()
    topic = house.topics.find(ORDERS)
    assert house.factory.folders == set(topic.meta.partition_ids if topic else ())


async def test_a_growth_during_a_change_of_settings_takes_the_new_settings(house):
    topic = await create_topic(house)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.topics.add_partitions, ORDERS, 3)
        await begun(house, 2)
        await house.topics.alter_settings(ORDERS, {"retention_ms": 5})
        house.factory.gate.set()
    assert len(topic.partitions) == 3
    assert house.factory.folders == set(topic.meta.partition_ids)


async def test_a_growth_of_a_recreated_topic_is_refused(house):
    await create_topic(house)

    async def grow():
        with pytest.raises(errors.Conflict):
            await house.topics.add_partitions(ORDERS, 3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(grow)
        await begun(house, 2)
        await house.topics.delete(ORDERS)
        await create_topic(house)
        house.factory.gate.set()


async def test_impossible_topics_are_refused_before_a_folder_is_made(house):
    with pytest.raises(errors.InvalidRequest):
        await house.topics.create(ORDERS, -1)
    await create_topic(house)
    with pytest.raises(errors.TopicExists):
        await create_topic(house)
    with pytest.raises(errors.InvalidRequest):
        await house.topics.add_partitions(ORDERS, 1)
    assert house.factory.begun == 1
