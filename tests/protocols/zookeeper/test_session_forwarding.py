"""In a cluster each broker serves the listener; the catalogue's owner has the nodes."""

import json
import socket
from contextlib import asynccontextmanager

import pytest
import trio

from braidlog.broker.errors import Unanswered
from braidlog.broker.limits import OUTPUT_LAST_BYTES
from braidlog.protocols.zookeeper.adapter import ADAPTER
from braidlog.protocols.zookeeper.errors import ZkCode
from braidlog.protocols.zookeeper.messages import Event, Op
from tests.broker.cluster.nodes import two_brokers
from tests.listeners import open_listeners
from tests.protocols.zookeeper.talk import (
    EPHEMERAL,
    OPEN,
    SEQUENTIAL,
    RawZooKeeper,
    request_frame,
)
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import until


@asynccontextmanager
async def cluster(tmp_path):
    """Yield (owner of the catalogue, other broker), a `connect` of each, topics of each, and the
    store.
    """
    store = SharedStore(tmp_path)
    async with (
        two_brokers(store) as (nodes, names),
        open_listeners(nodes[0].broker) as first,
        open_listeners(nodes[1].broker) as two,
    ):
        for node, connect in zip(nodes, (first, two), strict=True):
            for protocol in ("kafka", "zookeeper"):
                await (await connect(protocol)).aclose()
            listeners = list(node.broker.listeners.values())
            addresses = node.internal.addresses(listeners)
            await trio.to_thread.run_sync(node.shared.session.tell_addresses, addresses)
        order = (0, 1) if nodes[0].broker.catalogue.is_owned else (1, 0)
        both = [(nodes[at], (first, two)[at], names[at]) for at in order]
        for node, other in (nodes, nodes[::-1]):
            placement = node.broker.placement
            await until(lambda: "kafka" in placement.others()[0].addresses)  # noqa: B023
            assert placement.others()[0].node_id == other.number
        yield *zip(*both, strict=True), store


async def session(connect, **fields):
    return await RawZooKeeper(await connect("zookeeper")).connect(**fields)


async def test_sessions_and_nodes_are_shared_by_all_brokers(tmp_path):
    async with cluster(tmp_path) as (nodes, connects, names, _):
        owner, other = [await session(connect) for connect in connects]
        assert await other.create("/a", b"1") == "/a"
        await owner.create("/a/lock", b"", EPHEMERAL)
        assert await other.children("/a", watch=True) == ["lock"]
        assert await other.code(Op.CREATE, "/a", b"", OPEN, 0) == ZkCode.NODE_EXISTS
        await owner.call(Op.CLOSE)
        assert await other.children("/a") == []
        assert list(other.events) == [(Event.CHILDREN_CHANGED, "/a")]
        # A client that moves keeps its session and its ephemeral nodes.
        await other.create("/a/mine", b"", EPHEMERAL)
        moved = await session(
            connects[0], session_id=other.session_id, password=other.password, zxid_seen=other.zxid
        )
        assert moved.session_id == other.session_id
        assert (await moved.exists("/a/mine"))[7] == moved.session_id
        assert not await other.receive(), "the first connection has ended"
        shown = sorted(str(node.number) for node in nodes)
        assert sorted(await moved.children("/brokers/ids")) == shown
        for node in nodes:
            data = json.loads(await moved.get(f"/brokers/ids/{node.number}"))
            assert (data["host"], data["port"]) == node.broker.listeners["kafka"].bound
        assert json.loads(await moved.get("/controller"))["brokerid"] == nodes[0].number
        for node, name in zip(nodes, names, strict=True):
            state = f"/brokers/topics/{name.topic}/partitions/0/state"
            assert json.loads(await moved.get(state))["leader"] == node.number


async def test_positions_of_other_brokers_topics_are_shown_and_moved(tmp_path):
    async with cluster(tmp_path) as (nodes, connects, names, _):
        clients = [await session(connect) for connect in connects]
        for client, name in zip(clients, names[::-1], strict=True):
            path = f"/consumers/g/offsets/{name.topic}/1"
            assert await client.exists(path, watch=True) is None
            assert await client.code(Op.SET_DATA, path, b"1", -1) == ZkCode.NO_NODE
            assert await client.create(path, b"5") == path
            assert await client.code(Op.CREATE, path, b"5", OPEN, 0) == ZkCode.NODE_EXISTS
            assert await client.code(Op.SET_DATA, path, b"x", -1) == ZkCode.BAD_ARGUMENTS
            await client.set(path, b"7")
            assert await client.get(path) == b"7"
            assert list(client.events) == [(Event.CREATED, path)]
        for node, name in zip(nodes, names, strict=True):
            topic = node.broker.topics.get(name)
            assert node.broker.subscriptions.find(topic, b"g").committed(1).offset == 7
        shown = sorted(name.topic for name in names)
        assert await clients[1].children("/consumers") == ["g"]
        assert sorted(await clients[1].children("/consumers/g/offsets")) == shown
        # Another protocol moves a position elsewhere: a watch fires by itself.
        path = f"/consumers/g/offsets/{names[1].topic}/1"
        await clients[0].call(Op.GET_DATA, path, True)
        topic = nodes[1].broker.topics.get(names[1])
        nodes[1].broker.subscriptions.find(topic, b"g").commit(1, 9)
        with trio.fail_after(30):
            event = await clients[0].receive()
        assert path.encode() in event
        assert await clients[0].get(path) == b"9"
        # The last position of a topic ends the subscription there.
        await clients[0].delete(path)
        assert nodes[1].broker.subscriptions.find(topic, b"g") is None
        assert await clients[0].children("/consumers/g/offsets") == [names[0].topic]
        assert await clients[0].code(Op.DELETE, path, -1) == ZkCode.NO_NODE


