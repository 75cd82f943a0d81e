"""A change of a topic is answered once the topic's owner has followed the change: clients read
their changes from the owner.
"""

import pytest
import trio

from braidlog.broker.cluster.cluster_peers import PeerTimes
from tests.broker.cluster.nodes import two_brokers
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


async def test_an_owner_that_stays_behind_is_waited_for_with_a_limit(tmp_path):
    times = PeerTimes(spread_s=QUICK.spread_s, follow_s=5 * QUICK.spread_s)
    async with two_brokers(SharedStore(tmp_path), times) as (nodes, names):
        far, catalogue = sorted(nodes, key=lambda node: node.broker.catalogue.is_owned)
        name = next(candidate for candidate in names if far.broker.placement.is_here(candidate))
        async with FollowingOwner(far, name).behind:
            await catalogue.broker.topics.add_partitions(name, 3)
        assert len(catalogue.broker.topics.get(name).partitions) == 3
