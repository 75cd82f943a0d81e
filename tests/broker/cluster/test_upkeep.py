"""A whole broker over a shared store in memory: positions, packs, and what ends it."""

import pytest
import trio

from broker.broker import Broker
from broker.cluster.upkeep import Upkeep
from broker.config.settings import load
from storage.metadata.names import parse_topic
from storage.shared.ledger import Fenced
from tests.broker.records import append, make_partition, read_values
from tests.storage.shared.shared_dirs import SharedStore


@pytest.fixture
def store(tmp_path):
    return SharedStore(tmp_path)


def broker_of(store, node=1):
    """A broker over a new session, and what keeps its store small."""
    flags = [("data_dir", str(store.path), "test"), ("cluster.node_id", str(node), "test")]
    config = load(file="/dev/null", environment={}, flags=flags)
    shared = store.open(node)
    broker = Broker.open(config, None, shared)
    return broker, Upkeep(broker, shared)


async def test_records_and_positions_are_there_for_the_next_broker(store):
    for number, node in enumerate((1, 2, 1)):
        broker, upkeep = broker_of(store, node)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.run)
            topic = broker.topics.find(parse_topic("t"))
            partition = topic.partitions[0] if topic else (await make_partition(broker))
            assert partition.high_watermark == number
            await append(broker, partition, "kafka", [b"%d" % number])
            topic = broker.topics.get(parse_topic("t"))
            subscription = broker.subscriptions.open(topic, b"group")
            assert subscription.position(0) == (number or None)
            subscription.commit(0, number + 1)
            await broker.durability.settled()
            await upkeep.pack()
            records, _ = await read_values(partition, "kafka", 0, bytes_max=1 << 20)
            assert records == [(offset, b"%d" % offset) for offset in range(number + 1)]
            nursery.cancel_scope.cancel()
        broker.close() if number else broker.abandon()
    assert broker.placement.node_id == 1
    assert store.names("packs/"), "rounds were packed"
    assert broker.metrics.number("braidlog_objects", "put", "pack").value == 1


async def test_a_deleted_topic_leaves_no_object(store):
    broker, upkeep = broker_of(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        partition = await make_partition(broker)
        await append(broker, partition, "kafka", [b"x"])
        await upkeep.pack()
        await broker.topics.delete(parse_topic("t"))
        await broker.durability.settled()
        broker.retire_discarded()
        await upkeep.pack()
        store.now_ms += 10_000
        await upkeep.pack()
        nursery.cancel_scope.cancel()
    assert not store.names("packs/")
    broker.close()
    assert not broker_of(store)[0].topics.all()


async def test_a_broker_that_was_followed_stops_and_acknowledges_nothing(store):
    broker, upkeep = broker_of(store)
    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.run)
            nursery.start_soon(upkeep.run)
            partition = await make_partition(broker)
            await append(broker, partition, "kafka", [b"x"])
            session = broker_session(upkeep)
            assert store.ledger.fence(session.number, -1)
            session._beat()
            await trio.sleep_forever()
    assert caught.group_contains(Fenced)
    assert partition.high_watermark == 1
    broker.abandon()


def broker_session(upkeep):
    """The session that its beats keep."""
    return upkeep._shared.session


async def test_another_durability_is_refused(store):
    from broker import errors

    broker, _ = broker_of(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await make_partition(broker)
        with pytest.raises(errors.InvalidRequest):
            await broker.topics.alter_settings(parse_topic("t"), {"durability": "written"})
        with pytest.raises(errors.InvalidRequest):
            await broker.topics.create(parse_topic("u"), 1, settings={"durability": "written"})
        nursery.cancel_scope.cancel()
    broker.close()
