"""Sessions of dialect W: another connection continues them for some time."""

import struct
from contextlib import asynccontextmanager

import pytest
import trio

from braidlog.protocols.iggy.producer_names import name_of
from braidlog.protocols.iggy.session import LOGIN_S
from braidlog.protocols.iggy.sessions import (
    NUMBER_BITS,
    PRODUCER_BITS,
    START_US,
    LogicalSession,
    LogicalSessions,
    SessionNumbers,
)
from braidlog.protocols.iggy.vsr import Reason
from braidlog.storage.metadata.names import TopicName
from tests.broker.cluster.cut_links import lossy
from tests.broker.cluster.nodes import topic_of
from tests.listeners import open_listeners
from tests.opened import opened_broker
from tests.protocols.iggy.test_vsr import frame
from tests.protocols.iggy.vtalk import CREATE_STREAM, CREATE_TOPIC, STREAM, TOPIC, VClient
from tests.protocols.iggy.wtalk import SECRET, binding, client_w, login_body
from tests.waiting import until

NOW_US = START_US + 30 * 365 * 86_400_000_000


def test_no_two_sessions_have_the_same_number():
    """A restarted broker begins with the time; a clock that stands still repeats no number."""
    brokers = [SessionNumbers(), SessionNumbers()]
    numbers = [
        numbers.next(now_us, node_id)
        for now_us in (NOW_US, NOW_US, NOW_US + 5000, NOW_US)
        for node_id, numbers in enumerate(brokers, 1)
    ]
    numbers.append(SessionNumbers().next(NOW_US + 9000, 1))
    assert len({*numbers}) == len(numbers)
    assert all(0 < number < 1 << NUMBER_BITS for number in numbers)


def test_numbers_go_on_behind_those_of_remembered_producers():
    """Otherwise a clock that was set back would repeat a number: the batches of a new producer
    would be taken for repeats, and be confirmed without being stored.
    """
    first = SessionNumbers()
    before = [first.next(NOW_US + 60_000_000, 1) for _ in range(3)]
    strange = (1 << 62) + 5  # A producer's id that comes from no session.
    again = SessionNumbers()
    again.begin([number << PRODUCER_BITS for number in before] + [strange], NOW_US)
    assert before[-1] < again.next(NOW_US, 1) < before[-1] + 100


async def test_a_session_of_a_restarted_broker_has_a_new_number(tmp_path):
    """The broker's clock was set back by an hour while the broker was down."""
    producer_id = 0
    for hour in (1, 0):
        async with opened_broker(tmp_path, {}) as broker, open_listeners(broker) as open_client:
            now_us = broker.now_us() + hour * 3_600_000_000
            broker.now_us = lambda now_us=now_us: now_us
            client = await member(open_client)
            (number,) = struct.unpack("<Q", client.session)
            assert number << PRODUCER_BITS > producer_id
            producer_id = number << PRODUCER_BITS
            topic = broker.topics.get(TopicName("public", "st", "tp"))
            _, ticket = broker.producers.number(name_of(producer_id), topic)
            await broker.durability.reached(ticket)


def test_the_clock_of_a_broker_may_be_wrong():
    assert 0 < SessionNumbers().next(0, 1) < 1 << NUMBER_BITS


KEY = b"a" * 16
BIND, PING, SYNC, GET_ME, JOIN, LEAVE, CREATE_GROUP, LOGOUT = 15, 1, 606, 20, 148, 149, 139, 3
EVICTION = 13
GROUP = STREAM + TOPIC + b"\x02\x03grp"


class CarryingConnection:
    """A connection that carries a session."""

    def __init__(self):
        self.ended = False

    def end(self, reason):
        self.ended = True


class Fixture:
    def __init__(self):
        self.now_s, self.ended = 0.0, []
        self.memberships = {}
        self.all = LogicalSessions(
            lambda: self.now_s,
            self.ended.append,
            lambda session: self.memberships.get(session.client, 0),
            lost_max=2,
            lost_memberships_max=100,
        )

    def new(self, client=KEY):
        session = LogicalSession(client, SECRET, 7, 1, 0, None, False)
        self.all.add(session)
        return session


