"""Dialect W: its tables, and a conversation in it."""

import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.fields import FieldRefused
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.layouts_w import W_DEV, W
from braidlog.protocols.iggy.machine import IggyCommand, IggyMachine, RefusedFrame
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.vsr import HEADER_BYTES
from tests.protocols.iggy.recorded import requests_of_w
from tests.protocols.iggy.vtalk import CREATE_STREAM, CREATE_TOPIC, STREAM, TOPIC, VClient
from tests.protocols.iggy.wtalk import (
    SECRET,
    SEND,
    STORE,
    UPDATE_RESOURCE,
    client_w,
    login_body,
    option,
    sent,
)

CREATE_PARTITIONS, DELETE_PARTITIONS = 136, 137
NAME, EXPIRY = option("name", b"new"), option("message_expiry", bytes(8), kind=12)


def test_the_captured_login_of_a_client_is_read():
    body = login_body("0.11.1-edge.5")
    assert body[:24].hex() == "0030000008727573742d73646b0d302e31312e312d656467"
    read = W.requests[CommandCode.LOGIN_USER].read(memoryview(body))
    assert read == u.LoginUser("iggy", "iggy", "0.11.1-edge.5", "", SECRET)


def update(hex_or_bytes: str | bytes) -> object:
    body = bytes.fromhex(hex_or_bytes) if isinstance(hex_or_bytes, str) else hex_or_bytes
    return W.requests[CommandCode.UPDATE_RESOURCE].read(memoryview(body))


def test_captured_updates_are_read():
    topic = update(
        "01 020273740202747000 020e0000006d6573736167655f6578706972790c08000000ffffffffffffffff"
        "02040000006e616d650203000000747032"
    )
    options = {"message_expiry": (12, b"\xff" * 8)}
    assert topic == m.UpdateTopic("st", "tp", "tp2", options=options)
    stream = update("02 02027374 00 02040000006e616d650203000000737432")
    assert stream == m.UpdateStream("st", "st2", options={})


CAPTURED_POLL = "02020367727002027374020274700100000000050000000000000000"
GROUP_POLL = (
    *(m.ConsumerRef(m.ConsumerKind.GROUP, "grp"), "st", "tp", 0),
    m.PollingStrategy(m.PollingKind.NEXT, 0),
)
CAPTURED = [
    (CommandCode.CREATE_STREAM, "027374", m.CreateStream("st", options={})),
    (CommandCode.GET_TOPIC, "0202737402027470", m.GetTopic("st", "tp")),
    (
        CommandCode.GET_PARTITION_ROUTE,
        "020273740202747000000000",
        m.GetPartitionRoute("st", "tp", 0),
    ),
    (
        CommandCode.POLL_MESSAGES,
        CAPTURED_POLL + "0a00000001",
        m.PollMessages(*GROUP_POLL, 10, True),
    ),
    (
        CommandCode.POLL_MESSAGES_DEFERRED,
        CAPTURED_POLL + "0a00000000 89fa0e0000000000 01000000 00001000 0391a70000000000",
        m.PollDeferred(
            *GROUP_POLL,
            count=10,
            auto_commit=False,
            max_bytes=1 << 20,
            wait_us=981_641,
            min_count=1,
            request_timeout_us=10_981_635,
        ),
    ),
]


@pytest.mark.parametrize(("code", "body", "request_"), CAPTURED)
def test_captured_requests_are_read(code, body, request_):
    """Requests of apache-iggy 0.9.1.dev5."""
    payload = bytes.fromhex(body)
    assert W.requests[code].read(memoryview(payload)) == request_
    for cut in range(len(payload)):
        with pytest.raises(ProtocolError):
            W.requests[code].read(memoryview(payload[:cut]))


def test_an_update_resets_options_and_changes_users():
    body = b"\x01" + STREAM + TOPIC + b"\x01\x0emessage_expiry"
    assert update(body) == m.UpdateTopic("st", "tp", None, options={}, resets=("message_expiry",))
    body = b"\x03\x02\x03ann\x00" + option("status", b"inactive") + option("username", b"bob")
    assert update(body) == u.UpdateUser("ann", "bob", 2, options={})


