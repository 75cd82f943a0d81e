"""Connecting, keepalive, causes of a close, refusals: sections 4, 5 and 21."""

from types import SimpleNamespace

import pytest

from braidlog.broker.metrics import Metrics
from braidlog.broker.runtime.endings import EndConnection
from braidlog.protocols.pulsar import client as served
from braidlog.protocols.pulsar import connecting, patterns
from braidlog.protocols.pulsar.limits import PULSAR_LIMITS
from braidlog.protocols.pulsar.machine import ConnectionState, Type
from braidlog.protocols.pulsar.messages import PING
from braidlog.protocols.pulsar.options import PulsarOptions
from braidlog.protocols.pulsar.session import KEEPALIVE_S, PulsarSession
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.protocols.pulsar.golden import answered, sent
from tests.protocols.pulsar.talk import NAME, TOPIC, RawPulsar, command_bytes, entry, talking
from tests.waiting import until


async def test_ping_is_answered_before_connect(open_client):
    client = RawPulsar(await open_client("pulsar"))
    await client.send(Type.PING)
    assert await client.frame() == answered("pong")


@pytest.mark.parametrize(("theirs", "agreed"), [(0, 0), (12, 12), (20, 20), (21, 21), (99, 21)])
async def test_the_protocol_version_is_the_smaller_of_both(open_client, theirs, agreed):
    client = RawPulsar(await open_client("pulsar"))
    connected = await client.connect(version=theirs)
    assert connected.protocol_version == agreed
    assert connected.max_message_size == 5_242_880
    assert connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation
    assert connected.feature_flags.supports_topic_watchers is patterns.ARE_SERVED
    assert connected.server_version.startswith("Braidlog ")


async def test_the_first_client_is_accepted_once_schemas_can_be_parsed(open_client, monkeypatch):
    loaded = []

    async def load():
        loaded.append(True)

    monkeypatch.setattr(connecting, "has_parser", lambda: bool(loaded))
    monkeypatch.setattr(connecting, "load_parser", load)
    for _ in range(2):
        await RawPulsar(await open_client("pulsar")).connect()
        assert loaded == [True]


@pytest.mark.parametrize("name", ["connect_token", "connect_none", "connect_via_proxy"])
async def test_any_authentication_is_accepted(open_client, name):
    client = RawPulsar(await open_client("pulsar"))
    await client.stream.send_all(sent(name))
    await client.next(Type.CONNECTED)


BREAKING = {
    "a second CONNECT": command_bytes(Type.CONNECT, client_version="x"),
    "a SEND of no producer": command_bytes(Type.SEND, entry(), producer_id=3, sequence_id=0),
    "a FLOW of nothing": command_bytes(Type.FLOW, consumer_id=0, messagePermits=0),
    "stats of no consumer": command_bytes(Type.CONSUMER_STATS, consumer_id=9, request_id=1),
    "a namespace that is none": command_bytes(
        Type.GET_TOPICS_OF_NAMESPACE, namespace="public", request_id=1
    ),
}


@pytest.mark.parametrize("violation", BREAKING)
async def test_a_violation_closes_the_connection(client, violation):
    await client.stream.send_all(BREAKING[violation])
    await client.closed()


@pytest.mark.parametrize(
    "first", [command_bytes(Type.CONNECT), command_bytes(Type.LOOKUP, topic="t", request_id=1)]
)
async def test_first_command_is_a_connect_with_a_version(open_client, first):
    client = RawPulsar(await open_client("pulsar"))
    await client.stream.send_all(first)
    await client.closed()


async def test_commands_without_a_consumer_are_ignored(client):
    await client.flow(10, consumer_id=5)
    await client.send(Type.ACK, consumer_id=5, ack_type=0, request_id=3)
    await client.send(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=5)
    await client.send(Type.PONG)
    await client.send(Type.AUTH_RESPONSE)
    await client.silent()


async def test_transactions_are_refused_with_apaches_text(client):
    for kind in (
        Type.NEW_TXN,
        Type.ADD_PARTITION_TO_TXN,
        Type.ADD_SUBSCRIPTION_TO_TXN,
        Type.END_TXN,
        Type.END_TXN_ON_PARTITION,
        Type.END_TXN_ON_SUBSCRIPTION,
        Type.TC_CLIENT_CONNECT_REQUEST,
    ):
        code, text = await client.refused(kind)
        assert (code, text) == (ServerError.NotAllowedError, "Transactions are not enabled.")


async def test_closing_a_missing_object_succeeds_twice(client):
    for _ in range(2):
        await client.ask(Type.CLOSE_PRODUCER, Type.SUCCESS, producer_id=4)
        await client.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=4)


