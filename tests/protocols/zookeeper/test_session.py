"""Sessions, stored nodes and watches over a connection, as clients of ZooKeeper 3.4 see them."""

import pytest
import trio

from braidlog.broker.coordination.nodes import NodeMade
from braidlog.protocols.zookeeper.adapter import ADAPTER
from braidlog.protocols.zookeeper.errors import ZkCode
from braidlog.protocols.zookeeper.messages import Event, Op
from braidlog.protocols.zookeeper.operations import NAMES_BYTES_MAX
from braidlog.protocols.zookeeper.paths import PATH_BYTES_MAX
from braidlog.protocols.zookeeper.words import NOT_ALLOWED, WORD_BYTES_MAX
from tests.protocols.zookeeper.talk import (
    EPHEMERAL,
    OPEN,
    SEQUENTIAL,
    RawZooKeeper,
    connect_frame,
    multi_frame,
    request_frame,
)


async def test_timeouts_are_negotiated_between_two_and_twenty_ticks(session):
    assert [(await session(timeout_ms=ms)).timeout_ms for ms in (1, 5000, 100_000)] == [
        4000,
        5000,
        40_000,
    ]


async def test_nodes_keep_data_and_exact_numbers(client):
    assert await client.create("/a", b"one") == "/a"
    czxid = client.zxid
    await client.create("/a/b", None)
    await client.set("/a", b"three", 0)
    mzxid = client.zxid
    await client.delete("/a/b")
    data, stat = await client.call(Op.GET_DATA, "/a", False)
    assert data == b"three"
    assert stat[:2] == (czxid, mzxid)
    assert stat[4:] == (1, 2, 0, 0, 5, 0, client.zxid)
    assert await client.call(Op.GET_ACL, "/a") == (OPEN, stat)


async def test_errors_are_those_of_zookeeper(client):
    await client.create("/a", b"")
    await client.create("/a/e", b"", EPHEMERAL)
    codes = [
        (Op.CREATE, "/a", b"", OPEN, 0),
        (Op.CREATE, "/x/y", b"", OPEN, 0),
        (Op.CREATE, "/a/e/f", b"", OPEN, 0),
        (Op.CREATE, "/a/", b"", OPEN, 0),
        (Op.CREATE, "/b", b"", (), 0),
        (Op.CREATE, "/b", b"", OPEN, 4),
        (Op.DELETE, "/a", -1),
        (Op.DELETE, "/a/e", 3),
        (Op.DELETE, "/zookeeper/quota", -1),
        (Op.DELETE, "/none", -1),
        (Op.SET_DATA, "/a", b"", 7),
        (Op.GET_DATA, "/none", False),
        (Op.GET_CHILDREN2, "/none", False),
        (Op.CHECK, "/a", 1),
    ]
    assert [await client.code(*code) for code in codes] == [
        ZkCode.NODE_EXISTS,
        ZkCode.NO_NODE,
        ZkCode.NO_CHILDREN_FOR_EPHEMERALS,
        ZkCode.BAD_ARGUMENTS,
        ZkCode.INVALID_ACL,
        ZkCode.BAD_ARGUMENTS,
        ZkCode.NOT_EMPTY,
        ZkCode.BAD_VERSION,
        ZkCode.BAD_ARGUMENTS,
        ZkCode.NO_NODE,
        ZkCode.BAD_VERSION,
        ZkCode.NO_NODE,
        ZkCode.NO_NODE,
        ZkCode.BAD_VERSION,
    ]


async def test_sequence_numbers_count_created_children_and_never_repeat(client):
    await client.create("/q")
    paths = []
    for _ in range(3):
        paths.append(await client.create("/q/n-", b"", SEQUENTIAL))
        await client.delete(paths[-1])
    assert paths == ["/q/n-0000000000", "/q/n-0000000001", "/q/n-0000000002"]


async def test_unknown_operations_are_unimplemented_and_the_session_goes_on(client):
    await client.stream.send_all(request_frame(77, Op.PING).replace(b"\0\0\0\x0b", b"\0\0\0\x67"))
    assert (await client.answer())[:2] == (77, ZkCode.UNIMPLEMENTED)
    assert await client.exists("/") is not None


async def test_watches_fire_once_and_before_the_read_that_shows_the_change(session):
    reader, writer = await session(), await session()
    assert await reader.exists("/w", watch=True) is None
    await writer.create("/w", b"1")
    await reader.get("/w", watch=True)
    await reader.children("/w", watch=True)
    assert reader.events.popleft() == (Event.CREATED, "/w")
    await writer.set("/w", b"2")
    await writer.set("/w", b"3")
    await writer.create("/w/x")
    await writer.create("/w/y")
    assert await reader.get("/w") == b"3"
    assert list(reader.events) == [(Event.DATA_CHANGED, "/w"), (Event.CHILDREN_CHANGED, "/w")]
    reader.events.clear()
    await reader.get("/w/x", watch=True)
    await reader.children("/w/x", watch=True)
    await writer.delete("/w/x")
    assert await reader.exists("/w/x") is None
    assert list(reader.events) == [(Event.DELETED, "/w/x")]  # One event for both watches.