@pytest.mark.parametrize(
    "body",
    [
        b"\x01" + STREAM + TOPIC + b"\x00",
        b"\x01" + STREAM + TOPIC + b"\x00" + NAME + NAME,
        b"\x01" + STREAM + TOPIC + b"\x02\x01x\x01x",
        b"\x01" + STREAM + TOPIC + b"\x01\x0emessage_expiry" + EXPIRY,
        b"\x01" + STREAM + TOPIC + b"\xff",
        b"\x04" + STREAM + b"\x00" + NAME,
    ],
)
def test_an_update_without_a_change_or_of_an_option_named_twice_is_refused(body):
    with pytest.raises(ProtocolError):
        update(body)


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        (b"\x00" + option("durability", b"persisted"), ErrorCode.OPTION_NOT_UPDATABLE),
        (b"\x01\x0adurability", ErrorCode.OPTION_NOT_RESETTABLE),
        (b"\x01\x04name", ErrorCode.OPTION_NOT_RESETTABLE),
        (b"\x00" + option("colour", b"red"), ErrorCode.UNSUPPORTED_OPTION_KEY),
        (b"\x00" + option("name", b""), ErrorCode.INVALID_OPTION_VALUE),
    ],
)
def test_an_option_that_cannot_change_is_refused(patch, code):
    with pytest.raises(FieldRefused) as refused:
        update(b"\x01" + STREAM + TOPIC + patch)
    assert refused.value.code == code


def test_only_offsets_can_be_those_of_an_external_group():
    """A poll or a membership of such a group is refused."""
    consumer = b"\x03\x02\x03grp" + STREAM + TOPIC + b"\x01" + bytes(4)
    read = W.requests[CommandCode.GET_CONSUMER_OFFSET].read(memoryview(consumer))
    assert read.consumer == m.ConsumerRef(m.ConsumerKind.EXTERNAL, "grp")
    poll = consumer + b"\x05" + bytes(8) + b"\x0a\0\0\0\0"
    for dialect, code, body in (
        (W, CommandCode.POLL_MESSAGES, poll),
        (V, CommandCode.GET_CONSUMER_OFFSET, consumer),
    ):
        with pytest.raises(ProtocolError):
            dialect.requests[code].read(memoryview(body))


def test_only_partitions_differ_in_development_builds():
    differing = {kind for kind, row in W.records.items() if W_DEV.records[kind] is not row}
    assert {kind.__name__ for kind in differing} == {"PartitionDetails"}


@pytest.fixture
async def w(broker, open_client) -> VClient:
    """Return a client of the release with a stream and a topic."""
    client = await client_w(open_client)
    assert await client.status(CREATE_STREAM, STREAM[1:]) == 0
    assert await client.status(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + TOPIC[1:]) == 0
    return client


async def route(client: VClient, partition: int) -> tuple[int, ...]:
    status, body = await client.query(105, STREAM + TOPIC + struct.pack("<I", partition))
    assert status == 0
    return struct.unpack("<QQIIB", body)


async def test_a_route_names_the_partition_for_good(broker, w):
    first, place, view, count, node = await route(w, 0)
    assert (view, count, node) == (0, 2, 0)
    assert first
    assert place == broker.last_change
    assert (await w.query(105, STREAM + TOPIC + struct.pack("<I", 2)))[0] == 3007
    await w.perform(134, STREAM + TOPIC)
    await w.perform(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + TOPIC[1:])
    again, later, *_ = await route(w, 0)
    assert again > first
    assert later > place


