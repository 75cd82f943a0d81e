"""Links between brokers of this process that can be cut after the other broker has done the work,
and checks of the answers to clients.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from braidlog.broker.broker import Broker
from braidlog.broker.cluster.cluster_peers import INTERNAL, PEER_TIMES, PeerTimes
from braidlog.broker.cluster.links import MAC_BYTES, MAGIC, NONCE_BYTES
from braidlog.broker.topics.topic import Topic
from braidlog.storage.metadata.names import TopicName
from conformance.cluster.unanswered_kinds import ChangeOutcome
from tests.broker.cluster.nodes import SteppedBroker, two_brokers
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import until

HANDSHAKE_BYTES = len(MAGIC) + NONCE_BYTES + MAC_BYTES  # The called side's bytes of the handshake.
PIECE_BYTES = 1 << 16


class Cutter:
    """Forwards bytes for a broker's internal port.

    After `answers_to_pass` answers, the next `answers_to_lose` answers are dropped and their
    connections cut.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.answers_to_lose = 0
        self.answers_to_pass = 0
        self.lost = 0

    async def forward(self, client: trio.SocketStream) -> None:
        """Serve a connection."""
        async with (
            client,
            await trio.open_tcp_stream(*self._target) as server,
            trio.open_nursery() as both,
        ):
            both.start_soon(self._requests, client, server, both.cancel_scope)
            both.start_soon(self._answers, server, client, both.cancel_scope)

    def _loses(self) -> bool:
        """Return True if the present answer must be dropped."""
        if self.answers_to_pass:
            self.answers_to_pass -= 1
        elif self.answers_to_lose:
            self.answers_to_lose -= 1
            self.lost += 1
            return True
        return False

    async def _requests(
        self, client: trio.SocketStream, server: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        try:
            async for piece in client:
                await server.send_all(piece)
        except trio.BrokenResourceError:
            pass
        scope.cancel()

    async def _answers(
        self, server: trio.SocketStream, client: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        sent = 0
        try:
            async for piece in server:
                if sent >= HANDSHAKE_BYTES and self._loses():
                    break
                await client.send_all(piece)
                sent += len(piece)
        except trio.BrokenResourceError:
            pass
        scope.cancel()


@asynccontextmanager
async def cut_links(asker: SteppedBroker, owner: SteppedBroker) -> AsyncIterator[Cutter]:
    """Make the asker reach the owner through a `Cutter`. The caller must let both brokers take
    steps.
    """
    (address,) = [owner.internal.addresses([])[INTERNAL]]
    host, port = address.rsplit(":", 1)
    cutter = Cutter((host, int(port)))
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, cutter.forward, 0)
        shown = ("127.0.0.1", listeners[0].socket.getsockname()[1])
        addresses = {INTERNAL: f"{shown[0]}:{shown[1]}"}
        await trio.to_thread.run_sync(owner.shared.session.tell_addresses, addresses)
        others = asker.broker.placement.others
        await until(lambda: [node.addresses[INTERNAL] for node in others()] == [shown])
        await asker.parts.peers.close()  # Connections that bypass the cutter.
        yield cutter
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def lossy(
    path: Path, times: PeerTimes = PEER_TIMES
) -> AsyncIterator[tuple[SteppedBroker, SteppedBroker, Cutter, list[TopicName]]]:
    """Yield the asking broker, the catalogue's owner, their `Cutter`, and a topic
    of each broker.
    """
    async with two_brokers(SharedStore(path), times) as (nodes, names):
        asker, owner = sorted(nodes, key=lambda node: node.broker.catalogue.is_owned)
        async with cut_links(asker, owner) as cutter:
            yield asker, owner, cutter, [*names]


class States:
    """A broker's state that clients can change: the catalogue, and the broker's data of its topics.

    Without times and secrets.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._passwords = {user.name: user.password_hash for user in broker.users.all()}

    def now(self) -> dict[str, object]:
        """Return the present state by part."""
        broker = self._broker
        state: dict[str, object] = {}
        for namespace in broker.namespaces.all():
            state[f"namespace {namespace.tenant}/{namespace.namespace}"] = (
                namespace.iggy_id,
                dict(namespace.settings),
            )
        for tenant in broker.namespaces.tenants():
            state[f"tenant {tenant}"] = [*broker.namespaces.admin_roles(tenant)]
        for cluster in broker.namespaces.clusters.names():
            state[f"cluster {cluster}"] = broker.namespaces.clusters.find(cluster)
        for user in broker.users.all():
            is_same = self._passwords.get(user.name) == user.password_hash
            tokens = [token.name for token in user.tokens]
            state[f"user {user.name}"] = (user.is_active, [*user.roles], tokens, is_same)
        state["permissions"] = sorted(str(grant) for grant in broker.permissions.list())
        for topic in broker.topics.all():
            settings = dict(topic.meta.settings)
            state[f"topic {topic.name}"] = (len(topic.partitions), settings, topic.meta.iggy_id)
            if broker.placement.is_here(topic.name):
                state |= self._topic_state(topic)
        return state

    def _topic_state(self, topic: Topic) -> dict[str, object]:
        broker, name = self._broker, str(topic.name)
        state: dict[str, object] = {
            f"log {name}": [
                (partition.log_start_offset, partition.next_offset)
                for partition in topic.partitions
            ],
            f"schemas {name}": [(schema.type, schema.data) for schema in topic.meta.schemas],
        }
        for group in topic.meta.groups:
            members = broker.members.of(topic, group.name.encode())
            state[f"group {name} {group.name}"] = (group.group_id, len(members))
        for called in broker.subscriptions.names(topic):
            subscription = broker.subscriptions.get(topic, called)
            state[f"subscription {name} {called!r}"] = [
                (subscription.position(index), [*subscription.acked(index)])
                for index in range(len(topic.partitions))
            ]
        return state


def check_told(
    outcome: ChangeOutcome,
    before: dict[str, object],
    now: dict[str, object],
    after: dict[str, object],
) -> None:
    """Check that an answer was true. `after`: the state that the change makes from `before`."""
    assert before != after, "the change changes nothing"
    match outcome:
        case ChangeOutcome.DONE:
            assert now == after
        case ChangeOutcome.NOT_DONE:
            assert now == before
        case ChangeOutcome.UNKNOWN:
            assert now in (before, after), {
                key: (before.get(key), now.get(key), after.get(key))
                for key in {*before, *now, *after}
                if not now.get(key) == before.get(key) == after.get(key)
            }