async def test_a_session_outlives_its_connection_and_no_other_connection(session, open_client):
    first = await session()
    await first.create("/e", b"", EPHEMERAL)
    await first.stream.aclose()
    second = await session(session_id=first.session_id, password=first.password)
    assert second.session_id == first.session_id
    assert (await second.exists("/e"))[7] == first.session_id
    third = await session(session_id=first.session_id, password=first.password)
    assert await second.stream.receive_some(1) == b""  # The session moved.
    wrong = await session(session_id=first.session_id, password=b"x" * 16)
    assert (wrong.session_id, wrong.timeout_ms, wrong.password) == (0, 0, bytes(16))
    assert await wrong.stream.receive_some(1) == b""
    assert await third.exists("/e") is not None


async def test_ephemeral_nodes_end_with_their_session(session):
    first, second = await session(), await session()
    await first.create("/e", b"", EPHEMERAL)
    await second.exists("/e", watch=True)
    await first.call(Op.CLOSE)
    assert await second.exists("/e") is None
    assert list(second.events) == [(Event.DELETED, "/e")]


async def test_an_expired_session_takes_its_nodes_and_its_connection(session, broker):
    first, second = await session(), await session()
    await first.create("/e", b"", EPHEMERAL)
    assert await second.exists("/e", watch=True) is not None
    service = ADAPTER.services[broker]
    service.sessions.live[first.session_id].expires_at = 0.0
    await service.check(trio.current_time())
    assert await first.stream.receive_some(1) == b""
    assert await second.exists("/e") is None
    assert list(second.events) == [(Event.DELETED, "/e")]
    again = await session(session_id=first.session_id, password=first.password)
    assert again.timeout_ms == 0


async def test_a_client_that_reconnects_sets_its_watches_again(session):
    first, writer = await session(), await session()
    for path in ("/same", "/changed", "/gone", "/parent"):
        await writer.create(path)
    await first.get("/same")
    seen = first.zxid
    await first.stream.aclose()
    await writer.set("/changed", b"x")
    await writer.delete("/gone")
    await writer.create("/parent/child")
    await writer.create("/came")
    again = await session(session_id=first.session_id, password=first.password, zxid_seen=seen)
    await writer.get("/came", watch=True)
    data, absent = ["/same", "/changed", "/gone"], ["/came", "/absent"]
    await again.call(Op.SET_WATCHES, seen, data, absent, ["/parent", "/same"])
    assert set(again.events) == {
        (Event.DATA_CHANGED, "/changed"),
        (Event.DELETED, "/gone"),
        (Event.CREATED, "/came"),
        (Event.CHILDREN_CHANGED, "/parent"),
    }
    again.events.clear()
    await writer.create("/absent")
    assert not writer.events  # The watch of another client on a node that was there.
    await writer.delete("/same")
    await again.exists("/")
    assert list(again.events) == [(Event.CREATED, "/absent"), (Event.DELETED, "/same")]
    persistent = (0, [], [], [], ["/p"], [])
    assert await again.code(Op.SET_WATCHES2, *persistent) == ZkCode.UNIMPLEMENTED


async def test_a_client_from_another_data_directory_is_not_connected(open_client, session):
    await session()
    stream = await open_client("zookeeper")
    await stream.send_all(connect_frame(zxid_seen=1 << 50))
    assert await stream.receive_some(1) == b""


async def test_all_parts_of_a_transaction_happen_or_none(client, session):
    other = await session()
    await other.exists("/m", watch=True)
    parts = [(Op.CREATE, "/m", b"1", OPEN, 0), (Op.CREATE, "/m/n", b"", OPEN, 0)]
    await client.stream.send_all(multi_frame(5, *parts, (Op.CHECK, "/m", 9), (Op.DELETE, "/", -1)))
    _, code, reader = await client.answer()
    assert code == 0
    codes = [reader.i32() for _ in range(4) if reader.take(9)]
    assert codes == [0, 0, ZkCode.BAD_VERSION, ZkCode.RUNTIME_INCONSISTENCY]
    assert await other.exists("/m") is None
    assert not other.events
    await client.stream.send_all(multi_frame(6, *parts, (Op.SET_DATA, "/m", b"2", 0)))
    assert (await client.answer())[1] == 0
    assert await other.get("/m") == b"2"
    assert list(other.events) == [(Event.CREATED, "/m")]