@pytest.mark.parametrize("wrong", [0, 1 << 40])
async def test_a_partition_that_was_created_anew_is_not_sent_to(w, wrong):
    incarnation = (await route(w, 0))[0]
    status, body = await w.perform(SEND, sent(b"x"), incarnation=wrong)
    assert (status, body) == (ErrorCode.HISTORY_UNAVAILABLE, b"")
    status, body = await w.perform(SEND, sent(b"x"), incarnation=incarnation)
    assert (status, body[:4]) == (0, b"\1\0\0\0")
    consumer = b"\x01\x01\x04" + bytes(4) + STREAM + TOPIC + b"\x01" + bytes(4)
    poll = consumer + b"\x03" + bytes(8) + b"\x0a\0\0\0\0"
    assert (await w.query(100, poll, incarnation=wrong))[0] == 87
    status, body = await w.query(100, poll, incarnation=incarnation)
    assert (status, struct.unpack_from("<IQIQQQ", body)[:5]) == (0, (0, 0, 1, incarnation, 0))


async def test_the_offsets_of_an_external_group_are_those_of_the_shared_group(broker, w):
    """Also beyond the end: another protocol's client knows better."""
    incarnation = (await route(w, 0))[0]
    group = b"\x03\x02\x06kafkas" + STREAM + TOPIC + b"\x01" + bytes(4)
    body = group + struct.pack("<QB", 41, 1)
    assert await w.perform(STORE, body, incarnation=incarnation) == (0, bytes(4))
    status, body = await w.query(120, group)
    assert (status, struct.unpack("<IQQ", body)) == (0, (0, 0, 41))
    (topic,) = [topic for topic in broker.topics.all() if topic.name.topic == "tp"]
    assert broker.subscriptions.find(topic, b"kafkas").position(0) == 42


async def test_a_stream_with_an_encryption_key_is_refused(w):
    key = option("encryption_key", bytes(32), kind=1)
    assert await w.perform(CREATE_STREAM, b"\x02s2" + key) == (0, struct.pack("<III", 1, 0, 4106))
    assert (await w.query(200, b"\x02\x02s2")) == (0, b"")


async def test_the_error_of_a_deletion_of_segments_is_final(w):
    """The client finds a result section only in the answer to the internal form."""
    body = STREAM + TOPIC + struct.pack("<II", 9, 1)
    assert await w.perform(138, body) == (0, struct.pack("<III", 1, 0, 3007))


async def test_a_topic_is_renamed_and_its_expiry_reset(broker, w):
    target = b"\x01" + STREAM + TOPIC
    day = option("message_expiry", struct.pack("<Q", 86_400_000_000), kind=12)
    assert await w.perform(UPDATE_RESOURCE, target + b"\x00" + day) == (0, bytes(4))
    meta = next(topic for topic in broker.topics.all() if topic.name.topic == "tp").meta
    assert meta.settings["retention_ms"] == 86_400_000
    reset = target + b"\x01\x0emessage_expiry" + option("name", b"tp2")
    assert await w.perform(UPDATE_RESOURCE, reset) == (0, bytes(4))
    meta = next(topic for topic in broker.topics.all() if topic.name.topic == "tp2").meta
    assert "retention_ms" not in meta.settings


@pytest.mark.limits(renamed_partitions=2)
async def test_an_update_whose_rename_is_refused_changes_nothing(broker, w):
    """The topic and its two partitions are three names."""
    day = option("message_expiry", struct.pack("<Q", 86_400_000_000), kind=12)
    body = b"\x01" + STREAM + TOPIC + b"\x00" + day + option("name", b"tp2")
    assert error_of(*await w.perform(UPDATE_RESOURCE, body)) == ErrorCode.ERROR
    (topic,) = [topic for topic in broker.topics.all() if topic.name.namespace == "st"]
    assert (topic.name.topic, "retention_ms" in topic.meta.settings) == ("tp", False)


async def test_a_command_before_the_login_is_refused_in_v(open_client):
    """The dialect is known from the login on."""
    client = VClient(await open_client("iggy"))
    assert (await client.query(200, STREAM))[0] == 40


def topic_with(*options: bytes) -> bytes:
    """Return the body of a CREATE_TOPIC of topic `t2`."""
    return STREAM + struct.pack("<I", 2) + b"\x02t2" + b"".join(options)


