"""Two brokers of a cluster: ownership of topics, without loss when a topic moves."""

import threading

import pytest
import trio

from braidlog.broker import errors
from braidlog.broker.access.rights import ANONYMOUS
from braidlog.broker.cluster.membership import HAND_OVER_S
from braidlog.broker.cluster.peers import Asker
from braidlog.broker.positions.members import SubscriptionMember
from braidlog.storage.metadata.names import TopicName
from tests.broker.cluster.nodes import LEASE_MS, SteppedBroker, balanced, settle, topic_of
from tests.broker.records import append, read_values
from tests.storage.shared.shared_dirs import SHARDS, SharedStore

ONE, OTHER = 1, 3  # With these numbers, both own some of the few shards.
ALL = set(range(1, SHARDS + 1))


@pytest.fixture
def store(tmp_path):
    return SharedStore(tmp_path)


async def await_balance(store, first, second):
    await balanced(store, first, second)
    assert first.held and second.held and first.held | second.held == ALL
    assert not first.held & second.held


async def values_of(node, name):
    partition = node.broker.topics.partition(name, 0)
    records, _ = await read_values(partition, "kafka", 0, bytes_max=1 << 20)
    return [value for _, value in records]


async def test_each_broker_serves_its_share_and_knows_every_topic(store):
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await await_balance(store, first, second)
        mine, theirs = topic_of(first.held), topic_of(second.held)
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for name in (mine, theirs):
                    nursery.start_soon(first.broker.topics.create, name, 2)
                    nursery.start_soon(stepping, nursery, second, name)
        for node, here, elsewhere in ((first, mine, theirs), (second, theirs, mine)):
            await append(node.broker, node.broker.topics.partition(here, 0), "kafka", [b"x"])
            assert len(node.broker.topics.get(elsewhere).partitions) == 2
            with pytest.raises(errors.NotOwner) as raised:
                node.broker.topics.partition(elsewhere, 0)
            assert raised.value.node_id == ONE + OTHER - node.number
            with pytest.raises(errors.NotOwner):
                node.broker.subscriptions.open(node.broker.topics.get(elsewhere), b"g")


async def stepping(nursery, node, name):
    """Let a broker take steps until it knows a topic."""
    while node.broker.topics.find(name) is None:
        await node.membership.step()
        await trio.lowlevel.checkpoint()


async def stepping_on(*nodes):
    while True:
        for node in nodes:
            await node.membership.step()
        await trio.lowlevel.checkpoint()


async def test_any_broker_changes_topics_and_sees_its_changes(store):
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await await_balance(store, first, second)
        asker = second if first.broker.catalogue.is_owned else first
        topics, namespaces = asker.broker.topics, asker.broker.namespaces
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stepping_on, first, second)
                await namespaces.create("acme", "shop")
                name = TopicName("acme", "shop", "orders")
                topic = await topics.create(name, 1, settings={"deduplication": True})
                assert topics.is_deduplicated(topic)
                await topics.add_partitions(name, 3)
                assert len(topics.get(name).partitions) == 3
                await topics.alter_settings(name, {"deduplication": None})
                assert not topics.is_deduplicated(topics.get(name))
                with pytest.raises(errors.TopicExists):
                    await topics.create(name, 1)
                assert await topics.auto_create(name) is topics.get(name)
                await topics.terminate(name)
                assert topics.get(name).is_terminated
                await topics.keep_partitions(name, 2)
                assert len(topics.get(name).partitions) == 2
                await topics.delete(name)
                assert topics.find(name) is None
                await namespaces.delete("acme", "shop")
                assert namespaces.find("acme", "shop") is None
                nursery.cancel_scope.cancel()


