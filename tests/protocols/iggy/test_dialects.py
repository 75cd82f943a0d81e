"""The dialect table, checked against the second description and against recorded bytes."""

import random

import pytest

from broker.server.adapters import ProtocolError
from protocols.iggy import messages as m
from protocols.iggy.dialects import D1, D2, LATER, Manners, dialect_of_login
from protocols.iggy.messages import Code
from tests.protocols.iggy import description
from tests.protocols.iggy.description import named
from tests.protocols.iggy.recorded import conversation, first_frames

CONSUMER, GROUP = m.ConsumerKind.CONSUMER, m.ConsumerKind.GROUP
NEVER = (1 << 64) - 1


def payload(code: int, **values: object) -> memoryview:
    return memoryview(description.request(code, **values))[8:]


STREAM = {"stream": named("st")}
TOPIC = {**STREAM, "topic": named(3)}
OFFSET = {"consumer": {"kind": 1, "id": named(7)}, **TOPIC, "partition": 2}
REQUESTS = [
    (Code.PING, {}, m.Ping()),
    (Code.GET_STATS, {}, m.GetStats()),
    (Code.GET_ME, {}, m.GetMe()),
    (Code.GET_CLIENT, {"client_id": 9}, m.GetClient(9)),
    (Code.GET_CLIENTS, {}, m.GetClients()),
    (
        Code.LOGIN_USER,
        {"username": "u", "password": "p", "version": "0.6.1", "context": "c"},
        m.LoginUser("u", "p", "0.6.1", "c"),
    ),
    (Code.LOGOUT_USER, {}, m.LogoutUser()),
    (
        Code.POLL_MESSAGES,
        {**OFFSET, "strategy": {"kind": 5, "value": 0}, "count": 10, "auto_commit": True},
        m.PollMessages(
            m.Consumer(CONSUMER, 7), "st", 3, 1, m.Strategy(m.PollingKind.NEXT, 0), 10, True
        ),
    ),
    (
        Code.POLL_MESSAGES,
        {
            **OFFSET,
            "consumer": {"kind": 2, "id": named("grp")},
            "partition": 0,
            "strategy": {"kind": 1, "value": NEVER},
            "count": 1,
            "auto_commit": False,
        },
        m.PollMessages(
            m.Consumer(GROUP, "grp"),
            "st",
            3,
            None,
            m.Strategy(m.PollingKind.OFFSET, NEVER),
            1,
            False,
        ),
    ),
    (Code.GET_CONSUMER_OFFSET, OFFSET, m.GetConsumerOffset(m.Consumer(CONSUMER, 7), "st", 3, 1)),
    (
        Code.STORE_CONSUMER_OFFSET,
        {**OFFSET, "offset": 41},
        m.StoreConsumerOffset(m.Consumer(CONSUMER, 7), "st", 3, 1, 41),
    ),
    (
        Code.DELETE_CONSUMER_OFFSET,
        OFFSET,
        m.DeleteConsumerOffset(m.Consumer(CONSUMER, 7), "st", 3, 1),
    ),
    (Code.GET_STREAM, STREAM, m.GetStream("st")),
    (Code.GET_STREAMS, {}, m.GetStreams()),
    (Code.CREATE_STREAM, {"stream_id": 0, "name": "st"}, m.CreateStream(None, "st")),
    (Code.CREATE_STREAM, {"stream_id": 5, "name": "st"}, m.CreateStream(5, "st")),
    (Code.UPDATE_STREAM, {**STREAM, "name": "st2"}, m.UpdateStream("st", "st2")),
    (Code.DELETE_STREAM, STREAM, m.DeleteStream("st")),
    (Code.GET_TOPIC, TOPIC, m.GetTopic("st", 3)),
    (Code.GET_TOPICS, STREAM, m.GetTopics("st")),
    (
        Code.CREATE_TOPIC,
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
        m.CreateTopic("st", None, 2, 1, NEVER, 0, 1, "tp"),
    ),
    (Code.DELETE_TOPIC, TOPIC, m.DeleteTopic("st", 3)),
    (Code.CREATE_PARTITIONS, {**TOPIC, "count": 2}, m.CreatePartitions("st", 3, 2)),
    (Code.GET_GROUP, {**TOPIC, "group": named("g")}, m.GetGroup("st", 3, "g")),
    (Code.GET_GROUPS, TOPIC, m.GetGroups("st", 3)),
    (
        Code.CREATE_GROUP,
        {**TOPIC, "group_id": 4, "name": "g"},
        m.CreateGroup("st", 3, 4, "g"),
    ),
    (Code.DELETE_GROUP, {**TOPIC, "group": named(4)}, m.DeleteGroup("st", 3, 4)),
    (Code.JOIN_GROUP, {**TOPIC, "group": named("g")}, m.JoinGroup("st", 3, "g")),
    (Code.LEAVE_GROUP, {**TOPIC, "group": named("g")}, m.LeaveGroup("st", 3, "g")),
]


