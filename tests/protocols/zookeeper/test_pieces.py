"""Large answers while memory is short: peers that do not read keep no reader waiting."""

import socket

import pytest

from braidlog.broker.coordination.nodes import OPEN, AclSet, NodeGone, NodeMade, Nodes, NodeSet
from braidlog.broker.limits import MIB, OUTPUT_LAST_BYTES, OUTPUT_SHARE_BYTES_MIN
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.protocols.zookeeper.adapter import ADAPTER
from braidlog.protocols.zookeeper.messages import Event, Op
from braidlog.protocols.zookeeper.operations import CHILDREN_AT_ONCE
from braidlog.protocols.zookeeper.pieces import SentInPieces
from tests.protocols.zookeeper.talk import request_frame
from tests.storage.metadata.memory_journal import MemoryJournal
from tests.waiting import until

BIG = bytes(range(256)) * 2048
SOCKET_BYTES = 16 * 1024
PEERS = 20


@pytest.fixture
def short(broker):
    """Use all memory but the last eighth, as peers that do not read do; return the used bytes."""
    used = broker.config.memory.output_bytes * 7 // 8
    broker.output.charge(used)
    yield used
    broker.output.charge(-used)


def connection_of(broker, client):
    return ADAPTER.services[broker].sessions.live[client.session_id].holder


def unsent(broker, client):
    return connection_of(broker, client).outbox.unsent_bytes


async def leave_unread(broker, session, *requests):
    """Return a client that sends requests and does not read; its socket takes few bytes."""
    client = await session()
    connection_of(broker, client)._sock.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES
    )
    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
    for number, (op, *fields) in enumerate(requests, 1):
        await client.stream.send_all(request_frame(number, op, *fields))
    await until(lambda: unsent(broker, client))
    return client


@pytest.mark.slow
async def test_while_memory_is_short_a_large_node_is_read_at_once(client, broker, short):
    await client.create("/big", BIG)
    stat = await client.exists("/big")
    assert await client.call(Op.GET_DATA, "/big", True) == (BIG, stat)
    assert broker.output.used == short
    await client.set("/big", b"")
    assert list(client.events) == [(Event.DATA_CHANGED, "/big")]


@pytest.mark.slow
async def test_peers_that_do_not_read_keep_no_reader_waiting(client, session, broker, short):
    await client.create("/big", BIG)
    request = (Op.GET_DATA, "/big", False)
    peers = [await leave_unread(broker, session, request) for _ in range(PEERS)]
    assert await client.get("/big") == BIG
    await until(lambda: all(unsent(broker, peer) for peer in peers))
    assert broker.output.used <= short + PEERS * OUTPUT_LAST_BYTES


@pytest.mark.slow
async def test_events_and_later_answers_follow_the_last_piece(client, session, broker, short):
    await client.create("/big", BIG)
    requests = (Op.GET_DATA, "/big", True), (Op.EXISTS, "/big", False)
    slow = await leave_unread(broker, session, *requests)
    await client.set("/big", b"new")
    assert await client.get("/big") == b"new"
    xid, code, answer = await slow.answer()
    assert (xid, code, answer.buffer()) == (1, 0, BIG)
    assert not slow.events
    assert (await slow.answer())[:2] == (2, 0)
    assert list(slow.events) == [(Event.DATA_CHANGED, "/big")]


@pytest.mark.slow
async def test_old_data_that_a_peer_does_not_read_count_until_the_peer_leaves(
    client, session, broker, short
):
    await client.create("/big", BIG)
    slow = await leave_unread(broker, session, (Op.GET_DATA, "/big", False))
    await client.delete("/big")
    assert broker.output.used >= short + len(BIG)
    await slow.stream.aclose()
    await until(lambda: broker.output.used == short)


@pytest.mark.slow
async def test_without_memory_for_old_data_their_connections_end(client, session, broker, short):
    await client.create("/big", BIG)
    slow = await leave_unread(broker, session, (Op.GET_DATA, "/big", False))
    connection = connection_of(broker, slow)
    rest = broker.config.memory.output_bytes - broker.output.used - OUTPUT_SHARE_BYTES_MIN
    broker.output.charge(rest)
    await client.set("/big", b"new")
    assert not connection.is_open
    assert broker.output.used <= broker.config.memory.output_bytes
    broker.output.charge(-rest)
    assert await client.get("/big") == b"new"


def create_children(broker, path, count):
    """Create children with long names; return the names."""
    nodes = ADAPTER.services[broker].nodes
    names = {f"{number:05d}".ljust(200, "x") for number in range(count)}
    with nodes.together():
        nodes.apply(NodeMade(path, b"", OPEN, 0, nodes.next_zxid(), 1))
        for name in names:
            nodes.apply(NodeMade(f"{path}/{name}", b"", OPEN, 0, nodes.next_zxid(), 1))
    return names


