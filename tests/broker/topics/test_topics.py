import pytest

from braidlog.broker import errors
from braidlog.broker.limits import TOPIC_PARTITIONS_MAX, StateLimits
from braidlog.broker.topics.topic import TopicEvent
from braidlog.broker.topics.topics import CREATE_ATTEMPTS
from braidlog.storage.errors import StorageFull
from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import NOW_US, FakeFactory, MetadataParts, RecordingListener
from tests.broker.pieces import counting

ORDERS = TopicName("public", "default", "orders")
SHOP = TopicName("public", "shop", "orders")


@pytest.fixture
def house():
    return MetadataParts()


@pytest.fixture
def topics(house):
    return house.topics


async def test_a_topic_and_its_partitions_survive_a_restart(house, topics):
    topic = await topics.create(ORDERS, 3, settings={"retention_ms": 5})
    assert topics.get(ORDERS) is topics.find(ORDERS) is topic
    assert [partition.index for partition in topic.partitions] == [0, 1, 2]
    assert topic.meta.partition_ids == [1, 2, 3] == sorted(house.factory.folders)
    assert topic.meta.created_us == NOW_US
    assert topic.meta.settings == house.factory.settings == {"retention_ms": 5}
    assert topic.ticket == house.catalogue_journal.ticket
    assert topics.partition(ORDERS, 2) is topic.partitions[2]
    again = house.restarted().topics
    assert again.get(ORDERS).meta == topic.meta
    assert [p.partition_id for p in again.get(ORDERS).partitions] == [1, 2, 3]
    assert len(again) == 1


async def test_a_topic_is_partitioned_with_several_partitions_or_on_request(topics):
    created = [
        (
            await topics.create(
                TopicName("public", "default", str(number)), count, partitioned=partitioned
            )
        )
        for number, (count, partitioned) in enumerate([(1, None), (1, True), (2, None), (0, None)])
    ]
    assert [topic.partitioned for topic in created] == [False, True, True, False]
    with pytest.raises(errors.InvalidRequest):
        await topics.create(ORDERS, 2, partitioned=False)


@pytest.mark.parametrize(
    ("name", "partitions", "error"),
    [
        (TopicName("public", "default", "a/b"), 1, errors.InvalidName),
        (TopicName("public", "default", "x-partition-3"), 1, errors.InvalidName),
        (TopicName("a b", "default", "x"), 1, errors.InvalidName),
        (SHOP, 1, errors.NamespaceNotFound),
        (ORDERS, TOPIC_PARTITIONS_MAX + 1, errors.InvalidRequest),
        (ORDERS, -1, errors.InvalidRequest),
    ],
)
async def test_an_impossible_topic_is_refused_and_leaves_nothing(house, name, partitions, error):
    with pytest.raises(error):
        await house.topics.create(name, partitions)
    assert len(house.topics) == 0
    assert house.factory.folders == set()


async def test_topics_and_partitions_have_limits():
    topics = MetadataParts(limits=StateLimits(topics=2, partitions=5)).topics
    await topics.create(ORDERS, 3)
    other = TopicName("public", "default", "other")
    with pytest.raises(errors.LimitExceeded):
        await topics.create(other, 3)
    with pytest.raises(errors.LimitExceeded):
        await topics.add_partitions(ORDERS, 6)
    await topics.create(other, 2)
    with pytest.raises(errors.LimitExceeded):
        await topics.create(TopicName("public", "default", "third"), 0)
    await topics.delete(ORDERS)
    await topics.add_partitions(other, 5)


async def test_names_and_numbers_are_unique(house, topics):
    await topics.create(ORDERS, 1, iggy_id=4)
    with pytest.raises(errors.TopicExists):
        await topics.create(ORDERS, 1)
    with pytest.raises(errors.TopicExists):
        await topics.create(TopicName("public", "default", "other"), 1, iggy_id=4)
    await house.namespaces.create("public", "shop", iggy_id=9)
    await topics.create(SHOP, 1, iggy_id=4)
    with pytest.raises(errors.NamespaceExists):
        await house.namespaces.create("public", "shop")
    with pytest.raises(errors.NamespaceExists):
        await house.namespaces.create("public", "other", iggy_id=9)
    with pytest.raises(errors.InvalidName):
        await house.namespaces.create("public", "a/b")


