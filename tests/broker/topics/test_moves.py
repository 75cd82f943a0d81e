"""Topics whose shard moves while a change is published: the change does not fail any more."""

import pytest

from braidlog.broker.cluster.placement import Placement
from braidlog.storage.errors import StorageFull
from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import FakeFactory, MetadataParts, NumberedPartition

ORDERS = TopicName("public", "default", "orders")


class MovedPartition(NumberedPartition):
    has_moved = was_taken_over = False

    def move_away(self):
        self.has_moved = True

    def take_over(self):
        self.was_taken_over = True


class MovingFactory(FakeFactory):
    """Creates partitions that another broker opens at once, and this broker once there is room."""

    is_full = True

    def __init__(self):
        super().__init__()
        self.opened = set()

    async def create(self, topic, first_index, partition_ids):
        await super().create(topic, first_index, partition_ids)
        return [MovedPartition(topic, first_index, number) for number in partition_ids]

    def is_open(self, partition):
        return partition in self.opened

    def open(self, topic, index, partition_id):
        if self.is_full:
            raise StorageFull("no room")
        partition = MovedPartition(topic, index, partition_id)
        self.opened.add(partition)
        return partition


class InACluster(Placement):
    is_alone = False


@pytest.fixture
def house():
    return MetadataParts(factory=MovingFactory(), placement=InACluster())


async def test_a_published_creation_and_growth_do_not_fail(house):
    topics = house.topics
    topic = await topics.create(ORDERS, 1)
    assert topics.get(ORDERS) is topic
    await topics.add_partitions(ORDERS, 3)
    assert len(topic.partitions) == 3
    assert all(partition.has_moved for partition in topic.partitions[:1])
    assert house.reported


async def test_the_partitions_are_reopened_once_there_is_room(house):
    topic = await house.topics.create(ORDERS, 2)
    house.topics.moves.reopen_rest()
    assert not topic.partitions[0].was_taken_over
    house.factory.is_full = False
    house.topics.moves.reopen_rest()
    assert all(partition.was_taken_over for partition in topic.partitions)
    reported = len(house.reported)
    house.topics.moves.reopen_rest()
    assert len(house.reported) == reported


async def test_a_deleted_topic_is_not_reopened(house):
    topic = await house.topics.create(ORDERS, 1)
    await house.topics.delete(ORDERS)
    house.factory.is_full = False
    house.topics.moves.reopen_rest()
    assert not topic.partitions[0].was_taken_over