@pytest.mark.slow
@pytest.mark.parametrize("count", [CHILDREN_AT_ONCE // 2, 3 * CHILDREN_AT_ONCE])
async def test_a_long_list_of_children_is_whole(client, broker, count):
    names = create_children(broker, "/many", count)
    stat = await client.exists("/many")
    assert set(await client.children("/many")) == names
    listed, shown = await client.call(Op.GET_CHILDREN2, "/many", False)
    assert set(listed) == names and shown == stat
    assert broker.output.used == 0


@pytest.mark.slow
async def test_a_long_list_of_children_is_made_once_for_peers_that_do_not_read(
    client, session, broker
):
    short = broker.config.memory.output_bytes * 7 // 8
    names = create_children(broker, "/many", 5 * CHILDREN_AT_ONCE)
    size = 200 * len(names)
    request = (Op.GET_CHILDREN, "/many", False)
    peers = [await leave_unread(broker, session, request) for _ in range(PEERS)]
    assert size < broker.output.used < 2 * size + PEERS * OUTPUT_SHARE_BYTES_MIN
    broker.output.charge(short)
    assert set(await client.children("/many")) == names
    broker.output.charge(-short)
    await until(lambda: all(unsent(broker, peer) for peer in peers))
    assert size < broker.output.used < 2 * size + PEERS * OUTPUT_SHARE_BYTES_MIN


async def test_a_list_of_children_waits_for_memory_and_then_shows_the_newest_children(
    client, session, broker, nursery
):
    other, answers = await session(), []
    names = create_children(broker, "/many", OUTPUT_SHARE_BYTES_MIN // 200 + 1)
    large = broker.config.memory.output_bytes - OUTPUT_SHARE_BYTES_MIN
    broker.output.charge(large)  # As of peers that do not read.

    async def read():
        answers.append(await client.children("/many", watch=True))

    nursery.start_soon(read)
    await other.create("/many/new")
    assert not answers
    broker.output.charge(-large)
    await until(lambda: answers)
    assert set(answers[0]) == names | {"new"}
    assert not client.events  # The watch was set with the answer.
    await other.delete("/many/new")
    await client.exists("/many")
    assert list(client.events) == [(Event.CHILDREN_CHANGED, "/many")]


class Peer:
    """A connection that sends data in pieces."""

    peer = "127.0.0.1:1"

    def __init__(self):
        self.ended = []

    def end(self, reason):
        self.ended.append(reason)


@pytest.fixture
def nodes():
    nodes = Nodes(MemoryJournal, report=lambda error: None)
    nodes.open()
    apply(nodes, NodeMade("/big", BIG, OPEN, 0, 1, 1))
    return nodes


def apply(nodes, *changes):
    with nodes.together():
        for change in changes:
            nodes.apply(change)


def test_data_of_a_node_cost_nothing_and_old_data_count_once(nodes):
    budget = OutputBudget(4 * MIB)
    pieces, peers = SentInPieces(nodes, budget), [Peer(), Peer()]
    data = nodes.find("/big").data
    with pieces.hold_data("/big", data, peers[0]):
        with pieces.hold_data("/big", data, peers[1]):
            apply(nodes, AclSet("/big", OPEN))
            pieces.changed("/big")
            assert budget.used == 0
            apply(nodes, NodeSet("/big", b"new", 2, 1))
            pieces.changed("/big")
            pieces.changed("/big")
            assert budget.used == len(BIG)
            new = nodes.find("/big").data
            with pieces.hold_data("/big", new, peers[1]):
                apply(nodes, NodeGone("/big", 3))
                pieces.changed("/big")
                assert budget.used == len(BIG) + len(new)
        assert budget.used == len(BIG)
    assert budget.used == 0
    assert not (peers[0].ended or peers[1].ended)


def test_old_data_without_room_end_the_connections_that_send_them(nodes):
    budget = OutputBudget(4 * MIB)
    pieces, peers = SentInPieces(nodes, budget), [Peer(), Peer()]
    budget.charge(4 * MIB - len(BIG) + 1)
    with (
        pieces.hold_data("/big", nodes.find("/big").data, peers[0]),
        pieces.hold_data("/big", nodes.find("/big").data, peers[1]),
    ):
        apply(nodes, NodeGone("/big", 2))
        pieces.changed("/big")
        assert [len(peer.ended) for peer in peers] == [1, 1]
    assert budget.used == 4 * MIB - len(BIG) + 1


def test_another_list_of_children_is_counted_too(nodes):
    budget = OutputBudget(4 * MIB)
    pieces, peers = SentInPieces(nodes, budget), [Peer(), Peer()]
    with pieces.hold_children("/", 5, b"five", peers[0]):
        assert pieces.children("/", 5) == b"five"
        assert pieces.children("/", 6) is None
        with pieces.hold_children("/", 6, b"sixth", peers[1]):
            assert pieces.children("/", 5) is None
            assert budget.used == len(b"five") + len(b"sixth")
    assert budget.used == 0
    assert pieces.children("/", 6) is None