async def test_access_lists_of_nodes_are_checked(client, session):
    await client.call(Op.AUTH, 0, "digest", b"ann:secret")
    mine = (OPEN[0].__class__(31, "auth", ""),)
    await client.create("/mine", b"s", 0, mine)
    other = await session()
    assert await other.code(Op.GET_DATA, "/mine", False) == ZkCode.NO_AUTH
    assert await other.code(Op.SET_DATA, "/mine", b"", -1) == ZkCode.NO_AUTH
    assert await other.code(Op.CREATE, "/mine/x", b"", OPEN, 0) == ZkCode.NO_AUTH
    assert await other.code(Op.SET_ACL, "/mine", OPEN, -1) == ZkCode.NO_AUTH
    assert await other.exists("/mine") is not None  # As in ZooKeeper.
    await other.call(Op.AUTH, 0, "digest", b"ann:secret")
    assert await other.get("/mine") == b"s"
    await other.call(Op.SET_ACL, "/mine", OPEN, 0)
    assert await (await session()).get("/mine") == b"s"


async def test_an_unknown_scheme_ends_the_connection(client):
    assert await client.code(Op.AUTH, 0, "sasl", b"") == ZkCode.AUTH_FAILED
    assert await client.stream.receive_some(1) == b""


@pytest.mark.parametrize("word", [b"ruok", b"stat", b"srvr", b"mntr", b"conf", b"cons", b"dump"])
async def test_words_are_answered_with_text(client, open_client, word):
    await client.create("/e", b"", EPHEMERAL)
    stream = await open_client("zookeeper")
    await stream.send_all(word)
    text = b"".join([part async for part in stream])
    expected = {
        b"ruok": b"imok",
        b"stat": b"Clients:",
        b"srvr": b"Mode: standalone",
        b"mntr": b"zk_ephemerals_count\t1\n",
        b"conf": b"maxSessionTimeout=40000",
        b"cons": f"sid={client.session_id:#x}".encode(),
        b"dump": b"\t/e\n",
    }
    assert expected[word] in text
    assert NOT_ALLOWED.encode() not in text


async def test_a_connection_without_a_session_ends(open_client, autojump_clock):
    stream = await open_client("zookeeper")
    assert await stream.receive_some(1) == b""


async def test_limits_of_watches_and_sizes_are_refused(client):
    assert (
        await client.code(Op.CREATE, "/big", bytes(1024 * 1024 + 1), OPEN, 0) == ZkCode.SYSTEM_ERROR
    )
    assert await client.create("/big", bytes(1024 * 1024)) == "/big"
    long = "/" + "x" * 9000
    assert await client.code(Op.CREATE, long, b"", OPEN, 0) == ZkCode.BAD_ARGUMENTS
    every = [f"/{number}" for number in range(10_001)]
    assert await client.code(Op.SET_WATCHES, 0, [], every, []) == ZkCode.SYSTEM_ERROR
    await client.call(Op.SET_WATCHES, 0, [], every[:10_000], [])
    assert await client.code(Op.EXISTS, "/more", True) == ZkCode.SYSTEM_ERROR


async def test_below_the_chroot_the_tree_is_shown_again(open_client, broker):
    await (await open_client("kafka")).aclose()
    stream = await open_client("zookeeper", chroot="/kafka")
    client = await RawZooKeeper(stream).connect()
    assert await client.children("/kafka/brokers/ids") == ["1"]
    await client.exists("/kafka/a", watch=True)
    assert await client.create("/kafka/a", b"x") == "/kafka/a"
    assert await client.create("/kafka/a/n-", b"", SEQUENTIAL) == "/kafka/a/n-0000000000"
    assert await client.get("/a") == b"x"
    assert list(client.events) == [(Event.CREATED, "/kafka/a")]
    assert await client.exists("/kafkaesque") is None


async def test_a_list_of_children_has_a_limit(client, broker):
    nodes = ADAPTER.services[broker].nodes
    with nodes.together():
        for number in range(NAMES_BYTES_MAX // PATH_BYTES_MAX + 2):
            name = f"{number:05d}".ljust(PATH_BYTES_MAX - 1, "x")
            nodes.apply(NodeMade(f"/{name}", b"", OPEN, 0, nodes.next_zxid(), 1))
    assert await client.code(Op.GET_CHILDREN2, "/", False) == ZkCode.SYSTEM_ERROR
    assert await client.exists("/") is not None


async def test_a_word_has_a_limited_answer(client, open_client, broker):
    nodes = ADAPTER.services[broker].nodes
    with nodes.together():
        for number in range(WORD_BYTES_MAX // PATH_BYTES_MAX + 10):
            path = f"/{number}".ljust(PATH_BYTES_MAX, "x")
            owner = client.session_id
            nodes.apply(NodeMade(path, b"", OPEN, owner, nodes.next_zxid(), 1))
    stream = await open_client("zookeeper")
    await stream.send_all(b"dump")
    text = b"".join([part async for part in stream])
    assert WORD_BYTES_MAX <= len(text) < WORD_BYTES_MAX + PATH_BYTES_MAX + 100