@pytest.mark.parametrize(("code", "values", "request_"), REQUESTS)
def test_request_reads_as_described(code, values, request_):
    assert D2.requests[code].read(payload(code, **values)) == request_


def test_send_reads_as_described_and_leaves_its_messages_as_bytes():
    messages = [{"id": bytes(16), "headers": [], "payload": b"hello"}]
    data = payload(101, **TOPIC, partitioning={"kind": 3, "value": b"k"}, messages=messages)
    request = D2.requests[Code.SEND_MESSAGES].read(data)
    assert (request.stream, request.topic) == ("st", 3)
    assert request.partitioning == m.Partitioning(m.PartitioningKind.KEY, key=b"k")
    assert bytes(request.messages) == bytes(20) + b"\x05\x00\x00\x00hello"


def test_every_served_command_is_described():
    assert {code for code, _, _ in REQUESTS} | {Code.SEND_MESSAGES} == set(D2.requests)


@pytest.mark.parametrize(("code", "values", "request_"), REQUESTS)
def test_request_cut_anywhere_or_too_long_is_refused(code, values, request_):
    data = bytes(payload(code, **values))
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            D2.requests[code].read(memoryview(data[:end]))
    with pytest.raises(ProtocolError):
        D2.requests[code].read(memoryview(data + b"\x00"))


@pytest.mark.parametrize("seed", range(20))
def test_random_payload_raises_protocol_error_and_nothing_else(seed):
    chance = random.Random(seed)
    for layout in D2.requests.values():
        data = memoryview(chance.randbytes(chance.randrange(64)))
        try:
            layout.read(data)
        except ProtocolError:
            pass


RECORDS = [
    ("user_id", description.ANSWERS[38], m.UserIdentity(1), {"user_id": 1}),
    (
        "client",
        description.CLIENT,
        m.ClientInfo(7, 1, 1, "127.0.0.1:5", 2),
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
        m.Membership(1, 2, 3),
        {"stream_id": 1, "topic_id": 2, "group_id": 3},
    ),
    (
        "stream",
        description.STREAM,
        m.StreamInfo(1, 2, 3, 4, 5, "st"),
        {"id": 1, "created_at": 2, "topics": 3, "size": 4, "messages": 5, "name": "st"},
    ),
    (
        "topic",
        description.TOPIC,
        m.TopicInfo(1, 2, 3, 4, 1, 6, 1, 8, 9, "tp"),
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
        m.PartitionInfo(0, 2, 3, 4, 5, 6),
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
        m.OffsetInfo(1, 99, 41),
        {"partition": 2, "current_offset": 99, "stored_offset": 41},
    ),
    (
        "group",
        description.GROUP,
        m.GroupInfo(1, 2, 3, "g"),
        {"id": 1, "partitions": 2, "members": 3, "name": "g"},
    ),
    ("member", description.MEMBER, m.MemberInfo(7, [0, 2]), {"id": 7, "partitions": [1, 3]}),
    (
        "polled",
        description.ANSWERS[100],
        m.PolledHead(-1, 5, 0),
        {"partition": 0, "current_offset": 5, "messages_count": 0, "messages": []},
    ),
    (
        "stats",
        description.STATS,
        m.Stats(1, 0.5, 0.25, *range(3, 18), "h", "o", "v", "k", "0.1", 100, 0),
        dict(
            zip(
                [piece.name for piece in description.STATS.subcons],
                [1, 0.5, 0.25, *range(3, 18), "h", "o", "v", "k", "0.1", 100, []],
                strict=True,
            )
        ),
    ),
]


