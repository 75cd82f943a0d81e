"""Renames of a topic and of a namespace: the parts that stay, the connections that end, and the
state after a crash.
"""

from pathlib import Path

import pytest
import trio

from braidlog.broker import errors
from braidlog.broker.broker import Broker
from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.delivery.cursor import DispatchCursor
from braidlog.broker.topics.topic import TopicEvent
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.log.folder_reader import list_partitions
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.tools.findings import Level
from tests.broker.delivery.dispatch_fakes import FakeConsumer
from tests.broker.metadata_fakes import RecordingListener
from tests.broker.records import append, read_values
from tests.broker.test_broker import config_for
from tests.storage.files_twins import StoppingDisk
from tests.storage.tools.test_verify import verified
from tests.waiting import HANG_S, until

OLD, NEW = TopicName("public", "shop", "orders"), TopicName("public", "shop", "sales")


async def filled(broker, name=OLD, partitions=2):
    """Return a topic with a record and a position in each partition."""
    if broker.namespaces.find(name.tenant, name.namespace) is None:
        await broker.namespaces.create(name.tenant, name.namespace)
    topic = await broker.topics.create(name, partitions)
    subscription = broker.subscriptions.open(topic, b"billing")
    for partition in topic.partitions:
        await append(broker, partition, "kafka", [b"one", b"two"])
        subscription.commit(partition.index, 1)
    await broker.durability.all_durable()
    return topic


async def check_kept(broker, name=NEW):
    """Check that the content of `filled` exists under the name."""
    topic = broker.topics.get(name)
    assert {partition.metrics_name for partition in topic.partitions} == {name.full}
    subscription = broker.subscriptions.get(topic, b"billing")
    for partition in topic.partitions:
        assert subscription.position(partition.index) == 1
        values, _ = await read_values(partition, "kafka", 0, bytes_max=1 << 20)
        assert values == [(0, b"one"), (1, b"two")]
    return topic


def faults(path):
    """Return the findings of `log verify`, by level."""
    findings, _ = verified(path)
    return {level: [finding for finding in findings if finding.level is level] for level in Level}


async def test_records_positions_and_numbers_stay_and_the_old_name_is_free(broker):
    heard = RecordingListener()
    before = await filled(broker)
    ids, number = before.meta.partition_ids, broker.topics.number(before)
    broker.topics.listeners.add(heard)
    await broker.renaming.rename_topic(OLD, NEW)
    assert heard.take() == [("orders", TopicEvent.RENAMED), ("sales", TopicEvent.CREATED)]
    topic = await check_kept(broker)
    assert (topic.meta.partition_ids, broker.topics.number(topic)) == (ids, number)
    assert topic is broker.topics.find_by_id(topic.meta.topic_id)
    assert topic is broker.topics.find_numbered("public", "shop", number)
    assert topic.resource.topic == "sales"
    assert broker.topics.find(OLD) is None and before.deleted
    assert {partition.topic for partition in list_partitions(broker.data_dir)} == {NEW.full}
    with pytest.raises(errors.TopicNotFound):
        await broker.topics.auto_create(OLD)
    created = await broker.topics.create(OLD, 1)
    assert not set(created.meta.partition_ids) & set(ids)
    assert not broker.subscriptions.names(created)


async def test_a_name_reaches_the_folder_before_the_next_name_is_prepared(broker):
    """Otherwise the folder could have a name that is not in the catalogue, or half a name."""
    third = TopicName("public", "shop", "third")
    topic = await filled(broker, partitions=1)
    folder = Path(topic.partitions[0].log.folder)
    disk = broker._storage.files.disk = StoppingDisk("/topic.new", "rename")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.renaming.rename_topic, OLD, NEW)
        await trio.to_thread.run_sync(disk.stopped.wait)
        prepared = (folder / "topic.new").read_bytes()
        nursery.start_soon(broker.renaming.rename_topic, NEW, third)
        await trio.sleep(0.05)  # A second name would come much sooner.
        content = (folder / "topic.new").read_bytes()
        disk.go_on.set()
    assert content == prepared
    await check_kept(broker, third)
    assert {partition.topic for partition in list_partitions(broker.data_dir)} == {third.full}


