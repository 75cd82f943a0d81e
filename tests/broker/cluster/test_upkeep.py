"""A whole broker over a shared store in memory: positions, packs, and causes of its end."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker import errors
from braidlog.broker.cluster.upkeep import LOOK_S
from braidlog.storage.metadata.names import parse_topic
from braidlog.storage.shared.ledger import Fenced, LedgerWentBack
from tests.broker.cluster.nodes import SteppedBroker, settle
from tests.broker.records import append, make_partition, read_values
from tests.storage.shared.shared_dirs import SharedStore


@pytest.fixture
def store(tmp_path):
    return SharedStore(tmp_path)


async def test_the_next_broker_has_all_records_and_positions(store):
    for number, node_number in enumerate((1, 2, 1)):
        node = SteppedBroker(store, node_number)
        broker = node.broker
        async with node.running():
            await settle(node)
            topic = broker.topics.find(parse_topic("t"))
            partition = topic.partitions[0] if topic else (await make_partition(broker))
            assert partition.high_watermark == number
            await append(broker, partition, "kafka", [b"%d" % number])
            topic = broker.topics.get(parse_topic("t"))
            subscription = broker.subscriptions.open(topic, b"group")
            assert subscription.position(0) == (number or None)
            subscription.commit(0, number + 1)
            await broker.durability.all_durable()
            await node.upkeep.pack()
            records, _ = await read_values(partition, "kafka", 0, bytes_max=1 << 20)
            assert records == [(offset, b"%d" % offset) for offset in range(number + 1)]
            if number:
                node.closes()
        store.ledger.leave(node.shared.session.number)
    assert broker.placement.node_id == 1
    assert store.names("packs/"), "rounds were packed"
    assert broker.metrics.number("braidlog_objects", "put", "pack").value == 1


async def test_a_deleted_topic_leaves_no_object(store):
    node = SteppedBroker(store, 1)
    broker, upkeep = node.broker, node.upkeep
    async with node.running():
        await settle(node)
        partition = await make_partition(broker)
        await append(broker, partition, "kafka", [b"x"])
        await upkeep.pack()
        await broker.topics.delete(parse_topic("t"))
        await broker.durability.all_durable()
        broker.retire_discarded()
        await upkeep.pack()
        store.now_ms += 10_000
        await upkeep.pack()
        node.closes()
    assert not store.names("packs/")
    async with SteppedBroker(store, 1).running() as again:
        await settle(again)
        assert not again.broker.topics.all() and again.broker.namespaces.all()


async def test_a_sweep_with_an_outdated_database_stops_the_broker(store):
    node = SteppedBroker(store, 1)
    with pytest.raises(ExceptionGroup) as caught:
        async with node.running():
            await settle(node)
            before = dict(store.objects.objects)
            store.objects.put("marks/1/00000000000000000099-0", b"")  # A later state had round 99.
            await node.upkeep._clean(sweep=True)
            await trio.sleep_forever()
    assert caught.group_contains(LedgerWentBack)
    assert before.items() <= store.objects.objects.items()
    node.kill()


async def test_packs_wait_for_full_rounds(store, autojump_clock):
    """Packs wait until `pack_ms`; otherwise `pack_bytes` were enough."""
    node = SteppedBroker(store, 1)
    metrics, backlog = node.broker.metrics, node.shared.backlog
    async with trio.open_nursery() as nursery:
        for is_full, seconds in ((True, 60), (False, LOOK_S)):
            begun = trio.current_time()
            waiting = trio.Event()

            async def wait(waiting=waiting):
                await node.upkeep._until_due()
                waiting.set()

            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            metrics.number("braidlog_uploaded_bytes", "round").inc(64 << 20)
            while not waiting.is_set():
                backlog.appended(backlog.round_bytes if is_full else 1)
                backlog.begun(backlog.gathering)
                await trio.sleep(LOOK_S / 2)
            assert seconds <= trio.current_time() - begun <= seconds + LOOK_S
    node.kill()


async def test_a_replaced_broker_stops_and_acknowledges_nothing(store):
    node = SteppedBroker(store, 1)
    broker, upkeep = node.broker, node.upkeep
    with pytest.raises(ExceptionGroup) as caught:
        async with node.running():
            node.nursery.start_soon(upkeep.run)
            await settle(node)
            partition = await make_partition(broker)
            await append(broker, partition, "kafka", [b"x"])
            assert store.ledger.fence(node.shared.session.number, -1)
            node.shared.session._beat()
            await trio.sleep_forever()
    assert caught.group_contains(Fenced)
    assert partition.high_watermark == 1
    node.kill()


async def test_another_durability_is_refused(store):
    async with SteppedBroker(store, 1).running() as node:
        await settle(node)
        broker = node.broker
        await make_partition(broker)
        with pytest.raises(errors.InvalidRequest):
            await broker.topics.alter_settings(parse_topic("t"), {"durability": "written"})
        with pytest.raises(errors.InvalidRequest):
            await broker.topics.create(parse_topic("u"), 1, settings={"durability": "written"})
