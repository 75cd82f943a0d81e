"""A topic that no client uses is deleted without a record that another broker stored meanwhile, and
after a deletion no broker stores records of the topic.
"""

from contextlib import asynccontextmanager

import pytest
import trio

from braidlog.broker import errors
from braidlog.broker.cluster.cluster_peers import PeerTimes
from braidlog.broker.cluster.placement import NOBODY
from braidlog.broker.topics.cluster_topics import ClusterTopics
from braidlog.broker.topics.unused_topics import delete_unused
from tests.broker.cluster.nodes import (
    LEASE_MS,
    SteppedBroker,
    balanced,
    impatient,
    settle,
    stepping,
    topic_of,
    two_brokers,
)
from tests.broker.records import append
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import until


class InterruptedChanges:
    """The changes of a broker; calls `before[change]` before the first such change."""

    def __init__(self, changes, before):
        self._changes = changes
        self._before = before

    async def make(self, change, *arguments, **checks):
        interrupt = self._before.pop(change, None)
        if interrupt is not None:
            await interrupt()
        return await self._changes.make(change, *arguments, **checks)


class OwnedTopic:
    """A topic that broker `old` owns, while broker `new` may take the topic over."""

    def __init__(self, store, nodes, names):
        self._store = store
        # The owner of the catalogue stays the owner, and takes the topic.
        self.old, self.new = sorted(nodes, key=lambda node: node.broker.catalogue.is_owned)
        self.name = next(name for name in names if self.old.broker.placement.is_here(name))
        self.topic = self.old.broker.topics.get(self.name)

    def is_at(self, node):
        return node.broker.placement.is_here(self.name)

    async def leave(self):
        """Move the topic to `new`."""
        self._store.ledger.drain(self.old.number, drains=True)
        await until(lambda: self.is_at(self.new) and not self.is_at(self.old))

    async def come_back(self):
        """Move the topic to `old` again."""
        self._store.ledger.drain(self.old.number, drains=False)
        self._store.now_ms += 2 * LEASE_MS
        for node in (self.old, self.new):
            node.shared.session._beat()
        await until(lambda: self.is_at(self.old) and not self.is_at(self.new))

    async def store_at(self, node, value=b"x"):
        """Store a record at a broker."""
        partition = node.broker.topics.partition(self.name, 0)
        await append(node.broker, partition, "plain", [value])
        await node.broker.durability.all_durable()

    def records(self):
        """Return the number of stored records at the owner."""
        owner = self.old if self.is_at(self.old) else self.new
        return owner.broker.topics.partition(self.name, 0).high_watermark

    async def delete_unused(self, **before):
        """Delete the topic as its owner, with calls before the changes."""
        broker = self.old.broker
        changes = InterruptedChanges(broker.topics._changes, before)
        topics = ClusterTopics(self.old.parts.topics, changes)
        epoch = self.topic.owner_epoch
        with self.topic.without_appends():
            await delete_unused(topics, self.topic, epoch=epoch)


@asynccontextmanager
async def owned_topic(tmp_path):
    store = SharedStore(tmp_path)
    async with two_brokers(store) as (nodes, names):
        yield OwnedTopic(store, nodes, names)


async def test_an_unused_topic_is_deleted(tmp_path):
    async with owned_topic(tmp_path) as owned:
        await owned.delete_unused()
        for node in (owned.old, owned.new):
            assert node.broker.topics.find(owned.name) is None


async def test_a_topic_with_records_of_a_new_owner_is_not_deleted(tmp_path):
    """The former owner has found the topic unused before it moved."""
    async with owned_topic(tmp_path) as owned:

        async def move_and_store():
            await owned.leave()
            await owned.store_at(owned.new)

        with pytest.raises(errors.NotOwner):
            await owned.delete_unused(alter_settings=move_and_store)
        await owned.store_at(owned.new)  # The topic takes records again.
        assert owned.records() == 2


async def test_a_topic_that_was_away_meanwhile_is_not_deleted(tmp_path):
    async with owned_topic(tmp_path) as owned:

        async def move_and_store():
            await owned.leave()
            await owned.store_at(owned.new)
            await owned.come_back()

        with pytest.raises(errors.Conflict, match="moved to another broker meanwhile"):
            await owned.delete_unused(alter_settings=move_and_store)
        await owned.store_at(owned.old)
        assert owned.records() == 2


async def test_a_new_owner_takes_no_records_of_a_topic_that_is_being_deleted(tmp_path):
    async with owned_topic(tmp_path) as owned:
        refused = []

        async def move_and_try():
            await owned.leave()
            with pytest.raises(errors.NotOwner, match="about to be deleted") as caught:
                await owned.store_at(owned.new)
            refused.append(caught.value)

        await owned.delete_unused(delete=move_and_try)
        assert refused and owned.new.broker.topics.find(owned.name) is None
        await owned.new.broker.topics.create(owned.name, 1)
        await owned.store_at(owned.new)
        assert owned.records() == 1