@pytest.mark.parametrize(("name", "layout", "record", "values"), RECORDS)
def test_record_is_written_as_described(name, layout, record, values):
    assert description.whole(layout, D2.write([record])) == values


def test_every_record_is_described():
    assert {type(record) for _, _, record, _ in RECORDS} == set(D2.records)


@pytest.mark.parametrize("first", first_frames(), ids=lambda first: f"{first.client}")
def test_login_of_a_real_client_tells_its_dialect(first):
    dialect, _ = dialect_of_login(memoryview(first.request)[8:])
    assert dialect.name == first.dialect
    assert dialect.served == (first.dialect == "D2")


@pytest.mark.parametrize(
    ("version", "dialect", "manners"),
    [
        ("0.5.0", "D2", Manners(error_text=True, absent_is_error=True)),
        ("0.6.9", "D2", Manners(error_text=True, absent_is_error=True)),
        ("0.6.10", "D2", Manners(error_text=True)),
        ("0.6.59", "D2", Manners(error_text=True)),
        ("0.6.60", "D2", Manners()),
        ("0.6.203", "D2", Manners()),
        ("0.6", "D2", Manners(error_text=True, absent_is_error=True)),
        ("", "D2", Manners()),
        ("java-sdk", "D2", Manners()),
        ("0.7.0", "D3", Manners()),
        ("0.8.0-rc1", "D4", Manners()),
        ("0.9.3", "D5", Manners()),
        ("0.10.0", "D5", Manners()),
        ("0.11.0", "unknown", Manners()),
        ("1.0.0", "unknown", Manners()),
    ],
)
def test_version_tells_dialect_and_manners(version, dialect, manners):
    data = payload(38, username="u", password="p", version=version, context="")
    found, found_manners = dialect_of_login(data)
    assert (found.name, found_manners) == (dialect, manners)


def test_login_without_version_is_d1_and_may_be_told_a_text():
    assert dialect_of_login(memoryview(b"\x01u\x01p")) == (D1, Manners(error_text=True))


def test_unknown_dialects_are_not_served():
    assert not LATER.served


@pytest.mark.parametrize("data", [b"", b"\x01u", b"\x01u\x01p\x01", b"\x05u\x01p"])
def test_cut_login_is_refused(data):
    with pytest.raises(ProtocolError):
        dialect_of_login(memoryview(data))


def test_every_known_command_is_served_refused_or_of_later_dialects():
    later = {Code.GET_CLUSTER_METADATA, Code.DELETE_SEGMENTS}
    assert set(D2.requests) | D2.unserved | later == set(Code)
    assert not set(D2.requests) & D2.unserved


@pytest.mark.parametrize(
    "row",
    [row for row in conversation() if row.answer is not None and row.code in D2.requests],
    ids=lambda row: row.name,
)
def test_recorded_request_reads_unless_the_real_server_could_not_read_it_either(row):
    if row.answer[:4] != b"\x03\x00\x00\x00":
        D2.requests[row.code].read(memoryview(row.request)[8:])
    elif row.name != "SEND empty payload":  # Its messages are checked by the codec.
        with pytest.raises(ProtocolError):
            D2.requests[row.code].read(memoryview(row.request)[8:])
