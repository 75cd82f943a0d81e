"""GET_METADATA_CHANGES of dialect W: the state in pages, and the outcome for a cursor."""

import cProfile
import struct
from dataclasses import dataclass

import pytest
import trio

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action, ResourceKind
from braidlog.broker.access.rules import Grant
from braidlog.broker.cluster.placement import Owner, Placement
from braidlog.broker.errors import NotOwner
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.broker.server.adapters import load
from braidlog.protocols.iggy.layouts_w import W
from braidlog.protocols.iggy.limits import IggyLimits
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.metadata_pages import ChangesQuery, ChangeStart
from braidlog.protocols.iggy.users import user_records
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import Hiding
from tests.protocols.iggy.vtalk import CREATE_STREAM, CREATE_TOPIC, STREAM, TOPIC, VClient
from tests.protocols.iggy.wtalk import client_w

CODE = CommandCode.GET_METADATA_CHANGES
EARLIEST, LATEST, AFTER, CURRENT = range(4)
OK, BEHIND, EXPIRED, RESET = range(4)
STREAMS, TOPICS, PARTITIONS, GROUPS, MEMBERS, USERS, TOKENS, SESSIONS = range(1, 9)
CREATE_GROUP, DELETE_GROUP, CREATE_TOKEN, DELETE_TOKEN = 139, 140, 146, 147
CREATE_USER, UPDATE_PERMISSIONS = 141, 145
CREATE_PARTITIONS, DELETE_PARTITIONS, DELETE_TOPIC, DELETE_STREAM = 136, 137, 134, 130
STREAM_CREATED, STREAM_UPDATED, STREAM_DELETED = 1, 2, 3
TOPIC_CREATED, TOPIC_UPDATED, TOPIC_DELETED, PARTITIONS_CHANGED = 10, 11, 12, 20
GROUP_CREATED, GROUP_DELETED = 30, 31
USER_CREATED, USER_UPDATED, USER_DELETED = 50, 51, 52
PASSWORD_CHANGED, PERMISSIONS_UPDATED, TOKEN_CREATED, TOKEN_DELETED = 53, 54, 60, 61
NAME = TopicName("public", "st", "tp")
CAPTURED = bytes(47) + bytes.fromhex("64000000") + bytes(3)  # apache-iggy 0.9.1.dev5, earliest.


@dataclass
class AnsweredPage:
    """A page of an answer, read independently of the product."""

    status: int
    phase: int
    head: int
    cursor: bytes
    records: list[tuple[int, bytes]]  # Kind and body.
    items: list[tuple[int, bytes]]
    has_more: bool
    token: bytes


def query(start, *, cursor=bytes(44), limit=100, groups=(), token=b"", times=b"\0\0") -> bytes:
    """Return the body of a question."""
    body = bytes([start]) + cursor + times + struct.pack("<IB", limit, len(groups))
    return body + bytes(groups) + struct.pack("<H", len(token)) + token


async def ask(client: VClient, body: bytes) -> AnsweredPage:
    """Return the answer to a question."""
    status, answer = await client.query(CODE, body)
    assert status == 0
    assert answer[2] == 1  # There is a log.
    _, _, head = struct.unpack_from("<QQQ", answer, 19)
    assert answer[43] == (answer[0] in (OK, BEHIND))
    pos = 44 + 44 * answer[43]
    cursor, has_more = answer[44:pos], bool(answer[pos])
    records, pos = records_at(answer, pos + 1)
    (count,) = struct.unpack_from("<I", answer, pos)
    pos, items = pos + 4, []
    for _ in range(count):
        (size,) = struct.unpack_from("<I", answer, pos + 1)
        items.append((answer[pos], answer[pos + 5 : pos + 5 + size]))
        pos += 5 + size
    (size,) = struct.unpack_from("<H", answer, pos)
    assert len(answer) == pos + 2 + size
    assert not (records and (items or size))
    return AnsweredPage(
        answer[0], answer[1], head, cursor, records, items, has_more, answer[pos + 2 :]
    )


