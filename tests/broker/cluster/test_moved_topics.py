"""Topics that move to another broker while their subscriptions are in use: nothing
is left behind.
"""

import pytest
import trio

from braidlog.broker import errors
from tests.broker.cluster.nodes import (
    LEASE_MS,
    SteppedBroker,
    balanced,
    settle,
    stepping,
    topic_of,
    two_brokers,
)
from tests.broker.records import append
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import until


async def test_partitions_are_removed_once_even_with_a_subscription_at_the_owner(tmp_path):
    store = SharedStore(tmp_path)
    async with SteppedBroker(store, 1).running() as first:
        await settle(first)
        names = [topic_of({shard}) for shard in sorted(first.held)]
        in_use = []
        for name in names:
            topic = await first.broker.topics.create(name, 8)
            in_use.append(first.broker.subscriptions.open(topic, b"g"))
            in_use[-1].commit(7, 1)
        await first.broker.durability.all_durable()
        async with SteppedBroker(store, 3).running() as second:
            await balanced(store, first, second)
            assert first.broker.catalogue.is_owned, "its topics are elsewhere, the catalogue is not"
            moved = next(name for name in names if second.broker.placement.is_here(name))
            async with trio.open_nursery() as going_on:
                going_on.start_soon(stepping, first, second)
                await second.broker.topics.keep_partitions(moved, 7)
                going_on.cancel_scope.cancel()
            for node in (first, second):
                assert len(node.broker.topics.get(moved).partitions) == 7
            topic = second.broker.topics.get(moved)
            assert second.parts.cursors.get(topic.meta.topic_id, 7, b"g") is None


async def test_a_drained_broker_follows_a_topic_that_shrinks_and_grows_elsewhere(tmp_path):
    store = SharedStore(tmp_path)
    async with two_brokers(store) as ((first, second), (mine, _)):
        topic = first.broker.topics.get(mine)
        in_use = first.broker.subscriptions.open(topic, b"g")
        in_use.commit(1, 1)
        store.ledger.drain(first.number, drains=True)
        await until(lambda: second.broker.placement.is_here(mine))
        await second.broker.topics.keep_partitions(mine, 1)
        await until(lambda: len(topic.partitions) == 1)
        await second.broker.topics.add_partitions(mine, 3)
        await until(lambda: len(topic.partitions) == 3)
        assert in_use.has_moved


async def test_a_subscription_of_a_returned_topic_is_new(tmp_path):
    store = SharedStore(tmp_path)
    async with two_brokers(store) as ((first, second), (mine, _)):
        topic, subscriptions = first.broker.topics.get(mine), first.broker.subscriptions
        before = subscriptions.open(topic, b"g")
        before.commit(0, 1)
        store.ledger.drain(first.number, drains=True)
        await until(lambda: second.broker.placement.is_here(mine))
        store.ledger.drain(first.number, drains=False)
        store.now_ms += 2 * LEASE_MS
        for node in (first, second):
            node.shared.session._beat()
        await until(lambda: first.broker.placement.is_here(mine))
        assert subscriptions.get(topic, b"g") is not before
        for use in (
            lambda: before.position(0),
            lambda: before.commit(0, 2),
            lambda: before.ack_to(0, 2, lazy=True),
            lambda: before.delete_cursor(0),
            before.delete,
            before.open,
        ):
            with pytest.raises(errors.NotOwner):
                use()
        assert subscriptions.get(topic, b"g").position(0) == 1


async def test_a_purge_of_a_topic_that_moves_meanwhile_is_not_called_done(tmp_path):
    store = SharedStore(tmp_path)
    async with two_brokers(store) as ((first, second), (mine, _)):
        topic = first.broker.topics.get(mine)
        for partition in topic.partitions:
            await append(first.broker, partition, "plain", [b"x"])
        await first.broker.durability.all_durable()

        async def purge():
            with pytest.raises(errors.NotOwner):
                await first.broker.retention.purge(topic)

        altering = first.broker.topics.altering  # Held by another change.
        async with trio.open_nursery() as nursery, altering:
            nursery.start_soon(purge)
            store.ledger.drain(first.number, drains=True)
            await until(lambda: second.broker.placement.is_here(mine))
        partition = second.broker.topics.partition(mine, 0)
        assert partition.log_start_offset == 0 < partition.high_watermark
