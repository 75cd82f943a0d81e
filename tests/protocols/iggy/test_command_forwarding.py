"""Iggy commands about topics of another broker: two brokers of a cluster, with a client at each."""

import struct
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing

from braidlog.broker.cluster.cluster_peers import INTERNAL
from braidlog.broker.cluster.links import Hello, connect
from braidlog.broker.errors import NotOwner
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.broker.server.adapters import load
from braidlog.protocols.iggy import command_forwarding
from braidlog.protocols.iggy.command_forwarding import (
    ANSWER,
    DONE,
    HEAD,
    MOVED,
    About,
    ForwardedSession,
)
from braidlog.protocols.iggy.limits import IggyLimits
from tests.broker.cluster.nodes import SteppedBroker, balanced, topic_of
from tests.listeners import open_listeners
from tests.protocols.iggy import description
from tests.protocols.iggy.description import named
from tests.protocols.iggy.description_permissions import block
from tests.protocols.iggy.talk import FIRST, NEXT, Talk
from tests.protocols.iggy.test_permissions import NOTHING, TOPIC_PERMISSIONS, permission_flags
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import HANG_S, PAUSE_S, until

PING, LOGIN, CREATE_USER, PERMISSIONS = 1, 38, 33, 36
GET_TOPIC, POLL, STORE_OFFSET, GET_OFFSET = 300, 100, 121, 120
GET_GROUP, CREATE_GROUP, DELETE_GROUP, JOIN, LEAVE = 600, 602, 603, 604, 605
PARTITIONS_OF_OTHERS = 9  # More than the topic has.
CLIENT = {"kind": 1, "id": named(7)}


class Pair:
    """Two brokers; `near` is a client of the first, `far` of the other, which owns `topic`."""

    def __init__(self, store, first, other, connects):
        self.store, self.one, self.other = store, first, other
        self._connects = connects
        self.topic = topic_of(other.held, "tp", "st").topic

    async def open(self):
        self.near, self.far = await self.connect(), await self.connect(1)
        assert [await self.near.login(), await self.far.login()] == [0, 0]
        assert (await self.near.create_topic(self.topic, 2))["status"] == 0
        return self

    async def connect(self, which=0):
        return Talk(await self._connects[which]("iggy"))

    def frame(self, code, **values):
        """Return a command about the topic."""
        return description.request(code, stream=named("st"), topic=named(self.topic), **values)

    def poll(self, strategy=FIRST, value=0, *, partition=1, consumer=CLIENT, commit=False):
        return self.frame(
            POLL,
            consumer=consumer,
            partition=partition,
            strategy={"kind": strategy, "value": value},
            count=1000,
            auto_commit=commit,
        )

    def lower(self, **limits):
        """Lower limits of the first broker's listeners."""
        load("iggy").states[self.one.broker].limits = IggyLimits(**limits)

    def served(self, api="poll_messages"):
        """Return the number of commands of a kind that the owner has served."""
        return self.other.broker.metrics.number("braidlog_requests", "iggy", api).value