async def test_the_owner_ends_a_deletion_that_was_left_in_doubt(tmp_path):
    """The next owner takes records again, and then the deletion cannot succeed any more."""
    async with owned_topic(tmp_path) as owned:

        async def move_and_reopen():
            await owned.leave()
            await owned.new.broker.inactivity.check()
            await owned.store_at(owned.new)

        with pytest.raises(errors.Conflict, match="takes records again"):
            await owned.delete_unused(delete=move_and_reopen)
        assert owned.records() == 1


async def test_a_deletion_without_an_answer_lets_records_in_once_it_cannot_happen(tmp_path):
    async with owned_topic(tmp_path) as owned:
        places = []

        async def lose():
            places.append(owned.old.parts.shared_catalogue.place)
            raise errors.Unanswered("no answer")

        with pytest.raises(errors.Unanswered):
            await owned.delete_unused(delete=lose)
        await owned.store_at(owned.old)
        parts = owned.new.parts
        with pytest.raises(errors.Conflict):  # The request that was on its way.
            parts.local_changes.check_unchanged(
                parts.shared_catalogue, "delete", [owned.name.full.split("/"), False], *places
            )
        assert owned.records() == 1


async def test_a_deletion_waits_for_an_owner_that_its_catalogue_does_not_know_yet(tmp_path):
    """The new owner has followed the catalogue before the deletion, and is busy since then."""
    store, quick = SharedStore(tmp_path), PeerTimes(spread_s=0.01)
    nodes = [SteppedBroker(store, number, quick) for number in (1, 2, 3)]
    async with nodes[0].running(), nodes[1].running(), nodes[2].running():
        await balanced(store, *nodes)
        catalogue = next(node for node in nodes if node.broker.catalogue.is_owned)
        old, new = (node for node in nodes if node is not catalogue)
        name = topic_of(old.held)
        async with trio.open_nursery() as going_on:
            going_on.start_soon(stepping, *nodes)
            await catalogue.broker.topics.create(name, 1)
            going_on.cancel_scope.cancel()
        await settle(*nodes)
        store.ledger.drain(old.number, drains=True)
        store.ledger.drain(catalogue.number, drains=True)  # Takes no shards.
        while not new.broker.placement.is_here(name):
            await old.membership.step()
            await new.membership.step()
        assert catalogue.broker.placement.owner(name).node_id == old.number
        done = trio.Event()

        async def delete():
            await catalogue.broker.topics.delete(name)
            done.set()

        async with trio.open_nursery() as nursery:
            async with new.membership._changing:
                nursery.start_soon(delete)
                await until(lambda: catalogue.broker.topics.find(name) is None)
                await old.membership.step()
                with trio.move_on_after(20 * quick.spread_s):
                    await done.wait()
                assert not done.is_set()
                assert new.broker.topics.find(name) is not None
            while not done.is_set():
                await new.membership.step()
                await trio.lowlevel.checkpoint()
        assert new.broker.topics.find(name) is None


async def test_no_record_of_a_new_topic_is_stored_with_a_deleted_topic_of_the_same_name(tmp_path):
    """The owner publishes records, but does not follow the catalogue: it waits for the object
    store, for example. The outcome of the deletion is unknown then, and no topic takes the name.
    """
    async with owned_topic(tmp_path) as owned:
        topics = owned.new.broker.topics  # Of the catalogue's owner.
        async with owned.old.membership._changing:
            with impatient(owned.new), pytest.raises(errors.Unanswered):
                await topics.delete(owned.name)
            await owned.store_at(owned.old)  # Acknowledged before the deletion was.
            refusal = pytest.raises(errors.NotOwner, match="does not know yet that a topic")
            with impatient(owned.new), refusal:
                await topics.create(owned.name, 1)
        await until(lambda: owned.old.broker.topics.find(owned.name) is None)
        await topics.create(owned.name, 1)
        await until(lambda: owned.old.broker.topics.find(owned.name))
        await owned.store_at(owned.old)
        assert owned.records() == 1


async def test_a_deletion_is_done_if_its_topic_has_no_owner(tmp_path):
    """The next owner follows the catalogue before it serves the topic."""
    store = SharedStore(tmp_path)
    nodes = [SteppedBroker(store, number, PeerTimes(spread_s=0.01)) for number in (1, 2)]
    async with nodes[0].running(), nodes[1].running():
        await balanced(store, *nodes)
        old, catalogue = sorted(nodes, key=lambda node: node.broker.catalogue.is_owned)
        name = topic_of(old.held)
        async with trio.open_nursery() as going_on:
            going_on.start_soon(stepping, *nodes)
            await catalogue.broker.topics.create(name, 1)
            going_on.cancel_scope.cancel()
        shard = old.shared.shard_of(name.full)
        await trio.to_thread.run_sync(old.shared.session.release, shard)
        await catalogue.broker.topics.delete(name)  # Raises Unanswered for an owner behind it.
        assert catalogue.broker.placement.owner(name) is NOBODY
        assert catalogue.broker.topics.find(name) is None