async def test_unknown_names_differ_from_unknown_partitions(topics):
    await topics.create(ORDERS, 1)
    assert topics.find(SHOP) is None
    with pytest.raises(errors.TopicNotFound):
        topics.get(SHOP)
    for index in (1, -1):
        with pytest.raises(errors.PartitionNotFound):
            topics.partition(ORDERS, index)


async def test_listing_is_by_name_within_a_namespace(house, topics):
    await house.namespaces.create("public", "shop")
    for name in (SHOP, ORDERS, TopicName("public", "default", "a")):
        await topics.create(name, 1)
    assert [topic.name.topic for topic in topics.list("public", "default")] == ["a", "orders"]
    assert next(topic.name for topic in topics.all()) == SHOP


async def test_topics_are_created_automatically_only_if_configured():
    topics = MetadataParts(num_partitions=3).topics
    topic = await topics.auto_create(ORDERS)
    assert len(topic.partitions) == 3
    assert await topics.auto_create(ORDERS) is topic
    topics = MetadataParts(auto_create=False).topics
    with pytest.raises(errors.TopicNotFound):
        await topics.auto_create(ORDERS)
    topic = await topics.create(ORDERS, 1)
    assert await topics.auto_create(ORDERS) is topic


async def test_growing_keeps_partitions_and_sets_new_cursors_to_0(house, topics):
    topic = await topics.create(ORDERS, 2)
    old = list(topic.partitions)
    billing = house.subscriptions.open(topic, b"billing")
    billing.commit(0, 7)
    house.subscriptions.open(topic, b"audit")
    ticket = await topics.add_partitions(ORDERS, 4)
    assert ticket == topic.ticket == house.catalogue_journal.ticket
    assert topic.partitions[:2] == old
    assert topic.meta.partition_ids == [1, 2, 3, 4]
    again = house.restarted()
    for seen in (house, again):
        topic = seen.topics.get(ORDERS)
        for name, positions in ((b"billing", [7, None, 0, 0]), (b"audit", [None, None, 0, 0])):
            subscription = seen.subscriptions.get(topic, name)
            assert [subscription.position(index) for index in range(4)] == positions


@pytest.mark.parametrize("total", [0, 1, 2, TOPIC_PARTITIONS_MAX + 1])
async def test_a_topic_only_grows(topics, total):
    await topics.create(ORDERS, 2)
    with pytest.raises(errors.InvalidRequest):
        await topics.add_partitions(ORDERS, total)


async def test_an_unpartitioned_topic_grows_only_without_layout_users(topics):
    topic = await topics.create(ORDERS, 1)
    topic.layout_users += 1
    with pytest.raises(errors.TopicInUse):
        await topics.add_partitions(ORDERS, 2)
    assert len(topic.partitions) == 1
    topic.layout_users -= 1
    await topics.add_partitions(ORDERS, 2)
    assert topic.partitioned
    topic.layout_users += 1
    await topics.add_partitions(ORDERS, 3)
    empty = await topics.create(TopicName("public", "default", "empty"), 0)
    await topics.add_partitions(empty.name, 1)
    assert not empty.partitioned


async def test_a_full_disk_leaves_no_half_made_topic(house, topics):
    house.factory.room = 2
    with pytest.raises(errors.StorageFull):
        await topics.create(ORDERS, 3)
    assert house.factory.folders == set()
    house.catalogue_journal.full = True
    with pytest.raises(errors.StorageFull):
        await topics.create(ORDERS, 2)
    assert house.factory.folders == set()
    house.catalogue_journal.full = False
    topic = await topics.create(ORDERS, 2)
    assert min(topic.meta.partition_ids) > 2
    with pytest.raises(errors.StorageFull):
        await topics.add_partitions(ORDERS, 3)
    assert len(topic.partitions) == len(house.factory.folders) == 2


async def test_a_growth_that_fails_late_can_be_tried_again(house, topics):
    topic = await topics.create(ORDERS, 1)
    billing = house.subscriptions.open(topic, b"billing")
    billing.commit(0, 5)
    house.catalogue_journal.full = True
    with pytest.raises(errors.StorageFull):
        await topics.add_partitions(ORDERS, 3)
    assert len(topic.partitions) == 1
    assert house.restarted().cursors.get(topic.meta.topic_id, 1, b"billing") is None
    house.catalogue_journal.full = False
    await topics.add_partitions(ORDERS, 3)
    assert [billing.position(index) for index in range(3)] == [5, 0, 0]