@pytest.fixture
def session_book():
    return Fixture()


def test_a_session_is_found_by_id_secret_and_number(session_book):
    session = session_book.new()
    assert session_book.all.proven(KEY, SECRET, 7) is session
    assert session_book.all.proven(KEY, SECRET, 0) is session
    assert session_book.all.proven(KEY, SECRET, 8) is None
    assert session_book.all.proven(KEY, bytes(32), 7) is None
    assert session_book.all.proven(bytes(16), SECRET, 7) is None


def test_a_session_ends_some_time_after_its_connection(session_book):
    session, connection = session_book.new(), CarryingConnection()
    session_book.all.hold(session, connection)
    session_book.all.lose(session, connection, 30.0)
    session_book.now_s = 29.9
    assert session_book.all.find(KEY) is session
    session_book.now_s = 30.0
    assert session_book.all.find(KEY) is None
    assert session_book.ended == [session]


def test_a_session_that_is_continued_does_not_end(session_book):
    session, first, second = session_book.new(), CarryingConnection(), CarryingConnection()
    session_book.all.hold(session, first)
    session_book.all.lose(session, first, 30.0)
    session_book.all.hold(session, second)
    session_book.now_s = 1000.0
    assert session_book.all.find(KEY) is session
    assert not second.ended


def test_a_second_connection_ends_the_first(session_book):
    session, first, second = session_book.new(), CarryingConnection(), CarryingConnection()
    session_book.all.hold(session, first)
    session_book.all.hold(session, second)
    assert first.ended
    session_book.all.lose(session, first, 30.0)  # The first connection ends after that.
    session_book.now_s = 1000.0
    assert session_book.all.find(KEY) is session


def test_lost_sessions_are_bounded(session_book):
    all_sessions = [session_book.new(bytes([number] * 16)) for number in range(3)]
    for session in all_sessions:
        connection = CarryingConnection()
        session_book.all.hold(session, connection)
        session_book.all.lose(session, connection, 30.0)
    assert session_book.ended == all_sessions[:1]


class KeptLinks:
    """Connections to other brokers, with memberships at `count` of them."""

    def __init__(self, count):
        self._count = count
        self.closed = self.trimmed = False

    def close_unneeded(self):
        self.trimmed = True
        return self._count, self._count

    def close(self):
        self.closed = True


def lose(session_book, client, links=None):
    """Begin and lose a session; return it."""
    session, connection = session_book.new(client), CarryingConnection()
    session_book.all.hold(session, connection)
    session_book.all.lose(session, connection, 30.0, links)
    return session


def test_the_memberships_of_lost_sessions_are_bounded(session_book):
    keys = [bytes([number] * 16) for number in range(3)]
    session_book.memberships = {keys[0]: 60, keys[1]: 40, keys[2]: 41}
    first, second = [lose(session_book, key) for key in keys[:2]]
    assert session_book.ended == []
    connection = CarryingConnection()
    session_book.all.hold(second, connection)  # The second session has a connection again,
    third = lose(session_book, keys[2])
    assert session_book.ended == [first]
    session_book.all.lose(second, connection, 30.0)  # and loses the connection.
    assert session_book.ended == [first]
    assert session_book.all.find(keys[2]) is third


def test_connections_to_other_brokers_count_as_memberships(session_book):
    links = [KeptLinks(1) for _ in range(2)]
    first, second = [
        lose(session_book, bytes([number] * 16), link) for number, link in enumerate(links)
    ]
    assert session_book.ended == [first]
    assert (links[0].closed, links[1].closed) == (True, False)
    assert all(link.trimmed for link in links)
    assert session_book.all.find(second.client) is second


async def member(open_client, client_id=b""):
    """Return a client that is a member of a group."""
    client = await client_w(open_client, client_id=client_id)
    await client.status(CREATE_STREAM, STREAM[1:])
    await client.status(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + TOPIC[1:])
    await client.status(CREATE_GROUP, STREAM + TOPIC + b"\x03grp")
    assert await client.perform(JOIN, GROUP) == (0, bytes(4))
    return client