async def test_a_topic_just_created_by_another_broker_is_used(store):
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await await_balance(store, first, second)
        owner, asker = (first, second) if first.broker.catalogue.is_owned else (second, first)
        name = topic_of(asker.held)
        created = []

        async def use():
            created.append(await asker.broker.topics.auto_create(name))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(owner.broker.topics.create, name, 3)
                while owner.broker.topics.find(name) is None:
                    await trio.lowlevel.checkpoint()
                assert asker.broker.topics.find(name) is None
                nursery.start_soon(use)
                while not any(asker.parts.peers._idle.values()):  # The request has been answered.
                    await trio.lowlevel.checkpoint()
                nursery.start_soon(stepping_on, asker)
                while not created:
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        assert len(created[0].partitions) == 3


async def test_any_broker_changes_tenants_and_the_next_owner_keeps_them(store):
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await await_balance(store, first, second)
        owner, asker = (first, second) if first.broker.catalogue.is_owned else (second, first)
        tenants = asker.broker.namespaces
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stepping_on, first, second)
                await tenants.create_tenant("bank", ["clerk"])
                await tenants.create_tenant("gone", [])
                await tenants.alter_tenant("bank", ["boss"])
                await tenants.delete_tenant("gone")
                await tenants.clusters.create("eu", {"url": "u"})
                await tenants.clusters.create("gone", {})
                await tenants.clusters.alter("eu", {"url": "v"})
                await tenants.clusters.delete("gone")
                with pytest.raises(errors.NamespaceExists):
                    await tenants.create_tenant("bank", [])
                with pytest.raises(errors.NamespaceNotFound):
                    await tenants.delete_tenant("gone")
                assert tenants.tenants() == ["bank", "public"]
                await owner.broker.namespaces.create_tenant("shop", [])
                nursery.cancel_scope.cancel()
        assert store.ledger.drain(owner.number, drains=True)
        await settle(first, second)
        assert asker.broker.catalogue.is_owned and not owner.broker.catalogue.is_owned
        for node in (first, second):
            assert node.broker.namespaces.tenants() == ["bank", "public", "shop"]
            assert node.broker.namespaces.admin_roles("bank") == ["boss"]
            clusters = node.broker.namespaces.clusters
            assert (clusters.names(), clusters.find("eu")) == (["eu"], {"url": "v"})


async def test_acknowledged_records_move_with_their_shard_and_back(store):
    async with SteppedBroker(store, ONE).running() as first:
        await settle(first)
        assert first.held == ALL
        names = [topic_of({shard}) for shard in sorted(ALL)]
        for name in names:
            topic = await first.broker.topics.create(name, 1)
            await append(first.broker, topic.partitions[0], "kafka", [b"1"])
            first.broker.subscriptions.open(topic, b"g").commit(0, 1)
        await first.broker.durability.all_durable()
        async with SteppedBroker(store, OTHER).running() as second:
            await await_balance(store, first, second)
            for name in names:
                owner = first if first.broker.placement.is_here(name) else second
                topic = owner.broker.topics.get(name)
                assert owner.broker.subscriptions.get(topic, b"g").position(0) == 1
                await append(owner.broker, topic.partition(0), "kafka", [b"2"])
                owner.broker.subscriptions.get(topic, b"g").commit(0, 2)
                await owner.upkeep.pack()
            assert store.ledger.drain(OTHER, drains=True)
            await settle(first, second)
            assert not second.broker.placement.held and first.held == ALL
            for name in names:
                topic = first.broker.topics.get(name)
                assert await values_of(first, name) == [b"1", b"2"]
                assert first.broker.subscriptions.get(topic, b"g").position(0) == 2
            store.ledger.drain(OTHER, drains=False)
            await await_balance(store, first, second)


