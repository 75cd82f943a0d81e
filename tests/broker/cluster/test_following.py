"""Changes of the catalogue that this broker cannot apply at once are applied later."""

from types import SimpleNamespace

from braidlog.broker.cluster.following import Following
from braidlog.storage.errors import StorageFull
from braidlog.storage.metadata.catalogue_records import TopicMeta
from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import FakeFactory, MetadataParts

ORDERS, BILLS = (TopicName("public", "default", topic) for topic in ("orders", "bills"))


class TightFactory(FakeFactory):
    """Has no room for the folder of that partition."""

    full_for = 7

    def open(self, topic, index, partition_id):
        if partition_id == self.full_for:
            raise StorageFull("no room")
        self.folders.add(partition_id)
        return super().open(topic, index, partition_id)


async def test_topics_without_room_follow_later_and_keep_no_other_topic_back():
    house = MetadataParts(factory=TightFactory())
    metas = {
        ORDERS: TopicMeta(1, ORDERS, [7], False, 0, {}, None, 0),
        BILLS: TopicMeta(2, BILLS, [8], False, 0, {}, None, 0),
    }
    state = SimpleNamespace(topic=metas.get)
    following = Following(state, house.topics, house.factory, house.cursors)
    following.follow(SimpleNamespace(topics=[ORDERS, BILLS], namespaces=[]))
    assert house.topics.find(ORDERS) is None
    assert house.topics.get(BILLS).partitions
    following.catch_up()
    assert house.topics.find(ORDERS) is None
    house.factory.full_for = None
    following.catch_up()
    assert house.topics.get(ORDERS).partitions