@asynccontextmanager
async def two_brokers(tmp_path):
    store = SharedStore(tmp_path)
    async with (
        SteppedBroker(store, 1).running() as first,
        SteppedBroker(store, 3).running() as other,
    ):
        await balanced(store, first, other)
        async with (
            open_listeners(first.broker) as to_one,
            open_listeners(other.broker) as to_other,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(stepping, first, other)
            yield await Pair(store, first, other, (to_one, to_other)).open()
            nursery.cancel_scope.cancel()


async def stepping(*nodes):
    while True:
        for node in nodes:
            await node.membership.step()
        await trio.sleep(PAUSE_S)


async def same(pair, frame):
    """Return the answer to a frame; both brokers must answer the same bytes."""
    answer = await pair.near.exchange(frame)
    assert answer is not None and answer == await pair.far.exchange(frame)
    return answer


async def test_answers_equal_the_owners(tmp_path):
    async with two_brokers(tmp_path) as pair:
        assert await pair.near.send(b"a", b"b", topic=pair.topic) == 0
        assert await pair.far.send(b"c", topic=pair.topic) == 0
        before = pair.served()
        polled = await same(pair, pair.poll())
        assert pair.served() == before + 2, "the forwarded poll was served at its owner"
        messages = description.answer(POLL, polled)["messages"]
        assert [message["payload"] for message in messages] == [b"a", b"b", b"c"]
        store = pair.frame(STORE_OFFSET, consumer=CLIENT, partition=1, offset=1)
        assert await pair.near.exchange(store) == bytes(8)
        stored = await same(pair, pair.frame(GET_OFFSET, consumer=CLIENT, partition=1))
        assert description.answer(GET_OFFSET, stored)["stored_offset"] == 1
        assert description.answer(POLL, await same(pair, pair.poll(NEXT)))["messages_count"] == 1
        assert description.answer(GET_TOPIC, await same(pair, pair.frame(GET_TOPIC)))["status"] == 0


async def test_refusals_have_the_owners_text(tmp_path):
    async with two_brokers(tmp_path) as pair:
        group = named("nope")
        refused = [
            pair.poll(partition=PARTITIONS_OF_OTHERS),
            pair.poll(consumer={"kind": 2, "id": group}, partition=0),
            pair.poll(9),
            pair.frame(STORE_OFFSET, consumer=CLIENT, partition=PARTITIONS_OF_OTHERS, offset=1),
            pair.frame(DELETE_GROUP, group=group),
            pair.frame(JOIN, group=group),
        ]
        for frame in refused:
            assert (await same(pair, frame))[:4] != bytes(4), frame
        assert await pair.near.status(PING) == 0


async def test_the_login_is_forwarded(tmp_path):
    async with two_brokers(tmp_path) as pair:
        stranger = await pair.connect()
        assert (await stranger.exchange(pair.poll()))[:4] == struct.pack("<I", 40)
        user = {"username": "bob", "password": "secret1"}
        assert await pair.near.status(CREATE_USER, **user, status=1, permissions=None) == 0
        bobs = [await pair.connect(which) for which in (0, 1)]
        await until(
            lambda: pair.one.broker.users.find("bob") and pair.other.broker.users.find("bob")
        )
        for bob in bobs:
            assert await bob.status(LOGIN, **user, version="0.6.202", context="") == 0
        pair.near, pair.far, root = *bobs, pair.near
        assert (await same(pair, pair.poll()))[:4] == struct.pack("<I", 41)
        numbers = [
            (await root.ask(200, stream=named("st")))["stream"]["id"],
            (await root.ask(GET_TOPIC, stream=named("st"), topic=named(pair.topic)))["topic"]["id"],
        ]
        rights = {numbers[1]: permission_flags(TOPIC_PERMISSIONS, "poll_messages")}
        allowed = block(NOTHING, {numbers[0]: ([0] * 6, rights)})
        assert await root.status(PERMISSIONS, user=named("bob"), permissions=allowed) == 0
        with trio.fail_after(HANG_S):
            while (await pair.near.exchange(pair.poll()))[:4] != bytes(4):
                await trio.sleep(PAUSE_S)
        assert await pair.near.send(b"x", topic=pair.topic) == 41


async def test_members_of_a_group_are_members_at_its_owner(tmp_path):
    async with two_brokers(tmp_path) as pair:
        await pair.near.send(b"a", topic=pair.topic)
        group = named("grp")
        make = pair.frame(CREATE_GROUP, group_id=0, name="grp")
        assert (await pair.near.exchange(make))[:4] == bytes(4)
        for _ in range(2):  # After a second join, there is still a single member.
            assert await pair.near.exchange(pair.frame(JOIN, group=group)) == bytes(8)
        assert await members(pair) == 1
        by_group = pair.poll(NEXT, consumer={"kind": 2, "id": group}, partition=0, commit=True)
        polls = [description.answer(POLL, await pair.near.exchange(by_group)) for _ in range(2)]
        assert sorted(poll["partition"] for poll in polls) == [1, 2]
        # The topic moves to the client's broker: the client stays a member without a request.
        pair.store.ledger.drain(3, drains=True)
        await until(lambda: not pair.other.held)
        assert (await pair.near.exchange(by_group))[:4] == bytes(4)
        assert await members(pair) == 1
        assert await pair.near.exchange(pair.frame(LEAVE, group=group)) == bytes(8)
        assert await members(pair) == 0


async def members(pair):
    answer = await pair.far.exchange(pair.frame(GET_GROUP, group=named("grp")))
    return description.answer(GET_GROUP, answer)["group"]["members"]


async def test_a_disconnected_client_is_no_longer_a_member(tmp_path):
    async with two_brokers(tmp_path) as pair:
        await pair.near.exchange(pair.frame(CREATE_GROUP, group_id=0, name="grp"))
        other = await pair.connect()
        await other.login()
        await other.exchange(pair.frame(JOIN, group=named("grp")))
        assert await members(pair) == 1
        await other.stream.aclose()
        with trio.fail_after(HANG_S):
            while await members(pair):
                await trio.sleep(PAUSE_S)


class FakeOwner:
    """The other broker: answers each frame with the next of `said`, and disconnects."""

    def __init__(self, nursery, *answers, real=None):
        self.frames = []
        self._nursery, self._said, self._real = nursery, list(answers), real

    async def forward(self, node, listener):
        if not self._said:
            return await self._real(node, listener)
        answer = self._said.pop(0)
        if answer is None:
            raise NotOwner("not reached", 0)
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        ours = await trio.testing.open_stream_to_socket_listener(listeners[0])
        self._nursery.start_soon(self._serve, await listeners[0].accept(), answer)
        await listeners[0].aclose()
        return ours

    async def _serve(self, stream, answer):
        data = b""
        while len(data) < HEAD.size or len(data) < 4 + HEAD.unpack_from(data)[0]:
            data += await stream.receive_some()
        size = HEAD.unpack_from(data)[1]
        self.frames.append(data[HEAD.size + size :])
        await stream.send_all(answer)
        await stream.aclose()


@asynccontextmanager
async def fake(pair, *answers):
    """Yield an owner that answers new connections with `said`, before the real owner."""
    peers = pair.one.broker.peers
    async with trio.open_nursery() as nursery:
        owner = FakeOwner(nursery, *answers, real=peers.forward)
        peers.forward = owner.forward
        yield owner
        nursery.cancel_scope.cancel()


WHOLE = ANSWER.pack(DONE, 1, 8) + b"\x90" + bytes(8)


CUTS = [WHOLE[:cut] for cut in (0, 5, ANSWER.size, len(WHOLE) - 1)]
TOO_LONG = ANSWER.pack(DONE, 1, command_forwarding.ANSWER_BYTES_MAX)


@pytest.mark.parametrize("answer", [*CUTS, TOO_LONG])
async def test_an_owner_that_dies_within_an_answer_ends_the_connection(tmp_path, answer):
    """The frame's result is unknown: no other broker gets the frame, and no answer is invented."""
    async with two_brokers(tmp_path) as pair, fake(pair, answer) as owner:
        frame = pair.poll()
        assert await pair.near.exchange(frame) is None
        assert owner.frames == [frame]
        again = await pair.connect()
        assert await again.login() == 0
        assert await again.exchange(frame) == await pair.far.exchange(frame)


async def test_an_owner_that_is_silent_ends_the_connection(tmp_path):
    async with two_brokers(tmp_path) as pair:
        pair.lower(answer_s=0.0)
        assert await pair.near.exchange(pair.poll()) is None


async def test_an_unreachable_owner_is_looked_up_again(tmp_path):
    moved = ANSWER.pack(MOVED, 1, 0) + b"\x90"
    async with two_brokers(tmp_path) as pair, fake(pair, None, moved, None):
        assert (await same(pair, pair.poll()))[:4] == bytes(4)


async def test_a_topic_without_owner_is_refused_in_time_and_the_client_stays(tmp_path):
    async with two_brokers(tmp_path) as pair, fake(pair, None):
        pair.lower(find_s=-1.0)
        assert (await pair.near.exchange(pair.poll()))[:4] != bytes(4)
        assert await pair.near.status(PING) == 0


async def test_a_slow_readers_answers_are_not_buffered(tmp_path):
    count, payload = 40, bytes(1 << 20)
    async with two_brokers(tmp_path) as pair:
        assert await pair.near.send(payload, topic=pair.topic) == 0
        before, frame = pair.served(), pair.poll()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.near.stream.send_all, frame * count)
            brokers = [pair.one.broker, pair.other.broker]
            await until(lambda: any(over_limit(broker) for broker in brokers))
            assert pair.served() < before + count, "it reads nothing, and is read from no further"
            answer = await pair.far.exchange(frame)
            assert [await pair.near.frame() == answer for _ in range(count)] == [True] * count