async def test_leftovers_of_a_deleted_topic_in_packs_block_no_broker(store):
    async with SteppedBroker(store, ONE).running() as first:
        await settle(first)
        gone = topic_of({1})
        staying = topic_of({1}, prefix="kept")
        topics = [await first.broker.topics.create(name, 1) for name in (gone, staying)]
        for expected in (topics[:1], topics):
            for topic in expected:
                await append(first.broker, topic.partitions[0], "kafka", [b"x"])
            await first.broker.durability.all_durable()
            await first.upkeep.pack()
        await first.broker.topics.delete(gone)
        await first.broker.durability.all_durable()
        await first.upkeep.pack()
        async with SteppedBroker(store, OTHER).running() as second:
            await balanced(store, first, second)
            store.ledger.drain(ONE, drains=True)
            await settle(first, second)
            assert second.held == ALL
            assert await values_of(second, staying) == [b"x"]


async def test_a_takeover_of_a_silent_broker_keeps_acknowledged_records(store):
    async with SteppedBroker(store, OTHER).running() as second:
        async with SteppedBroker(store, ONE).running() as first:
            await await_balance(store, first, second)
            name = topic_of(first.held)
            asker = first if first.broker.catalogue.is_owned else second
            await asker.broker.topics.create(name, 1)
            await settle(first, second)
            partition = first.broker.topics.partition(name, 0)
            await append(first.broker, partition, "kafka", [b"x"])
        store.now_ms += 2 * LEASE_MS
        second.shared.session._answered_since_s = -1e9
        second.shared.session._beat()
        second.membership._free_since = dict.fromkeys(range(SHARDS + 1), -1e9)
        await settle(second)
        assert second.held == ALL
        assert await values_of(second, name) == [b"x"]


async def test_only_the_topics_owner_moves_a_position(store):
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await await_balance(store, first, second)
        name = topic_of(second.held)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stepping_on, first, second)
                await first.broker.topics.create(name, 1)
                while second.broker.topics.find(name) is None:
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        asker, home = Asker(ANONYMOUS, "test"), first.parts.peers
        place, soon = (name.full, 0), trio.current_time() + 60
        commits = [(OTHER, (*place, 7, b"m", 1)), (OTHER, (name.full, 5, 7, b"m", 1))]
        errors_of = await home.commit(asker, b"g", [*commits, (9, (*place, 7, b"m", 1))])
        assert errors_of[0] is None and isinstance(errors_of[1], errors.PartitionNotFound)
        assert isinstance(errors_of[2], errors.NotOwner)
        assert await home.committed(asker, b"g", [(OTHER, place)], soon) == {place: (7, b"m", -1)}
        assert await home.committed(asker, b"h", [(OTHER, place)], soon) == {place: None}
        here, elsewhere = ("public", "default"), ("public", "other")
        assert await home.positions(asker, b"g", here) == [place]
        for group, namespace in ((b"h", here), (b"g", elsewhere)):
            assert await home.positions(asker, group, namespace) == []
            assert not await home.end_group(asker, group, namespace)
        partition = second.broker.topics.partition(name, 0)
        await append(second.broker, partition, "kafka", [b"x", b"y"])
        assert await home.stored_sizes() == {name.full: (2, partition.size_bytes, 1)}
        await home.purge(OTHER, asker, name.full)
        assert partition.log_start_offset == partition.high_watermark == 2
        assert (await home.stored_sizes())[name.full][0] == 0
        # A broker that was fenced during a hang forwards its clients' earlier requests.
        store.ledger.fence(first.shared.session.number, -1)
        await second.membership.step()
        (error,) = await home.commit(asker, b"g", [(OTHER, (*place, 3, b"m", 1))])
        assert isinstance(error, errors.Unanswered)
        topic = second.broker.topics.get(name)
        assert second.broker.subscriptions.get(topic, b"g").committed(0).offset == 7