async def bound(open_client, former, session=None, secret=SECRET):
    """Return a connection that tries to continue the session of `former`, and the status."""
    client = VClient(await open_client("iggy"), former.client_id)
    (number,) = struct.unpack("<Q", former.session)
    body = binding(former.client_id, number if session is None else session, secret)
    status, answer = await client.query(BIND, body)
    if not status:
        assert answer[4:12] == former.session
        assert answer[12:16] == struct.pack("<I", 12 << 10)
        client.session = answer[4:12]
    return client, status


async def assigned(client):
    status, answer = await client.query(SYNC, GROUP)
    assert status == 0
    return answer


async def lost(broker, client):
    """Close the connection of a client, and wait until the broker has noticed."""
    connections = len(broker.connections)
    await client.close()
    await until(lambda: len(broker.connections) < connections)


async def test_another_connection_continues_the_session_with_its_memberships(broker, open_client):
    first = await member(open_client)
    before = await assigned(first)
    _, me = await first.query(GET_ME, b"")
    await lost(broker, first)
    second, status = await bound(open_client, first)
    assert status == 0
    assert await assigned(second) == before
    assert (await second.query(GET_ME, b""))[1][:4] == me[:4]
    # The login whose answer was lost: the client knows no number.
    third, status = await bound(open_client, second, session=0)
    assert status == 0
    assert await assigned(third) == before
    with pytest.raises((EOFError, trio.BrokenResourceError)):  # A session has one connection.
        await second.query(PING, b"")


async def test_a_repeated_login_continues_the_session(broker, open_client):
    first = await member(open_client)
    before = await assigned(first)
    await lost(broker, first)
    second = await client_w(open_client, client_id=first.client_id)
    assert second.session == first.session
    assert await assigned(second) == before


@pytest.mark.parametrize("wrong", [{"session": 1}, {"secret": bytes(32)}])
async def test_a_session_needs_number_and_secret(broker, open_client, wrong):
    first = await member(open_client)
    await lost(broker, first)
    _, status = await bound(open_client, first, **wrong)
    assert status == 40
    client = VClient(await open_client("iggy"), first.client_id)
    other = login_body().replace(SECRET, bytes(32))
    answer = await client.login(frame(operation=1, body=other))
    assert (answer[60], answer[255]) == (EVICTION, Reason.SESSION_ERROR)
    _, status = await bound(open_client, first)
    assert status == 0


async def test_a_session_without_a_secret_is_not_continued(broker, open_client):
    """Anybody could send zeros."""
    client = VClient(await open_client("iggy"), KEY)
    zeros = login_body().replace(SECRET, bytes(32))
    assert (await client.login(frame(operation=1, body=zeros)))[60] != EVICTION
    await lost(broker, client)
    _, status = await bound(open_client, client, session=0, secret=bytes(32))
    assert status == 40


@pytest.mark.parametrize("body", [b"", binding(KEY, 7)[:-1], binding(KEY, 7) + b"x"])
async def test_a_malformed_binding_is_refused(open_client, body):
    client = VClient(await open_client("iggy"))
    assert await client.query(BIND, body) == (3, b"")


async def test_a_binding_of_dialect_v_is_refused(open_client):
    client = VClient(await open_client("iggy"))
    body = struct.pack("<I", 11 << 10) + binding(KEY, 7)[4:]
    assert await client.query(BIND, body) == (3, b"")


async def test_a_logout_ends_the_session(broker, open_client):
    first = await member(open_client)
    assert await first.perform(LOGOUT, b"") == (0, b"")
    topic = next(topic for topic in broker.topics.all() if topic.name.topic == "tp")
    assert not broker.members.of(topic, b"grp")
    _, status = await bound(open_client, first)
    assert status == 40


@pytest.mark.parametrize("broker", [{"listeners.iggy.lost_session_s": "0"}], indirect=True)
async def test_a_session_may_end_with_its_connection(broker, open_client):
    first = await member(lambda name: open_client(name, lost_session_s=0.0))
    await lost(broker, first)
    topic = next(topic for topic in broker.topics.all() if topic.name.topic == "tp")
    assert not broker.members.of(topic, b"grp")
    _, status = await bound(open_client, first)
    assert status == 40