@pytest.mark.parametrize("at", [0, 1])
async def test_a_consumer_that_lost_a_partition_moves_nothing_back(tmp_path, at):
    async with cluster(tmp_path) as (_, connects, names, _store):
        frozen, owner = [await session(connect) for connect in connects]
        topic = names[at].topic
        path, owned = f"/consumers/g/offsets/{topic}/0", f"/consumers/g/owners/{topic}"
        for parent in ("/consumers/g", "/consumers/g/owners", owned):
            await owner.create(parent)
        await frozen.create(path, b"10")
        await owner.create(f"{owned}/0", b"c-0", EPHEMERAL)
        await frozen.set(path, b"8")
        assert await owner.get(path) == b"10"
        await frozen.set(path, b"12")
        await owner.set(path, b"11")
        assert await frozen.get(path) == b"11", "the partition's owner may go back"


async def test_sessions_go_on_when_another_broker_takes_the_catalogue(tmp_path):
    async with cluster(tmp_path) as (nodes, connects, _, store):
        leaving, staying = nodes
        clients = [await session(connect) for connect in connects]
        for number, client in enumerate(clients):
            await client.create(f"/e{number}", b"x", EPHEMERAL)
            last = await client.create("/seq", b"", SEQUENTIAL)
        zxid = max(client.zxid for client in clients)
        store.ledger.drain(leaving.number, drains=True)
        await until(lambda: staying.broker in ADAPTER.services)
        assert leaving.broker not in ADAPTER.services
        for client in clients:
            assert not await client.receive(), "disconnected"
        again = [
            await session(
                connect,
                session_id=client.session_id,
                password=client.password,
                zxid_seen=zxid,
            )
            for client, connect in zip(clients, connects, strict=True)
        ]
        assert [client.session_id for client in again] == [
            earlier.session_id for earlier in clients
        ]
        assert await again[0].get("/e1") == b"x"
        stat = await again[0].exists("/e0")
        assert stat[7] == again[0].session_id
        assert await again[1].create("/seq", b"", SEQUENTIAL) == f"/seq{int(last[4:]) + 1:010d}"
        assert again[1].zxid > zxid
        assert json.loads(await again[0].get("/controller"))["brokerid"] == staying.number


async def test_a_relayed_client_keeps_its_address(tmp_path):
    async with cluster(tmp_path) as (nodes, connects, _, _store):
        client = await session(connects[1])
        (live,) = ADAPTER.services[nodes[0].broker].sessions.live.values()
        assert live.holder.peer == "127.0.0.1:" + str(client.stream.socket.getsockname()[1])
        await client.stream.aclose()
        await until(lambda: live.holder is None)


async def test_a_commit_without_an_answer_is_a_lost_connection(tmp_path, monkeypatch):
    """ZooKeeper's clients repeat a request after ConnectionLoss, and give up after any other
    error.
    """
    async with cluster(tmp_path) as (nodes, connects, names, _):
        client = await session(connects[0])
        path = f"/consumers/g/offsets/{names[1].topic}/0"
        await client.create(path, b"1")

        async def unanswered(*_):
            return [Unanswered("broker 3 does not answer")]

        monkeypatch.setattr(nodes[0].broker.peers, "commit", unanswered)
        assert await client.code(Op.SET_DATA, path, b"2", -1) == ZkCode.CONNECTION_LOSS
        monkeypatch.undo()
        await client.set(path, b"2")
        assert await client.get(path) == b"2"


@pytest.mark.slow
async def test_a_forwarded_client_that_does_not_read_holds_a_piece(tmp_path):
    async with cluster(tmp_path) as (nodes, connects, _, _):
        client, slow = [await session(connects[1]) for _ in range(2)]
        data = bytes(range(256)) * 4096
        await client.create("/big", data)
        outputs = [node.broker.output for node in nodes]
        charged = [node.broker.config.memory.output_bytes * 7 // 8 for node in nodes]
        for output, size in zip(outputs, charged, strict=True):
            output.charge(size)  # As of peers that do not read.
        slow.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        for number in range(10):
            await slow.stream.send_all(request_frame(number, Op.GET_DATA, "/big", False))
        await until(lambda: all(map(more, outputs, charged)))
        for _ in range(3):
            assert await client.get("/big") == data
        await until(lambda: all(map(more, outputs, charged)))
        for output, size in zip(outputs, charged, strict=True):
            assert output.used <= size + 2 * OUTPUT_LAST_BYTES
            output.charge(-size)


def more(output, size):
    return output.used > size
