"""The dialect table, checked against the independent description and recorded bytes."""

import random
import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.all_dialects import D2, D4, D5
from braidlog.protocols.iggy.layouts import UNREAD_AFTER
from braidlog.protocols.iggy.messages import CommandCode
from tests.protocols.iggy import description
from tests.protocols.iggy.description import named
from tests.protocols.iggy.description_permissions import block
from tests.protocols.iggy.recorded import conversation

PERMITTED = u.Permissions(frozenset({"manage_servers"}))
BLOCK = block([1, *[0] * 9], {})

CONSUMER, GROUP = m.ConsumerKind.CONSUMER, m.ConsumerKind.GROUP
NEVER = (1 << 64) - 1


def payload(code: int, **values: object) -> memoryview:
    return memoryview(description.request(code, **values))[8:]


STREAM = {"stream": named("st")}
TOPIC = {**STREAM, "topic": named(3)}
OFFSET = {"consumer": {"kind": 1, "id": named(7)}, **TOPIC, "partition": 2}
REQUESTS = [
    (CommandCode.PING, {}, m.Ping()),
    (CommandCode.GET_STATS, {}, m.GetStats()),
    (CommandCode.GET_ME, {}, m.GetMe()),
    (CommandCode.GET_CLIENT, {"client_id": 9}, m.GetClient(9)),
    (CommandCode.GET_CLIENTS, {}, m.GetClients()),
    (
        CommandCode.LOGIN_USER,
        {"username": "u", "password": "p", "version": "0.6.1", "context": "c"},
        u.LoginUser("u", "p", "0.6.1", "c"),
    ),
    (CommandCode.LOGOUT_USER, {}, u.LogoutUser()),
    (
        CommandCode.POLL_MESSAGES,
        {**OFFSET, "strategy": {"kind": 5, "value": 0}, "count": 10, "auto_commit": True},
        m.PollMessages(
            m.ConsumerRef(CONSUMER, 7),
            "st",
            3,
            1,
            m.PollingStrategy(m.PollingKind.NEXT, 0),
            10,
            True,
        ),
    ),
    (
        CommandCode.POLL_MESSAGES,
        {
            **OFFSET,
            "consumer": {"kind": 2, "id": named("grp")},
            "partition": 0,
            "strategy": {"kind": 1, "value": NEVER},
            "count": 1,
            "auto_commit": False,
        },
        m.PollMessages(
            m.ConsumerRef(GROUP, "grp"),
            "st",
            3,
            None,
            m.PollingStrategy(m.PollingKind.OFFSET, NEVER),
            1,
            False,
        ),
    ),
    (
        CommandCode.GET_CONSUMER_OFFSET,
        OFFSET,
        m.GetConsumerOffset(m.ConsumerRef(CONSUMER, 7), "st", 3, 1),
    ),
    (
        CommandCode.STORE_CONSUMER_OFFSET,
        {**OFFSET, "offset": 41},
        m.StoreConsumerOffset(m.ConsumerRef(CONSUMER, 7), "st", 3, 1, 41),
    ),
    (
        CommandCode.DELETE_CONSUMER_OFFSET,
        OFFSET,
        m.DeleteConsumerOffset(m.ConsumerRef(CONSUMER, 7), "st", 3, 1),
    ),
    (CommandCode.GET_STREAM, STREAM, m.GetStream("st")),
    (CommandCode.GET_STREAMS, {}, m.GetStreams()),
    (CommandCode.CREATE_STREAM, {"stream_id": 0, "name": "st"}, m.CreateStream("st")),
    (CommandCode.CREATE_STREAM, {"stream_id": 5, "name": "st"}, m.CreateStream("st", 5)),
    (CommandCode.UPDATE_STREAM, {**STREAM, "name": "st2"}, m.UpdateStream("st", "st2")),
    (CommandCode.DELETE_STREAM, STREAM, m.DeleteStream("st")),
    (CommandCode.GET_TOPIC, TOPIC, m.GetTopic("st", 3)),
    (CommandCode.GET_TOPICS, STREAM, m.GetTopics("st")),
    (
        CommandCode.CREATE_TOPIC,
        {
            **STREAM,
            "topic_id": 0,
            "partitions": 2,
            "compression": 1,
            "expiry": NEVER,
            "max_size": 0,
            "replication": 1,
            "name": "tp",
        },
        m.CreateTopic("st", 2, "tp", None, 1, NEVER, 0, 1),
    ),
    (CommandCode.DELETE_TOPIC, TOPIC, m.DeleteTopic("st", 3)),
    (CommandCode.CREATE_PARTITIONS, {**TOPIC, "count": 2}, m.CreatePartitions("st", 3, 2)),
    (CommandCode.GET_GROUP, {**TOPIC, "group": named("g")}, m.GetGroup("st", 3, "g")),
    (CommandCode.GET_GROUPS, TOPIC, m.GetGroups("st", 3)),
    (
        CommandCode.CREATE_GROUP,
        {**TOPIC, "group_id": 4, "name": "g"},
        m.CreateGroup("st", 3, 4, "g"),
    ),
    (CommandCode.DELETE_GROUP, {**TOPIC, "group": named(4)}, m.DeleteGroup("st", 3, 4)),
    (CommandCode.JOIN_GROUP, {**TOPIC, "group": named("g")}, m.JoinGroup("st", 3, "g")),
    (CommandCode.LEAVE_GROUP, {**TOPIC, "group": named("g")}, m.LeaveGroup("st", 3, "g")),
    (
        CommandCode.UPDATE_TOPIC,
        {
            **TOPIC,
            "compression": 2,
            "expiry": NEVER,
            "max_size": 5,
            "replication": 1,
            "name": "tp",
        },
        m.UpdateTopic("st", 3, "tp", 2, NEVER, 5, 1),
    ),
    (CommandCode.PURGE_STREAM, STREAM, m.PurgeStream("st")),
    (CommandCode.PURGE_TOPIC, TOPIC, m.PurgeTopic("st", 3)),
    (
        CommandCode.FLUSH_UNSAVED_BUFFER,
        {**TOPIC, "partition": 1, "fsync": True},
        m.FlushUnsavedBuffer("st", 3, 0, True),
    ),
    (CommandCode.DELETE_PARTITIONS, {**TOPIC, "count": 2}, m.DeletePartitions("st", 3, 2)),
    (CommandCode.LOGIN_WITH_TOKEN, {"token": "t"}, u.LoginWithToken("t")),
    (CommandCode.GET_USER, {"user": named("u")}, u.GetUser("u")),
    (CommandCode.GET_USERS, {}, u.GetUsers()),
    (
        CommandCode.CREATE_USER,
        {"username": "u", "password": "p", "status": 1, "permissions": BLOCK},
        u.CreateUser("u", "p", 1, PERMITTED),
    ),
    (
        CommandCode.CREATE_USER,
        {"username": "u", "password": "p", "status": 2, "permissions": None},
        u.CreateUser("u", "p", 2, None),
    ),
    (CommandCode.DELETE_USER, {"user": named(5)}, u.DeleteUser(5)),
    (
        CommandCode.UPDATE_USER,
        {"user": named(5), "username": "v", "status": None},
        u.UpdateUser(5, "v", None),
    ),
    (
        CommandCode.UPDATE_USER,
        {"user": named(5), "username": None, "status": 2},
        u.UpdateUser(5, None, 2),
    ),
    (
        CommandCode.UPDATE_PERMISSIONS,
        {"user": named(5), "permissions": BLOCK},
        u.UpdatePermissions(5, PERMITTED),
    ),
    (
        CommandCode.CHANGE_PASSWORD,
        {"user": named("u"), "old": "a", "new": "b"},
        u.ChangePassword("u", "a", "b"),
    ),
    (CommandCode.GET_TOKENS, {}, u.GetTokens()),
    (CommandCode.CREATE_TOKEN, {"name": "t", "expiry": 7}, u.CreateToken("t", 7)),
    (CommandCode.DELETE_TOKEN, {"name": "t"}, u.DeleteToken("t")),
]