async def test_members_that_are_lost_for_too_long_leave(broker, open_client, mock_clock):
    first = await member(open_client)
    second = await member(open_client)
    await lost(broker, first)
    assert len(await assigned(second)) == 12 + 4
    mock_clock.jump(31)
    assert len(await assigned(second)) == 12 + 8


async def test_after_a_restart_the_client_has_to_log_in(tmp_path):
    async with opened_broker(tmp_path, {}) as broker, open_listeners(broker) as connect:
        first = await member(connect)
    async with opened_broker(tmp_path, {}) as broker, open_listeners(broker) as connect:
        client, status = await bound(connect, first)
        assert status == 40
        assert (await client.query(SYNC, GROUP))[0] == 40
        again = await member(connect, first.client_id)
        assert len(await assigned(again)) == 12 + 8


@asynccontextmanager
async def remote_member(path, **options):
    """Yield a member of a group of another broker's topic, its group, the owner and a way to
    connect. `options` are those of the member's listener.
    """
    async with (
        lossy(path) as (asker, owner, _, _),
        open_listeners(owner.broker) as far,
        open_listeners(asker.broker) as near,
    ):
        await far("iggy")  # Commands are forwarded to this listener.
        name = topic_of(owner.held, "tp", "st")
        topic = b"\x02" + bytes([len(name.topic)]) + name.topic.encode()
        client = await client_w(lambda name: near(name, **options))
        assert await client.status(CREATE_STREAM, STREAM[1:]) == 0
        assert await client.status(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + topic[1:]) == 0
        assert (await client.perform(CREATE_GROUP, STREAM + topic + b"\x03grp"))[0] == 0
        group = STREAM + topic + b"\x02\x03grp"
        assert await client.perform(JOIN, group) == (0, bytes(4))
        yield client, group, asker.broker, owner.broker.topics.get(name), near, owner


@pytest.mark.slow
async def test_memberships_at_other_brokers_survive_too(tmp_path):
    async with remote_member(tmp_path) as (first, group, asker, topic, near, owner):
        _, before = await first.query(SYNC, group)
        await lost(asker, first)
        assert len(owner.broker.members.of(topic, b"grp")) == 1
        second, status = await bound(near, first)
        assert status == 0
        assert await second.query(SYNC, group) == (0, before)
        assert await second.perform(LOGOUT, b"") == (0, b"")
        with trio.fail_after(LOGIN_S / 2):  # Before the connection ends for lack of a login.
            await until(lambda: not owner.broker.members.of(topic, b"grp"))


@pytest.mark.slow
async def test_a_membership_at_another_broker_ends_without_further_clients(tmp_path):
    """Nobody else uses the broker to which the client was connected."""
    async with remote_member(tmp_path, lost_session_s=0.1) as (first, _, asker, topic, _, owner):
        await lost(asker, first)
        await until(lambda: not owner.broker.members.of(topic, b"grp"))


@pytest.mark.slow
async def test_a_lost_session_holds_no_connection_without_memberships(tmp_path):
    async with remote_member(tmp_path) as (first, group, asker, _, _, owner):
        connections = len(owner.broker.connections)
        assert await first.perform(LEAVE, group) == (0, bytes(4))
        await lost(asker, first)
        with trio.fail_after(LOGIN_S / 2):
            await until(lambda: len(owner.broker.connections) < connections)


@pytest.mark.slow
async def test_after_a_takeover_the_client_has_to_log_in(tmp_path):
    """Sessions are not stored: another broker of the cluster knows none."""
    async with (
        lossy(tmp_path) as (asker, owner, _, _),
        open_listeners(owner.broker) as far,
        open_listeners(asker.broker) as near,
    ):
        first = await client_w(near)
        client, status = await bound(far, first)
        assert status == 40
        assert (await client.query(GET_ME, b""))[0] == 40
        again = await client_w(far, client_id=first.client_id)
        assert (await again.query(GET_ME, b""))[0] == 0
        assert again.session != first.session