def error_of(status: int, body: bytes) -> int:
    """Return the error of an answer with a result section, 0 for a success."""
    return status or (struct.unpack_from("<II", body, 4)[1] if body[:4] != bytes(4) else 0)


@pytest.mark.parametrize(
    ("factor", "kind", "code"),
    [
        (struct.pack("<I", 1), 11, 0),
        (b"1", 2, 0),
        (struct.pack("<I", 2), 11, ErrorCode.INVALID_REPLICATION_FACTOR),
        (struct.pack("<I", 0), 11, ErrorCode.INVALID_REPLICATION_FACTOR),
        (b"two", 2, ErrorCode.INVALID_OPTION_VALUE),
    ],
)
async def test_a_topic_of_a_single_node_has_a_single_replica(broker, w, factor, kind, code):
    created = topic_with(option("replication_factor", factor, kind=kind))
    assert error_of(*await w.perform(CREATE_TOPIC, created)) == code
    topics = {topic.name.topic for topic in broker.topics.all()}
    assert topics == ({"tp"} if code else {"tp", "t2"})


async def test_the_partitions_of_a_fixed_topic_stay(broker, w):
    await w.perform(CREATE_TOPIC, topic_with(option("partition_resize_policy", b"fixed")))
    for operation in (CREATE_PARTITIONS, DELETE_PARTITIONS):
        answer = await w.perform(operation, STREAM + b"\x02\x02t2" + struct.pack("<I", 1))
        assert error_of(*answer) == ErrorCode.PARTITION_RESIZE_DISABLED
    assert [len(topic.partitions) for topic in broker.topics.all()] == [2, 2]


async def test_each_scope_has_its_options(w):
    listed = {}
    for scope in (1, 2, 3):
        _, body = await w.query(CommandCode.DESCRIBE_OPTIONS, bytes([scope]))
        pos, keys = 4, {}
        for _ in range(struct.unpack_from("<I", body)[0]):
            key = body[pos + 1 : pos + 1 + body[pos]].decode()
            pos += 1 + body[pos]
            keys[key] = body[pos + 1]
            pos += 2
            for _ in range(2):  # Default value, description.
                pos += 4 + struct.unpack_from("<I", body, pos)[0]
        assert pos == len(body)
        listed[scope] = keys
    assert listed[1]["message_expiry"] == 3
    assert listed[1]["segment_size"] == listed[1]["replication_factor"] == 0
    assert "enforce_fsync" not in listed[1]
    assert (listed[2], listed[3]) == ({"name": 1}, {"username": 1, "status": 1})


PARTITION_COMMANDS = {
    *(CommandCode.SEND_MESSAGES, CommandCode.POLL_MESSAGES, CommandCode.POLL_MESSAGES_DEFERRED),
    *(CommandCode.STORE_CONSUMER_OFFSET, CommandCode.DELETE_CONSUMER_OFFSET),
}


@pytest.mark.parametrize(("client", "requests"), requests_of_w().items())
def test_requests_of_real_clients_are_read(client, requests):
    machine = IggyMachine()
    for command, request in requests:
        view = memoryview(request)
        if CommandCode[command] not in {CommandCode.PING, CommandCode.LOGIN_USER}:
            machine.logged_in = True
            (machine.session,) = struct.unpack_from("<Q", request, 184)
        assert machine.frame_size(view) == len(request)
        event = machine.decode(view)
        assert isinstance(event, IggyCommand), f"{command}: {event.reason}"
        assert (event.code, event.frame is not None) == (CommandCode[command], True)
        if event.code in PARTITION_COMMANDS:
            assert event.frame.partition
        assert event.frame.owner == struct.unpack_from("<Q", request, 208)[0]
        cut = struct.pack("<I", len(request) - 1)
        if len(request) > HEADER_BYTES and event.code != CommandCode.SEND_MESSAGES:
            shorter = request[:48] + cut + request[52:-1]
            assert isinstance(machine.decode(memoryview(shorter)), RefusedFrame), command
    is_edge_9 = "edge.9" in client
    assert machine.dialect is (W if is_edge_9 else W_DEV)