async def test_folders_of_a_deleted_topic_are_removed_after_the_deletion_is_on_disk(house, topics):
    topic = await topics.create(ORDERS, 2)
    house.subscriptions.open(topic, b"billing").commit(0, 5)
    ticket = await topics.delete(ORDERS)
    assert topic.deleted
    assert all(partition.removed for partition in topic.partitions)
    assert topics.find(ORDERS) is None
    topics.leaving.round_ended(ticket - 1)
    assert house.factory.folders == {1, 2}
    topics.leaving.round_ended(ticket)
    assert house.factory.folders == set()
    with pytest.raises(errors.TopicNotFound):
        await topics.delete(ORDERS)
    new = await topics.create(ORDERS, 1)
    assert house.subscriptions.names(new) == []
    assert house.restarted().subscriptions.names(new) == []


async def test_a_deletion_that_cannot_be_written_has_no_effect(house, topics):
    topic = await topics.create(ORDERS, 1)
    house.catalogue_journal.full = True
    with pytest.raises(errors.StorageFull):
        await topics.delete(ORDERS)
    assert topics.get(ORDERS) is topic
    assert not topic.deleted


async def test_a_start_drops_the_cursors_of_deleted_topics(house, topics):
    topic = await topics.create(ORDERS, 1)
    house.subscriptions.open(topic, b"billing").commit(0, 5)
    house.cursor_journal.full = True
    await topics.delete(ORDERS)
    again = house.restarted()
    assert again.cursors.topic_ids() == []


async def test_a_start_repairs_a_growth_with_lost_cursors(house, topics):
    topic = await topics.create(ORDERS, 1)
    house.subscriptions.open(topic, b"billing").commit(0, 5)
    cursor_journal = house.cursor_journal.reopened()
    await topics.add_partitions(ORDERS, 2)
    again = MetadataParts(house.catalogue_journal.reopened(), cursor_journal, house.factory)
    assert again.subscriptions.get(again.topics.get(ORDERS), b"billing").position(1) == 0


async def test_listeners_are_notified_about_topics(topics):
    heard = RecordingListener()
    topics.listeners.add(heard)
    await topics.create(ORDERS, 1)
    await topics.add_partitions(ORDERS, 2)
    await topics.delete(ORDERS)
    assert heard.take() == [
        ("orders", TopicEvent.CREATED),
        ("orders", TopicEvent.GROWN),
        ("orders", TopicEvent.DELETED),
    ]


async def test_only_an_empty_namespace_can_be_deleted(house, topics):
    namespaces = house.namespaces
    await namespaces.create("public", "shop")
    await topics.create(SHOP, 1)
    with pytest.raises(errors.TopicInUse):
        await namespaces.delete("public", "shop")
    await topics.delete(SHOP)
    await namespaces.delete("public", "shop")
    assert namespaces.find("public", "shop") is None
    with pytest.raises(errors.NamespaceNotFound):
        await namespaces.delete("public", "shop")
    with pytest.raises(errors.NamespaceNotFound):
        namespaces.get("public", "shop")
    with pytest.raises(errors.InvalidRequest):
        await namespaces.delete("public", "default")


@pytest.mark.parametrize(
    ("text", "name", "index"),
    [
        ("orders", ORDERS, None),
        ("persistent://public/default/orders", ORDERS, None),
        ("persistent://public/default/orders-partition-12", ORDERS, 12),
        ("orders-partition-012", TopicName("public", "default", "orders-partition-012"), None),
    ],
)
def test_pulsar_names_have_topic_and_partition(topics, text, name, index):
    assert topics.resolve_pulsar(text) == (name, index)


def test_a_name_that_pulsar_would_refuse_is_refused(topics):
    for text in ("", "a/b", "non-persistent://public/default/x"):
        with pytest.raises(errors.InvalidName):
            topics.resolve_pulsar(text)


async def test_pulsar_reaches_an_unpartitioned_topic_by_both_names(topics):
    topic = await topics.create(ORDERS, 1)
    assert topics.pulsar_partition(ORDERS, None) is topic.partitions[0]
    assert topics.pulsar_partition(ORDERS, 0) is topic.partitions[0]
    with pytest.raises(errors.PartitionNotFound):
        topics.pulsar_partition(ORDERS, 1)
    with pytest.raises(errors.TopicNotFound):
        topics.pulsar_partition(SHOP, None)