async def test_the_old_topic_object_allows_no_change(broker):
    before = await filled(broker, partitions=1)
    held = broker.subscriptions.get(before, b"billing")
    await broker.renaming.rename_topic(OLD, NEW)
    (partition,) = before.partitions
    for attempt in (
        lambda: held.commit(0, 2),
        lambda: held.ack_to(0, 2, lazy=False),
        lambda: held.ack(0, [(1, 2)], lazy=False),
        lambda: held.seek(0, 0),
        lambda: held.delete_cursor(0),
        lambda: partition.read_warm(0, 100),
        partition.check_open,
    ):
        with pytest.raises(errors.TopicNotFound):
            attempt()
    with pytest.raises(errors.SubscriptionNotFound):
        held.delete()
    topic = await check_kept(broker)
    subscription = broker.subscriptions.get(topic, b"billing")
    assert subscription is not held
    subscription.commit(0, 2)
    assert subscription.position(0) == 2


async def test_an_append_by_the_old_name_wakes_waits_by_the_new_name(broker, monkeypatch):
    before = await filled(broker, partitions=1)
    (partition,) = before.partitions
    prepare, codec = broker._partitions.prepare_names, codec_named("kafka")
    body = codec.encode([Record(2, 1, value=b"three")], 2)

    async def prepare_and_append(names):
        await prepare(names)
        partition.append([body], codec.inspect(body), body_format=codec.format, append_us=1)

    monkeypatch.setattr(broker._partitions, "prepare_names", prepare_and_append)
    async with trio.open_nursery() as nursery:

        class WaitingListener(RecordingListener):
            def topic_changed(self, topic, event):
                if event is TopicEvent.CREATED:
                    assert topic.partitions[0].high_watermark == 2
                    nursery.start_soon(topic.partitions[0].wait_for, 2)

        broker.topics.listeners.add(WaitingListener())
        with trio.fail_after(HANG_S):
            await broker.renaming.rename_topic(OLD, NEW)
    assert broker.topics.get(NEW).partitions[0].high_watermark == 3


async def test_both_names_share_the_producer_memory(broker):
    before = await filled(broker, partitions=1)
    table = await before.partitions[0].sequences()
    await broker.renaming.rename_topic(OLD, NEW)
    assert await broker.topics.get(NEW).partitions[0].sequences() is table


async def test_delivery_under_the_old_name_ends_and_under_the_new_one_begins_at_once(broker):
    before = await filled(broker, partitions=1)
    (partition,) = before.partitions
    cursor = DispatchCursor(broker.subscriptions.get(before, b"billing"), 0)
    dispatcher = broker.dispatchers.make(partition, b"billing", SubscriptionKind.SHARED, cursor)
    consumer = FakeConsumer("c")
    broker.dispatchers.attach(dispatcher, consumer)
    dispatchers = []

    class Joining(RecordingListener):
        def topic_changed(self, topic, event):
            if event is TopicEvent.CREATED:
                dispatchers.append(broker.dispatchers.find(topic.partitions[0], b"billing"))

    broker.topics.listeners.add(Joining())
    await broker.renaming.rename_topic(OLD, NEW)
    assert dispatchers == [None]
    await until(lambda: consumer.was_disconnected)
    topic = broker.topics.get(NEW)
    assert broker.dispatchers.find(topic.partitions[0], b"billing") is None
    assert not broker.subscriptions.get(topic, b"billing").listeners


@pytest.mark.limits(renamed_partitions=2)
async def test_invalid_names_are_refused_and_change_nothing(broker):
    await filled(broker)
    other = TopicName("public", "shop", "other")
    await broker.topics.create(other, 1)
    for name, error in (
        (other, errors.TopicExists),
        (TopicName("public", "shop", "a/b"), errors.InvalidName),
        (TopicName("public", "shop", "x-partition-3"), errors.InvalidName),
    ):
        with pytest.raises(error):
            await broker.renaming.rename_topic(OLD, name)
    with pytest.raises(errors.TopicNotFound):
        await broker.renaming.rename_topic(NEW, TopicName("public", "shop", "x"))
    for before, renamed, error in (
        ("shop", "default", errors.NamespaceExists),
        ("shop", "a/b", errors.InvalidName),
        ("none", "some", errors.NamespaceNotFound),
        ("default", "some", errors.NotSupported),
    ):
        with pytest.raises(error):
            await broker.renaming.rename_namespace("public", before, renamed)
    with pytest.raises(errors.LimitExceeded):
        await broker.renaming.rename_topic(OLD, NEW)
    await check_kept(broker, OLD)