def over_limit(broker):
    return any(connection.outbox.over_limit for connection in broker.connections)


ABOUT = About("root", [], False, 1, (1, [], True, False, 1, True), [])


def forwarded(about, frame, *, size=None, about_size=None):
    context = about if isinstance(about, bytes) else msgspec.msgpack.encode(about)
    size = HEAD.size - 4 + len(context) + len(frame) if size is None else size
    return HEAD.pack(size, len(context) if about_size is None else about_size) + context + frame


PING_FRAME = struct.pack("<II", 4, PING)
HOSTILE = {
    "nothing": bytes(8),
    "shorter than its head": HEAD.pack(3, 0),
    "about longer than the frame": HEAD.pack(8, 9) + bytes(8),
    "about as long as the frame": HEAD.pack(8, 8) + bytes(8),
    "too long": HEAD.pack(0xFFFFFFFF, 0),
    "no msgpack": forwarded(b"\xc1\xc1", PING_FRAME),
    "another type": forwarded(msgspec.msgpack.encode({"a": 1}), PING_FRAME),
    "unknown dialect": forwarded(
        msgspec.structs.replace(ABOUT, standing=(1, ["D77"], True, False, 1, True)), PING_FRAME
    ),
    "unknown family": forwarded(
        msgspec.structs.replace(ABOUT, standing=(99, [], True, False, 1, True)), PING_FRAME
    ),
    "no frame": forwarded(ABOUT, b""),
    "half a frame": forwarded(ABOUT, PING_FRAME[:6]),
    "two frames": forwarded(ABOUT, PING_FRAME * 2),
    "a topic without a namespace": forwarded(
        msgspec.structs.replace(ABOUT, joined=[("nope", "grp")]), PING_FRAME
    ),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE)
async def test_an_invalid_frame_ends_only_its_connection(tmp_path, sent, caplog):
    async with two_brokers(tmp_path) as pair:
        session = pair.one.shared.session
        address = pair.other.internal.addresses([])[INTERNAL].rpartition(":")
        hello = Hello(session.cluster.cluster_id, session.number, "relay", "iggy")
        place = address[0], int(address[2])
        async with await connect(place, pair.one.parts.secret, hello) as stream:
            await stream.send_all(sent)
            with trio.fail_after(HANG_S):
                assert await stream.receive_some() == b""
        assert (await same(pair, pair.poll()))[:4] == bytes(4)
        assert "Traceback" not in caplog.text


def test_a_forwarded_frame_has_a_limit():
    head = HEAD.pack(command_forwarding.FRAME_BYTES_MAX + 1, 0)
    with pytest.raises(ProtocolError):
        ForwardedSession.frame_size(None, memoryview(head))
    assert ForwardedSession.frame_size(None, memoryview(head[:7])) is None