async def test_pulsar_reaches_a_partitioned_topic_by_its_partitions_only(topics):
    topic = await topics.create(ORDERS, 1, partitioned=True)
    assert topics.pulsar_partition(ORDERS, 0) is topic.partitions[0]
    with pytest.raises(errors.InvalidRequest):
        topics.pulsar_partition(ORDERS, None)
    with pytest.raises(errors.PartitionNotFound):
        topics.pulsar_partition(ORDERS, 1)


async def test_a_missing_folder_ends_the_start(house, topics):
    await topics.create(ORDERS, 1)
    with pytest.raises(AssertionError):
        MetadataParts(
            house.catalogue_journal.reopened(), house.cursor_journal.reopened(), FakeFactory()
        )


async def test_a_namespace_is_renumbered_for_iggy_unless_the_number_is_taken(house):
    await house.namespaces.create("public", "shop", iggy_id=3)
    with pytest.raises(errors.NamespaceExists):
        await house.namespaces.renumber("public", "default", 3)
    with pytest.raises(errors.NamespaceNotFound):
        await house.namespaces.renumber("public", "nowhere", 4)
    await house.namespaces.renumber("public", "default", 4)
    assert house.namespaces.get("public", "default").iggy_id == 4


async def test_deleting_many_topics_gives_turns_to_other_tasks(topics):
    names = [TopicName("public", "default", str(number)) for number in range(20)]
    for name in names:
        await topics.create(name, 1)
    with counting(lambda: -len(topics)) as pieces:
        for name in names:
            await topics.delete(name)
    assert len(topics) == 0
    assert pieces.largest == 1


NAMESPACE = ("public", "default")


async def test_settings_of_a_namespace_are_checked_before_anything_is_published(house, topics):
    """A namespace without topics too: its later topics inherit the settings."""
    topic = await topics.create(ORDERS, 1)
    await house.namespaces.create("acme", "empty")
    for place in (NAMESPACE, ("acme", "empty")):
        with pytest.raises(errors.InvalidRequest, match="durability"):
            await topics.alter_namespace(*place, {"durability": "hopeful"})
        assert house.namespaces.get(*place).settings == {}
    assert topic.settings == {}


async def test_a_published_change_of_a_namespace_does_not_fail_on_a_full_disk(house, topics):
    first, second = [await topics.create(TopicName(*NAMESPACE, name), 1) for name in ("a", "b")]

    async def full_for_the_first(partition, changed):
        if partition.topic is first.meta:
            raise StorageFull("no room")
        house.factory.followed = partition.topic

    house.factory.alter_one = full_for_the_first
    await topics.alter_namespace(*NAMESPACE, {"durability": "written"})
    assert first.settings == second.settings == {"durability": "written"}
    assert house.factory.followed is second.meta


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("changes", [1, CREATE_ATTEMPTS])
async def test_partitions_made_while_their_namespace_changes_are_made_again(
    house, topics, is_new, changes
):
    """The first partitions have the old settings. If the namespace changes each time, the creation
    is refused.
    """
    if not is_new:
        await topics.create(ORDERS, 1)
    create, ages = house.factory.create, iter(range(1, changes + 1))

    async def create_slowly(*arguments):
        created = await create(*arguments)
        if (age := next(ages, None)) is not None:
            await topics.alter_namespace(*NAMESPACE, {"retention_ms": age})
        return created

    async def create_orders():
        await (topics.create(ORDERS, 1) if is_new else topics.add_partitions(ORDERS, 2))

    house.factory.create = create_slowly
    if changes == CREATE_ATTEMPTS:
        with pytest.raises(errors.Conflict, match="changed during"):
            await create_orders()
    else:
        await create_orders()
        topic = topics.get(ORDERS)
        assert topic.settings == {"retention_ms": 1}
    expected = 0 if changes == CREATE_ATTEMPTS else 1
    assert len(house.factory.folders) == expected + (not is_new)
    later = await topics.create(TopicName(*NAMESPACE, "later"), 1)
    assert later.settings == {"retention_ms": changes}