async def test_a_topic_that_changes_meanwhile_keeps_its_name(broker, monkeypatch):
    await filled(broker)
    prepare = broker.topics._factory.prepare_names
    for change in (
        lambda: broker.topics.add_partitions(OLD, 3),
        lambda: broker.topics.create(NEW, 1),
        lambda: broker.topics.delete(OLD),
    ):

        async def slowly(names, change=change):
            await prepare(names)
            await change()

        monkeypatch.setattr(broker.topics._factory, "prepare_names", slowly)
        with pytest.raises((errors.Conflict, errors.TopicExists)):
            await broker.renaming.rename_topic(OLD, NEW)
        if broker.topics.find(NEW):
            await broker.topics.delete(NEW)
    assert broker.topics.find(OLD) is None


async def test_a_renamed_namespace_keeps_all_its_topics(broker):
    for topic in ("a", "b", "c"):
        await filled(broker, TopicName("public", "shop", topic))
    await broker.topics.alter_namespace("public", "shop", {"retention_ms": 90_000})
    number = broker.namespaces.number(broker.namespaces.get("public", "shop"))
    await broker.renaming.rename_namespace("public", "shop", "store")
    for topic in ("a", "b", "c"):
        assert broker.topics.find(TopicName("public", "shop", topic)) is None
        renamed = await check_kept(broker, TopicName("public", "store", topic))
        assert renamed.settings["retention_ms"] == 90_000
    assert broker.namespaces.find("public", "shop") is None
    assert broker.namespaces.find_numbered(number).namespace == "store"
    assert {partition.topic for partition in list_partitions(broker.data_dir)} == {
        f"public/store/{topic}" for topic in "abc"
    }
    await broker.namespaces.create("public", "shop")
    assert broker.topics.list("public", "shop") == []


async def leave_undone(names):
    """Leave the folders unchanged: a crash came before."""


@pytest.mark.parametrize("lost", ["journal", "folders", "nothing"])
@pytest.mark.parametrize("whole", ["topic", "namespace"])
async def test_a_crash_leaves_a_single_whole_name(tmp_path, lost, whole, monkeypatch):
    """`lost`: only the prepared names exist; or the catalogue has them but the folders do not; or
    all is done.
    """
    path = tmp_path / "data"
    broker = Broker.open(config_for(path))
    stored = broker._partitions
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await filled(broker)
        if lost == "journal":

            async def die(names, prepare=stored.prepare_names):
                await prepare(names)
                raise errors.Conflict("killed")

            monkeypatch.setattr(stored, "prepare_names", die)
        if lost == "folders":
            monkeypatch.setattr(stored, "take_names", leave_undone)
        try:
            if whole == "topic":
                await broker.renaming.rename_topic(OLD, NEW)
            else:
                await broker.renaming.rename_namespace("public", "shop", "store")
        except errors.Conflict:
            assert lost == "journal"
        nursery.cancel_scope.cancel()
    broker.abandon()
    renamed = NEW if whole == "topic" else TopicName("public", "store", "orders")
    name = OLD if lost == "journal" else renamed
    findings = faults(path)
    assert not findings[Level.FAULT]
    assert bool(findings[Level.NOTE]) is (lost == "folders")
    broker = Broker.open(config_for(path))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await check_kept(broker, name)
        assert {partition.topic for partition in list_partitions(path)} == {name.full}
        assert len(broker.topics) == 1
        nursery.cancel_scope.cancel()
    broker.close()
    assert not any(faults(path)[level] for level in (Level.FAULT, Level.WARNING, Level.NOTE))


@pytest.mark.parametrize("is_done", [False, True])
async def test_verify_beside_a_running_broker_knows_the_new_name(broker, monkeypatch, is_done):
    await filled(broker)
    if not is_done:
        monkeypatch.setattr(broker._partitions, "take_names", leave_undone)
    await broker.renaming.rename_topic(OLD, NEW)
    findings = faults(broker.data_dir)
    assert not findings[Level.FAULT]
    assert len(findings[Level.NOTE]) == (0 if is_done else 2)