async def test_a_group_is_deleted_only_in_its_namespace(store):
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await await_balance(store, first, second)
        shards = second.held
        name = topic_of(shards)
        same = topic_of(shards, namespace="other")
        owner = first if first.broker.catalogue.is_owned else second
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stepping_on, first, second)
                await owner.broker.namespaces.create("public", "other")
                for group_topic in (name, same):
                    topic = await second.broker.topics.create(group_topic, 1)
                    second.broker.subscriptions.open(topic, b"g").commit(0, 0)
                nursery.cancel_scope.cancel()
        asker, home = Asker(ANONYMOUS, "test"), first.parts.peers
        readers = [SubscriptionMember("pulsar", "p", "", (0,))]
        second.broker.members.add_source(lambda topic, group: readers)
        with pytest.raises(errors.SubscriptionBusy):
            await home.end_group(asker, b"g", ("public", "default"))
        readers.clear()
        assert await home.end_group(asker, b"g", ("public", "default"))
        topics, subscriptions = second.broker.topics, second.broker.subscriptions
        assert subscriptions.find(topics.get(name), b"g") is None
        assert subscriptions.find(topics.get(same), b"g") is not None


async def test_non_persistent_topics_are_listed_at_every_broker(store):
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await await_balance(store, first, second)
        name = topic_of(second.held)
        second.broker.non_persistent.create(name)
        with trio.fail_after(60):
            listed = await first.parts.peers.non_persistent(("public", "default"))
            assert listed == {f"non-persistent://{name.full}": name}
            assert not await first.parts.peers.non_persistent(("public", "other"))


async def test_a_leaving_broker_serves_until_others_own_everything(store):
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await await_balance(store, first, second)
        held = first.held
        first.parts.on_leave(first.membership.hand_over)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.broker.leave)
            while not any(row.drains for row in store.ledger.sessions()):
                await trio.lowlevel.checkpoint()
            assert first.broker.is_leaving and not first.broker.stopping.is_set()
            await settle(first, second)
            await first.membership.step()
        assert first.broker.stopping.is_set()
        assert not first.broker.placement.held and second.held == held | second.held == ALL


async def test_a_broker_without_successor_leaves_at_once(store):
    async with SteppedBroker(store, ONE).running() as first:
        await settle(first)
        first.parts.on_leave(first.membership.hand_over)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.broker.leave)
            while not first.broker.is_leaving:
                await trio.lowlevel.checkpoint()
            while not first.broker.stopping.is_set():
                await first.membership.step()
        assert first.held == ALL


async def test_a_leaving_broker_waits_with_a_limit_for_a_passive_broker(store, autojump_clock):
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await await_balance(store, first, second)
        first.parts.on_leave(first.membership.hand_over)
        before = trio.current_time()
        await first.broker.leave()
        assert trio.current_time() - before == pytest.approx(HAND_OVER_S)
        assert first.broker.stopping.is_set()


async def test_a_drain_while_a_reader_waits_for_the_store_stops_no_broker(store):
    """The drain closes and renames a folder that the reader's thread is about to write to."""
    async with SteppedBroker(store, ONE).running() as first:
        await settle(first)
        name = topic_of(first.held)
        await first.broker.topics.create(name, 1)
        await append(first.broker, first.broker.topics.partition(name, 0), "kafka", [b"x"])
        first.closes()
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await settle(first, second)
        mine = first.broker.placement.is_here(name)
        reader, taker = (first, second) if mine else (second, first)
        partition = reader.broker.topics.partition(name, 0)
        is_reading, is_given_up = threading.Event(), threading.Event()
        get = store.objects.get

        def get_late(*place):
            is_reading.set()
            assert is_given_up.wait(30)
            return get(*place)

        async def read():
            with pytest.raises(errors.NotOwner):
                await partition.read(0, 1 << 20)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                store.objects.get = get_late
                nursery.start_soon(read)
                await trio.to_thread.run_sync(is_reading.wait, 30)
                store.objects.get = get
                await trio.to_thread.run_sync(reader.shared.session.drain)
                await settle(reader, taker)
                is_given_up.set()
        assert taker.held == ALL
        assert await values_of(taker, name) == [b"x"]
        await reader.membership.step()  # The broker still serves: it has not stopped.