@pytest.mark.parametrize(("code", "values", "request_"), REQUESTS)
def test_request_reads_as_described(code, values, request_):
    assert D2.requests[code].read(payload(code, **values)) == request_


def test_send_reads_as_described_and_leaves_its_messages_as_bytes():
    messages = [{"id": bytes(16), "headers": [], "payload": b"hello"}]
    data = payload(101, **TOPIC, partitioning={"kind": 3, "value": b"k"}, messages=messages)
    request = D2.requests[CommandCode.SEND_MESSAGES].read(data)
    assert (request.stream, request.topic) == ("st", 3)
    assert request.partitioning == m.Partitioning(m.PartitioningKind.KEY, key=b"k")
    assert bytes(request.messages) == bytes(20) + b"\x05\x00\x00\x00hello"


def test_every_command_is_described():
    assert {code for code, _, _ in REQUESTS} | {CommandCode.SEND_MESSAGES} == set(D2.requests)


@pytest.mark.parametrize(("code", "values", "request_"), REQUESTS)
def test_request_cut_anywhere_or_too_long_is_refused(code, values, request_):
    data = bytes(payload(code, **values))
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            D2.requests[code].read(memoryview(data[:end]))
    if code in UNREAD_AFTER:  # Clients of Node, Go and C# send more.
        assert D2.requests[code].read(memoryview(data + b"\x00")) == request_
        return
    with pytest.raises(ProtocolError):
        D2.requests[code].read(memoryview(data + b"\x00"))


