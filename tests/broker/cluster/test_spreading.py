"""A change of a topic is answered once the topic's owner has followed the change: clients read
their changes from the owner.
"""

from contextlib import asynccontextmanager

import pytest
import trio

from braidlog.broker import errors
from braidlog.broker.cluster.cluster_peers import PeerTimes
from tests.broker.cluster.nodes import (
    SteppedBroker,
    balanced,
    impatient,
    stepping,
    topic_of,
    two_brokers,
)
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import until

QUICK = PeerTimes(spread_s=0.01)  # For the other brokers; the owner of the topic has `follow_s`.


CHANGES = {
    "add": lambda topics, name: topics.add_partitions(name, 3),
    "keep": lambda topics, name: topics.keep_partitions(name, 1),
    "alter": lambda topics, name: topics.alter_settings(name, {"retention_ms": 5}),
    "terminate": lambda topics, name: topics.terminate(name),
    "delete": lambda topics, name: topics.delete(name),
}


class FollowingOwner:
    """A topic's owner, which follows the catalogue only outside of `behind`."""

    def __init__(self, node, name):
        self.behind = node.membership._changing
        self._topics, self._name = node.broker.topics, name

    def state(self):
        topic = self._topics.find(self._name)
        if topic is None:
            return None
        meta = topic.meta
        return len(meta.partition_ids), dict(meta.settings)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("asks_at_owner", [False, True])
async def test_a_change_of_a_topic_waits_until_its_owner_has_followed(
    tmp_path, change, asks_at_owner
):
    async with two_brokers(SharedStore(tmp_path), QUICK) as (nodes, names):
        far, catalogue = sorted(nodes, key=lambda node: node.broker.catalogue.is_owned)
        name = next(candidate for candidate in names if far.broker.placement.is_here(candidate))
        owner, done = FollowingOwner(far, name), trio.Event()
        asker = far if asks_at_owner else catalogue
        before = owner.state()

        async def changed():
            await CHANGES[change](asker.broker.topics, name)
            done.set()

        async with trio.open_nursery() as nursery:
            async with owner.behind:
                nursery.start_soon(changed)
                place = catalogue.parts.shared_catalogue.place
                await until(lambda: catalogue.parts.shared_catalogue.place > place)
                with trio.move_on_after(10 * QUICK.spread_s):
                    await done.wait()
                assert not done.is_set() and owner.state() == before
            await done.wait()
        assert owner.state() != before


async def test_a_creation_does_not_wait_for_an_owner_that_is_behind(tmp_path):
    async with two_brokers(SharedStore(tmp_path), QUICK) as (nodes, names):
        far, catalogue = sorted(nodes, key=lambda node: node.broker.catalogue.is_owned)
        (name,) = (candidate for candidate in names if far.broker.placement.is_here(candidate))
        await catalogue.broker.topics.delete(name)
        async with FollowingOwner(far, name).behind:
            await catalogue.broker.topics.create(name, 1)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_that_the_owner_has_not_followed_in_time_is_made_with_an_unknown_outcome(
    tmp_path, change
):
    async with two_brokers(SharedStore(tmp_path), QUICK) as (nodes, names):
        far, catalogue = sorted(nodes, key=lambda node: node.broker.catalogue.is_owned)
        name = next(candidate for candidate in names if far.broker.placement.is_here(candidate))
        here = FollowingOwner(catalogue, name)
        before = here.state()
        async with FollowingOwner(far, name).behind:
            with impatient(catalogue), pytest.raises(errors.Unanswered, match="not followed it in"):
                await CHANGES[change](catalogue.broker.topics, name)
        assert here.state() != before
        await until(lambda: FollowingOwner(far, name).state() == here.state())


async def test_an_asker_is_told_that_the_owner_has_not_followed(tmp_path):
    store = SharedStore(tmp_path)
    async with three_brokers(store, QUICK) as (catalogue, owner, asker):
        name = topic_of(owner.held)
        await catalogue.broker.topics.create(name, 1)
        await until(lambda: asker.broker.topics.find(name))
        async with FollowingOwner(owner, name).behind:
            with impatient(catalogue), pytest.raises(errors.Unanswered, match="not followed it in"):
                await asker.broker.topics.delete(name)
        assert asker.broker.topics.find(name) is None


@asynccontextmanager
async def three_brokers(store, times):
    """Yield the owner of the catalogue and two other running brokers with shards of topics."""
    nodes = [SteppedBroker(store, number, times) for number in (1, 2, 3)]
    async with nodes[0].running(), nodes[1].running(), nodes[2].running():
        await balanced(store, *nodes)
        async with trio.open_nursery() as going_on:
            for node in nodes:  # Each by itself: a broker that is behind holds up no other.
                going_on.start_soon(stepping, node)
            yield sorted(nodes, key=lambda node: not node.broker.catalogue.is_owned)
            going_on.cancel_scope.cancel()