def records_at(answer: bytes, pos: int) -> tuple[list[tuple[int, bytes]], int]:
    """Return kinds and bodies of the records, and the end; their places rise."""
    (count,) = struct.unpack_from("<I", answer, pos)
    records, place, pos = [], (0, 0), pos + 4
    for _ in range(count):
        assert struct.unpack_from("<QI", answer, pos) > place
        place = struct.unpack_from("<QI", answer, pos)
        time_us, actor, group, kind, size = struct.unpack_from("<QBBBI", answer, pos + 28)
        assert time_us > 1 << 50 and not actor
        assert group == {0: 1, 1: 2, 2: 3, 3: 4, 5: 6, 6: 7}[kind // 10]
        pos += 43
        records.append((kind, answer[pos : pos + size]))
        pos += size
    return records, pos


@pytest.fixture
async def w(broker, open_client) -> VClient:
    """Return a client with a stream, a topic with a group, and an access token."""
    client = await client_w(open_client)
    assert await client.status(CREATE_STREAM, STREAM[1:]) == 0
    assert await client.status(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + TOPIC[1:]) == 0
    assert await client.status(CREATE_GROUP, STREAM + TOPIC + b"\x03grp") == 0
    assert await client.status(CREATE_TOKEN, b"\x03tok" + bytes(8)) == 0
    return client


async def test_the_state_has_what_there_is(broker, w):
    page = await ask(w, query(CURRENT))
    assert (page.status, page.phase, page.token) == (OK, 1, b"")
    topic = broker.topics.all()[0].meta
    stream = broker.namespaces.find("public", "st")
    stream_key = struct.pack("<IQ", 0, stream.created_us)
    topic_key = stream_key + struct.pack("<IQ", 0, topic.topic_id)
    bodies = dict(page.items)
    assert [group for group, _ in page.items] == [
        STREAMS,
        TOPICS,
        PARTITIONS,
        GROUPS,
        USERS,
        TOKENS,
    ]
    created = struct.pack("<Q", stream.created_us)
    assert bodies[STREAMS] == stream_key + created + STREAM[1:] + bytes(9)
    assert bodies[TOPICS].startswith(topic_key + struct.pack("<Q", topic.created_us) + TOPIC[1:])
    assert bodies[PARTITIONS] == topic_key + struct.pack("<I", 2)
    assert bodies[GROUPS] == topic_key + bytes(4) + b"\x03grp"
    assert bodies[USERS][12:18] == b"\x04iggy\x01"
    assert bodies[TOKENS].endswith(b"\x03tok" + bytes(8))


async def test_pages_together_are_the_state(w):
    whole = await ask(w, query(CURRENT))
    items, token = [], b""
    for _ in range(len(whole.items)):
        page = await ask(w, query(CURRENT, limit=1, token=token))
        items += page.items
        token = page.token
        assert page.cursor == whole.cursor
    assert (items, token) == (whole.items, b"")


async def test_only_the_wanted_groups_are_told(w):
    page = await ask(w, query(CURRENT, groups=(USERS,)))
    assert [group for group, _ in page.items] == [USERS]


async def test_the_status_of_a_cursor(broker, w):
    latest = await ask(w, query(LATEST))
    assert (latest.status, latest.phase, latest.items) == (OK, 0, [])
    assert (await ask(w, query(AFTER, cursor=latest.cursor))).records == []
    beyond = latest.cursor[:16] + struct.pack("<Q", latest.head + 9) + latest.cursor[24:]
    behind = await ask(w, query(AFTER, cursor=beyond))
    assert (behind.status, behind.cursor) == (BEHIND, beyond)
    other = bytes(16) + latest.cursor[16:]
    assert (await ask(w, query(AFTER, cursor=other))).status == RESET
    broker.catalogue.state.history.restart(latest.head)  # As after a start of the broker.
    assert (await ask(w, query(AFTER, cursor=latest.cursor))).status == EXPIRED


def kinds(page: AnsweredPage) -> list[int]:
    """Return the kinds of the records."""
    return [kind for kind, _ in page.records]


async def test_the_earliest_changes_are_those_since_the_start(broker, w):
    page = await ask(w, query(EARLIEST))
    user = [USER_CREATED, TOKEN_CREATED]
    default = [STREAM_CREATED]  # The stream `default` of a new broker.
    assert kinds(page) == [*default, STREAM_CREATED, TOPIC_CREATED, GROUP_CREATED, *user]
    bodies = dict(page.records)
    topic = broker.topics.all()[0].meta
    stream = broker.namespaces.find("public", "st")
    stream_key = struct.pack("<IQ", 0, stream.created_us)
    topic_key = stream_key + struct.pack("<IQ", 0, topic.topic_id)
    created = struct.pack("<Q", stream.created_us)
    assert bodies[STREAM_CREATED] == stream_key + created + STREAM[1:] + bytes(9)
    start = topic_key + struct.pack("<Q", topic.created_us) + TOPIC[1:] + struct.pack("<IB", 2, 0)
    assert bodies[TOPIC_CREATED].startswith(start)
    assert bodies[GROUP_CREATED] == topic_key + bytes(4) + b"\x03grp" + struct.pack("<I", 1)
    assert bodies[USER_CREATED][12:18] == b"\x04iggy\x01"
    assert bodies[TOKEN_CREATED].endswith(b"\x03tok" + bytes(8))


async def test_a_cursor_continues_with_the_changes_after_it(broker, w):
    cursor = (await ask(w, query(CURRENT))).cursor
    two = struct.pack("<I", 1)
    steps = [
        (CREATE_PARTITIONS, STREAM + TOPIC + two),
        (DELETE_PARTITIONS, STREAM + TOPIC + two),
        (DELETE_GROUP, STREAM + TOPIC + b"\x02\x03grp"),
        (DELETE_TOKEN, b"\x03tok"),
        (DELETE_TOPIC, STREAM + TOPIC),
        (DELETE_STREAM, STREAM),
    ]
    for operation, body in steps:
        assert await w.status(operation, body) == 0
    page = await ask(w, query(AFTER, cursor=cursor))
    assert kinds(page) == [
        *(PARTITIONS_CHANGED, PARTITIONS_CHANGED, GROUP_DELETED, TOKEN_DELETED),
        *(TOPIC_DELETED, STREAM_DELETED),
    ]
    removed = struct.pack("<III", 2, 1, 2) + b"\0"
    assert page.records[1][1][24:] == removed
    assert page.records[2][1][24:] == bytes(4) + b"\x03grp" + bytes(4) + b"\0"
    assert page.records[4][1].endswith(TOPIC[1:] + b"\0")
    assert (await ask(w, query(AFTER, cursor=page.cursor))).records == []
    records, place = [], cursor
    for number in range(len(page.records)):
        part = await ask(w, query(AFTER, cursor=place, limit=1))
        assert part.has_more is (number < len(page.records) - 1)
        records, place = records + part.records, part.cursor
    assert (records, place) == (page.records, page.cursor)
    only = await ask(w, query(AFTER, cursor=cursor, groups=(TOPICS,)))
    assert kinds(only) == [TOPIC_DELETED]
    early = b"\0\1" + struct.pack("<Q", 1)
    assert (await ask(w, query(AFTER, cursor=cursor, times=early))).records == []


async def test_renames_settings_users_and_permissions_are_changes(broker, w):
    cursor = (await ask(w, query(LATEST))).cursor
    await broker.namespaces.create("public", "other")
    user, _ = await broker.users.create("anna", "password")
    for pattern in ("public/*/*", "public/st/*"):
        await broker.permissions.grant(Grant("anna", "consume", pattern))
    await broker.users.alter(user, is_active=False)
    await broker.users.set_password(broker.users.get("anna"), "another one")
    await broker.renaming.rename_topic(NAME, TopicName("public", "st", "tp2"))
    await broker.users.delete(broker.users.get("anna"))
    page = await ask(w, query(AFTER, cursor=cursor))
    assert kinds(page) == [
        *(STREAM_CREATED, USER_CREATED, PERMISSIONS_UPDATED, USER_UPDATED, PASSWORD_CHANGED),
        *(TOPIC_UPDATED, USER_DELETED),
    ]


async def test_only_the_changes_of_visible_subjects_are_told(broker, w):
    cursor = (await ask(w, query(LATEST))).cursor
    assert await w.status(DELETE_GROUP, STREAM + TOPIC + b"\x02\x03grp") == 0
    assert await w.status(CREATE_STREAM, b"\x03new") == 0
    await broker.users.create("anna", "password")
    assert await w.status(DELETE_TOKEN, b"\x03tok") == 0
    broker.access = Access(ExceptOf())
    page = await ask(w, query(AFTER, cursor=cursor))
    assert kinds(page) == [STREAM_CREATED, TOKEN_DELETED]


async def test_other_tenants_changes_are_not_told(broker, w):
    cursor = (await ask(w, query(LATEST))).cursor
    await broker.namespaces.create("tenant", "ns")
    await broker.topics.create(TopicName("tenant", "ns", "t"), 1)
    page = await ask(w, query(AFTER, cursor=cursor))
    assert page.records == []
    assert page.head > struct.unpack_from("<Q", cursor, 16)[0]


HIDDEN = {"namespace public/st", "topic public/st/tp", "users"}


class ExceptOf:
    """Rules that allow all but describing the stream, its topic, and other users."""

    def allows(self, principal, action, resource) -> bool:
        return not (action is Action.DESCRIBE and str(resource) in HIDDEN)


async def test_a_caller_sees_only_what_is_theirs_to_see(broker, w):
    assert await w.status(CREATE_STREAM, b"\x03new") == 0
    broker.access = Access(ExceptOf())
    page = await ask(w, query(CURRENT))
    names = [body[20:24] for group, body in page.items if group == STREAMS]
    assert names == [b"\x03new"]
    assert {group for group, _ in page.items} == {STREAMS, USERS, TOKENS}


async def test_only_visible_groups_are_told(broker, w):
    broker.access = Access(Hiding(ResourceKind.GROUP))
    page = await ask(w, query(CURRENT))
    assert [group for group, _ in page.items] == [STREAMS, TOPICS, PARTITIONS, USERS, TOKENS]


class AllElsewhere(Placement):
    """A placement of all topics at another broker."""

    def owner(self, name):
        return Owner(2, {})

    def check(self, name):
        raise NotOwner("broker 2 owns the topic", 2)


async def test_groups_at_another_broker_are_left_out(broker, w, monkeypatch):
    (topic,) = broker.topics.all()
    broker.placement = AllElsewhere()
    monkeypatch.setattr(topic, "check_here", lambda: broker.placement.check(topic.name))
    page = await ask(w, query(CURRENT))
    assert [group for group, _ in page.items] == [STREAMS, TOPICS, PARTITIONS, USERS, TOKENS]


async def test_a_page_has_a_limit_of_bytes(broker, w):
    for number in range(3):
        await broker.topics.create(TopicName("public", "st", f"t{number}"), 1)
    start, whole = query(EARLIEST), await ask(w, query(EARLIEST))
    state = await ask(w, query(CURRENT))
    load("iggy").states[broker].limits = IggyLimits(page_bytes=1)
    records, items, token = [], [], b""
    for _ in whole.records:
        page = await ask(w, start)
        assert len(page.records) == 1
        records, start = records + page.records, query(AFTER, cursor=page.cursor)
    assert records == whole.records
    for _ in state.items:
        page = await ask(w, query(CURRENT, token=token))
        assert len(page.items) == 1
        items, token = items + page.items, page.token
    assert (items, token) == (state.items, b"")


TOPICS_COUNT, UPDATES = 60, 40


def permissions_of(topics):
    """Return the permissions of a user who may do everything with the first topics of a stream."""
    head = (bytes(10), b"\x01", bytes(4), bytes(6), b"\x01")
    granted = [
        struct.pack("<I4BB", topic, 1, 1, 1, 1, topic < topics - 1) for topic in range(topics)
    ]
    block = b"".join((*head, *granted, b"\0"))
    return b"\x01" + struct.pack("<I", len(block)) + block


async def test_other_tasks_have_turns_between_records(broker, w):
    """The permissions in each record take a while, also those of records that are not wanted."""
    for number in range(TOPICS_COUNT):
        await broker.topics.create(TopicName("public", "st", f"t{number}"), 1)
    user = b"\x02\x04anna"
    assert await w.status(CREATE_USER, user[1:] + b"\x06secret\x01" + permissions_of(1)) == 0
    for number in range(UPDATES):
        topics = TOPICS_COUNT - number % 2
        assert await w.status(UPDATE_PERMISSIONS, user + permissions_of(topics)) == 0
    profiler = cProfile.Profile()
    with profiler:
        page = await ask(w, query(EARLIEST, groups=(STREAMS,)))
    assert page.records
    calls = {entry.code: entry.callcount for entry in profiler.getstats()}
    assert calls.get(user_records.__code__, 0) == 0
    steps = TaskSteps()
    trio.lowlevel.add_instrument(steps)
    await ask(w, query(EARLIEST))
    few = steps.count
    assert await w.status(UPDATE_PERMISSIONS, user + permissions_of(TOPICS_COUNT)) == 0
    steps.count = 0
    await ask(w, query(EARLIEST, limit=2))
    trio.lowlevel.remove_instrument(steps)
    assert few >= steps.count + 5


class TaskSteps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    count = 0

    def before_task_step(self, task):
        self.count += 1


async def test_other_tasks_have_turns_between_hidden_topics(broker, w):
    for number in range(10):
        await broker.topics.create(TopicName("public", "st", f"t{number}"), 1)
    broker.access = Access(Hiding(ResourceKind.TOPIC))
    counts = []
    for piece in (1_000, 1):
        load("iggy").states[broker].limits = IggyLimits(piece_partitions=piece)
        steps = TaskSteps()
        trio.lowlevel.add_instrument(steps)
        await ask(w, query(CURRENT))
        trio.lowlevel.remove_instrument(steps)
        counts.append(steps.count)
    # For each of 10 topics: topic, partitions, groups; background tasks add a few to either count.
    # 30: for each of 10 topics the topic, its partitions and its groups. Steps of background
    # tasks fall into either count.
    assert counts[1] - counts[0] >= 25


def test_the_captured_question_is_read():
    request = W.requests[CODE].read(memoryview(CAPTURED))
    assert (request.start, request.limit) == (ChangeStart.EARLIEST, 100)
    assert query(EARLIEST) == CAPTURED


TOKEN = bytes(44) + struct.pack("<QBBH", 1, 255, STREAMS, 4) + bytes(4)


@pytest.mark.parametrize(
    "body",
    [
        query(EARLIEST)[:-1],
        query(EARLIEST) + b"\0",
        query(4),
        query(EARLIEST, limit=0),
        query(EARLIEST, limit=1001),
        query(EARLIEST, cursor=b"\1" * 44),
        query(AFTER, cursor=bytes(24) + b"\1" + bytes(19)),
        query(EARLIEST, token=TOKEN),
        query(EARLIEST, times=b"\2" + bytes(8) + b"\0"),
        query(EARLIEST, times=b"\1" + b"\2" * 8 + b"\1" + b"\1" * 8),
        query(LATEST, times=b"\1" + bytes(8) + b"\0"),
        query(CURRENT, groups=(TOPICS,)),
        query(CURRENT, groups=(STREAMS,), token=TOKEN),
        query(CURRENT, token=TOKEN[:-1]),
        query(CURRENT, token=TOKEN[:53] + b"\x09" + TOKEN[54:]),
        query(CURRENT, token=TOKEN + b"\0"),
        query(CURRENT, token=TOKEN[:54] + struct.pack("<H", 5) + bytes(5)),
    ],
)
def test_a_question_that_contradicts_itself_is_refused(body):
    with pytest.raises(ProtocolError):
        ChangesQuery().read(memoryview(body))
