"""Brokers of a cluster in this process, over a ledger and a store in memory."""

from contextlib import asynccontextmanager, contextmanager

import trio

from braidlog.broker.broker import Broker
from braidlog.broker.cluster.cluster_peers import PEER_TIMES, PeerTimes
from braidlog.broker.cluster.internal_listener import InternalListener
from braidlog.broker.cluster.membership import Membership
from braidlog.broker.cluster.upkeep import Upkeep
from braidlog.broker.cluster_parts import ClusterParts
from braidlog.broker.config.settings import load
from braidlog.storage.metadata.names import TopicName
from tests.storage.shared.shared_dirs import SHARDS
from tests.waiting import until

LEASE_MS = 1000
STEPS_MAX = 200


def topic_of(shards, prefix="t", namespace="default"):
    """Return a topic of one of these shards."""
    from braidlog.storage.shared.layout import shard_of

    for number in range(1000):
        name = TopicName("public", namespace, f"{prefix}{number}")
        if shard_of(name.full, SHARDS) in shards:
            return name
    raise AssertionError("no such name")


class SteppedBroker:
    """A broker and its upkeep; the test takes the steps of the membership."""

    def __init__(self, store, number, times=PEER_TIMES):
        flags = [
            ("data_dir", str(store.path), "test"),
            ("cluster.node_id", str(number), "test"),
            ("storage.mode", "shared", "test"),
            ("shared.database", "memory", "test"),
            ("shared.store", "memory", "test"),
        ]
        config = load(file="/dev/null", environment={}, flags=flags)
        self.store = store
        self.shared = store.open(number, takes=False, lease_ms=LEASE_MS)
        self.broker = Broker.open(
            config,
            None,
            self.shared,
            make_parts=lambda foundation: ClusterParts(foundation, self.shared, times),
        )
        self.parts = self.broker.parts
        self.upkeep = Upkeep(self.broker, self.shared)
        self.membership = Membership(self.broker, self.parts, self.upkeep, store.ledger)
        self.internal = InternalListener(self.broker, self.parts)
        self.number = number
        self.is_closing = False

    @property
    def held(self):
        """Return the shards of topics that this broker serves."""
        return self.broker.placement.held - {0}

    @asynccontextmanager
    async def running(self):
        """Run the broker in the block; kill the broker at the end, unless it was closed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.broker.run)
            nursery.start_soon(self.internal.run)
            await trio.to_thread.run_sync(
                self.shared.session.tell_addresses, self.internal.addresses([])
            )
            self.nursery = nursery
            try:
                yield self
            finally:
                with trio.CancelScope(shield=True):
                    await self.parts.peers.close()
                nursery.cancel_scope.cancel()
        if self.is_closing:
            self.broker.close()
        else:
            self.kill()

    def closes(self):
        """Stop cleanly at the end."""
        self.is_closing = True

    def kill(self):
        """End the process without notice to any peer."""
        self.shared.session.leave = lambda: None
        self.broker.abandon()


async def settle(*nodes):
    """Take steps until no shard moves any more."""
    for _ in range(STEPS_MAX):
        before = [frozenset(node.broker.placement.held) for node in nodes]
        done = [await node.membership.step() for node in nodes]
        if all(done) and before == [frozenset(node.broker.placement.held) for node in nodes]:
            return
    raise AssertionError("shards are handed on and on")


async def balanced(store, *nodes):
    """Take steps until every node has served long enough to own its share."""
    await settle(*nodes)
    store.now_ms += 2 * LEASE_MS
    for node in nodes:
        node.shared.session._beat()
    await settle(*nodes)


async def stepping(*nodes):
    """Let brokers take steps, repeatedly."""
    while True:
        for node in nodes:
            await node.membership.step()
        await trio.lowlevel.checkpoint()


@contextmanager
def impatient(node):
    """Let a broker wait for the other brokers only for a moment, in the block."""
    peers = node.parts.peers
    times = peers.times
    peers.times = PeerTimes(find_s=0.02, follow_s=0.02, spread_s=0.01)
    try:
        yield
    finally:
        peers.times = times


@asynccontextmanager
async def two_brokers(store, times=PEER_TIMES):
    """Yield two running brokers and the names of two topics: each broker serves one of the topics.

    Each topic has two partitions.
    """
    first, second = SteppedBroker(store, 1, times), SteppedBroker(store, 3, times)
    async with first.running(), second.running():
        await balanced(store, first, second)
        names = topic_of(first.held), topic_of(second.held)
        async with trio.open_nursery() as going_on:
            going_on.start_soon(stepping, first, second)
            for name in names:
                await first.broker.topics.create(name, 2)
            for node in (first, second):
                for name in names:
                    await until(lambda: node.broker.topics.find(name))  # noqa: B023
            yield (first, second), names
            going_on.cancel_scope.cancel()