@pytest.mark.parametrize("seed", range(20))
def test_random_payload_raises_only_protocol_error(seed):
    chance = random.Random(seed)
    for layout in D2.requests.values():
        data = memoryview(chance.randbytes(chance.randrange(64)))
        try:
            layout.read(data)
        except ProtocolError:
            pass


RECORDS = [
    ("user_id", description.ANSWERS[38], r.LoginInfo(0, 5, 6, "v"), {"user_id": 1}),
    (
        "client",
        description.CLIENT,
        r.ClientInfo(7, 0, 1, "127.0.0.1:5", 2),
        {
            "client_id": 7,
            "user_id": 1,
            "transport": 1,
            "address": "127.0.0.1:5",
            "groups_count": 2,
        },
    ),
    (
        "membership",
        description.MEMBERSHIP,
        r.JoinedGroup(1, 2, 3),
        {"stream_id": 1, "topic_id": 2, "group_id": 3},
    ),
    (
        "stream",
        description.STREAM,
        r.StreamInfo(1, 2, 3, 4, 5, "st"),
        {"id": 1, "created_at": 2, "topics": 3, "size": 4, "messages": 5, "name": "st"},
    ),
    (
        "topic",
        description.TOPIC,
        r.TopicDetails(1, 2, 3, 4, 1, 6, 1, 8, 9, "tp"),
        {
            "id": 1,
            "created_at": 2,
            "partitions": 3,
            "expiry": 4,
            "compression": 1,
            "max_size": 6,
            "replication": 1,
            "size": 8,
            "messages": 9,
            "name": "tp",
        },
    ),
    (
        "partition",
        description.PARTITION,
        r.PartitionDetails(0, 2, 3, 4, 5, 6),
        {
            "id": 1,
            "created_at": 2,
            "segments": 3,
            "current_offset": 4,
            "size": 5,
            "messages": 6,
        },
    ),
    (
        "offset",
        description.ANSWERS[120],
        r.OffsetInfo(1, 99, 41),
        {"partition": 2, "current_offset": 99, "stored_offset": 41},
    ),
    (
        "group",
        description.GROUP,
        r.GroupInfo(1, 2, 3, "g"),
        {"id": 1, "partitions": 2, "members": 3, "name": "g"},
    ),
    ("member", description.MEMBER, r.MemberInfo(7, [0, 2]), {"id": 7, "partitions": [1, 3]}),
    (
        "polled",
        description.ANSWERS[100],
        r.PolledHead(-1, 5, 0),
        {"partition": 0, "current_offset": 5, "messages_count": 0, "messages": []},
    ),
    (
        "stats",
        description.STATS,
        r.StatsReply(1, 0.5, 0.25, *range(3, 18), "h", "o", "v", "k", "0.1", 100, 0, 1, 2, 3),
        dict(
            zip(
                [piece.name for piece in description.STATS.subcons],
                [1, 0.5, 0.25, *range(3, 18), "h", "o", "v", "k", "0.1", 100, []],
                strict=True,
            )
        ),
    ),
    (
        "user",
        description.USER,
        r.UserDetails(0, 2, 1, "iggy"),
        {"id": 1, "created_at": 2, "status": 1, "username": "iggy"},
    ),
    ("permissions", description.MAYBE_SIZED, r.UserPermissions(PERMITTED), {"value": BLOCK}),
    ("no permissions", description.ZERO, r.UserPermissions(None), {"none": 0}),
    ("token", description.TOKEN, r.TokenDetails("t", 5), {"name": "t", "expires": 5}),
    ("raw token", description.RAW_TOKEN, r.RawToken("t"), {"token": "t"}),
]


@pytest.mark.parametrize(("name", "layout", "record", "values"), RECORDS)
def test_record_is_written_as_described(name, layout, record, values):
    assert description.whole(layout, D2.write([record])) == values


def test_statistics_from_d4_on_have_the_fields_of_d5():
    """Go's client 0.8.0 speaks D5 with D4's version."""
    stats = next(record for name, _, record, _ in RECORDS if name == "stats")
    assert D4.write([stats]) == D5.write([stats])
    assert D5.write([stats]) == D2.write([stats]) + struct.pack("<IQQ", 1, 2, 3)


def test_every_record_is_described():
    unwritten = {kind for kind, layout in D2.records.items() if not layout.fields}
    assert {type(record) for _, _, record, _ in RECORDS} | unwritten == set(D2.records)


@pytest.mark.parametrize(
    "row",
    [row for row in conversation() if row.answer is not None and row.code in D2.requests],
    ids=lambda row: row.name,
)
def test_recorded_requests_are_read_unless_the_real_server_failed(row):
    if row.answer[:4] != b"\x03\x00\x00\x00":
        D2.requests[row.code].read(memoryview(row.request)[8:])
    elif row.name != "SEND empty payload":  # The codec checks its messages.
        with pytest.raises(ProtocolError):
            D2.requests[row.code].read(memoryview(row.request)[8:])