async def test_requests_and_refusals_are_counted(broker, client):
    def counted(family, label):
        return broker.metrics.number(family, "pulsar", label).value

    await client.produce()
    await client.put(entry(), entry())
    await client.refused(Type.SUBSCRIBE, topic=TOPIC, subscription="", subType=0, consumer_id=1)
    await client.send(Type.SEND, entry(marker_type=1), producer_id=0, sequence_id=2)
    await client.next(Type.SEND_ERROR)
    requests = {kind: counted("braidlog_requests", kind) for kind in ("PRODUCER", "SEND", "FLOW")}
    assert requests == {"PRODUCER": 1, "SEND": 3, "FLOW": 0}
    assert counted("braidlog_errors", "ProducerBusy") == 1
    assert counted("braidlog_errors", "NotAllowedError") == 1


async def test_a_stop_closes_producers_and_consumers_after_receipts(broker, client):
    await client.produce()
    await client.subscribe(consumer_id=3)
    await client.stream.send_all(command_bytes(Type.SEND, entry(), producer_id=0, sequence_id=0))
    await until(lambda: broker.topics.partition(NAME, 0).next_offset == 1)
    for connection in broker.connections:
        connection.drain()
    await client.next(Type.SEND_RECEIPT)
    closed = await client.next(Type.CLOSE_PRODUCER)
    assert (closed.producer_id, closed.request_id) == (0, 2**64 - 1)
    closed = await client.next(Type.CLOSE_CONSUMER)
    assert (closed.consumer_id, closed.request_id) == (3, 2**64 - 1)
    await client.closed()


async def test_an_ended_connection_releases_everything(broker, open_client, client):
    async with talking(open_client) as gone:
        await gone.produce(producer_name="p")
        await gone.subscribe()
        (topic,) = broker.topics.all()
        assert topic.layout_users == 2
    await until(lambda: topic.layout_users == 0)
    await client.produce(producer_name="p")
    await client.subscribe()


# Keepalive.


class FakeOutbox:
    def __init__(self):
        self.frames = []
        self.has_answers_room = True

    def put(self, parts):
        self.frames += parts


def session():
    broker = SimpleNamespace(
        metrics=Metrics(),
        authentication=SimpleNamespace(required=False),
        now_us=lambda: 0,
        version="1",
    )
    shared = SimpleNamespace(broker=broker, topic_lists=None, limits=PULSAR_LIMITS)
    connection = SimpleNamespace(protocol="pulsar", outbox=FakeOutbox(), end=lambda reason: None)
    return PulsarSession(
        served.PulsarClient(shared, connection, PulsarOptions())
    ), connection.outbox


def test_no_connect_by_the_first_tick_ends_the_connection():
    quiet, _ = session()
    assert quiet.on_deadline(100.0) == 100.0 + KEEPALIVE_S
    with pytest.raises(EndConnection):
        quiet.on_deadline(100.0 + KEEPALIVE_S)


async def test_silence_is_pinged_at_30_s_and_ended_at_60():
    quiet, outbox = session()
    quiet.client.machine.state = ConnectionState.CONNECTED
    quiet.on_deadline(0.0)
    assert outbox.frames == []
    assert quiet.on_deadline(30.0) == 60.0
    assert outbox.frames == [PING]
    with pytest.raises(EndConnection):
        quiet.on_deadline(60.0)


async def test_a_delayed_broker_declares_no_client_dead():
    quiet, outbox = session()
    quiet.client.machine.state = ConnectionState.CONNECTED
    quiet.on_deadline(0.0)
    quiet.on_deadline(30.0)
    assert quiet.on_deadline(75.0) == 105.0  # Late: bytes sent meanwhile may be unread.
    outbox.has_answers_room = False  # Reading stops until the disk has answered.
    assert quiet.on_deadline(105.0) == 135.0
    outbox.has_answers_room = True
    assert outbox.frames == [PING] * 3
    with pytest.raises(EndConnection):
        quiet.on_deadline(135.0)


async def test_any_command_is_a_sign_of_life():
    talking_one, outbox = session()
    talking_one.client.machine.state = ConnectionState.CONNECTED
    talking_one.on_deadline(0.0)
    for tick in range(1, 5):
        talking_one.on_deadline(30.0 * tick)
        talking_one.handle(memoryview(bytearray(answered("pong"))))
    assert outbox.frames == [PING] * 4


async def test_a_lookup_is_served_while_a_subscribe_waits(open_client, client, other):
    """A probe of a deaf client takes seconds; PING and LOOKUP do not wait for the probe."""
    await other.subscribe()
    await client.send(
        Type.SUBSCRIBE, topic=TOPIC, subscription="s", subType=0, consumer_id=0, request_id=1
    )
    await client.send(Type.PING)
    await client.send(Type.LOOKUP, topic=TOPIC, request_id=2)
    await client.next(Type.PONG)
    await client.next(Type.LOOKUP_RESPONSE)
    await other.next(Type.PING)
    await other.send(Type.PONG)
    error = await client.next(Type.ERROR)
    assert (error.error, error.request_id) == (ServerError.ConsumerBusy, 1)
