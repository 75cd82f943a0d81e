"""No command bypasses the access check: each is refused with its error, and has no effect."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.protocols.pulsar import refusals
from braidlog.protocols.pulsar.machine import FIELDS, Type
from braidlog.protocols.pulsar.session import COMMANDS
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import BaseCommand, Schema, ServerError
from tests.broker.access.rules import Nothing
from tests.protocols.pulsar.talk import ID_EARLIEST, NAME, TOPIC, RawPulsar, entry

DENIED = ServerError.AuthorizationError
SCHEMA = {"name": "s", "schema_data": b"{}", "type": Schema.Type.Json}
FOR_ANYBODY = {Type.CONNECT, Type.PING, Type.PONG, Type.AUTH_RESPONSE}
# Commands that release the client's own objects, and commands that are always refused.
HARMLESS = {
    Type.CLOSE_PRODUCER,
    Type.CLOSE_CONSUMER,
    Type.WATCH_TOPIC_LIST_CLOSE,
    *refusals.HANDLERS,
}

# The fields of each command with a name, and the answer with an error.
SAMPLES = {
    Type.PARTITIONED_METADATA: ({"topic": TOPIC}, Type.PARTITIONED_METADATA_RESPONSE),
    Type.LOOKUP: ({"topic": TOPIC}, Type.LOOKUP_RESPONSE),
    Type.GET_TOPICS_OF_NAMESPACE: ({"namespace": "public/default"}, Type.ERROR),
    Type.WATCH_TOPIC_LIST: (
        {"namespace": "public/default", "watcher_id": 1, "topics_pattern": ".*"},
        Type.ERROR,
    ),
    Type.PRODUCER: ({"topic": TOPIC, "producer_id": 7}, Type.ERROR),
    Type.SUBSCRIBE: (
        {"topic": TOPIC, "subscription": "x", "subType": 0, "consumer_id": 7},
        Type.ERROR,
    ),
    Type.UNSUBSCRIBE: ({"consumer_id": 0}, Type.ERROR),
    Type.SEEK: ({"consumer_id": 0, "message_id": ID_EARLIEST}, Type.ERROR),
    Type.GET_LAST_MESSAGE_ID: ({"consumer_id": 0}, Type.ERROR),
    Type.CONSUMER_STATS: ({"consumer_id": 0}, Type.ERROR),
    Type.GET_SCHEMA: ({"topic": TOPIC}, Type.GET_SCHEMA_RESPONSE),
    Type.GET_OR_CREATE_SCHEMA: (
        {"topic": TOPIC, "schema": SCHEMA},
        Type.GET_OR_CREATE_SCHEMA_RESPONSE,
    ),
}

# Checked when their producer or consumer was opened.
CHECKED_AT_OPENING = {Type.SEND, Type.FLOW, Type.ACK, Type.REDELIVER_UNACKNOWLEDGED_MESSAGES}


@pytest.fixture
async def ready(client):
    """Return a client with a producer and a consumer."""
    await client.produce()
    await client.subscribe()
    return client


def test_each_command_has_a_sample_or_needs_no_permission():
    assert set(COMMANDS) | {Type.SEND} == set(FIELDS)
    assert set(SAMPLES) | CHECKED_AT_OPENING | FOR_ANYBODY | HARMLESS == set(FIELDS)
    for kind, served in COMMANDS.items():
        assert (served.action is None) == (kind in FOR_ANYBODY | HARMLESS), Type.Name(kind)


@pytest.mark.parametrize("kind", SAMPLES, ids=Type.Name)
async def test_a_command_that_is_not_allowed_is_refused(broker, ready, kind):
    rules = Nothing()
    await broker.durability.all_durable()  # So an earlier lazy write is not counted below.
    ticket = broker.durability.ticket
    broker.access = Access(rules)
    fields, answer = SAMPLES[kind]
    refused = await ready.ask(kind, answer, **fields)
    code = refused.error_code if answer in CODED else refused.error
    assert code == DENIED
    assert rules.actions == {COMMANDS[kind].action}
    assert broker.durability.ticket == ticket  # Nothing was written.


CODED = {Type.GET_SCHEMA_RESPONSE, Type.GET_OR_CREATE_SCHEMA_RESPONSE}


@pytest.mark.parametrize("kind", [Type.PRODUCER, Type.SUBSCRIBE], ids=Type.Name)
async def test_creating_a_topic_needs_its_own_permission(broker, client, kind):
    broker.access = Access(Nothing(COMMANDS[kind].action))
    fields, _ = SAMPLES[kind]
    code, text = await client.refused(kind, **fields)
    assert code == DENIED
    assert "may not create" in text
    assert broker.topics.find(NAME) is None


async def test_without_permission_there_is_no_producer(broker, ready):
    broker.access = Access(Nothing())
    await ready.refused(Type.PRODUCER, topic=TOPIC, producer_id=7)
    await ready.send(Type.SEND, entry(), producer_id=7, sequence_id=0)
    await ready.closed()


async def test_without_permission_there_is_no_consumer(broker, ready):
    broker.access = Access(Nothing())
    fields, _ = SAMPLES[Type.SUBSCRIBE]
    await ready.refused(Type.SUBSCRIBE, **fields)
    await ready.flow(10, consumer_id=7)
    await ready.send(
        Type.ACK, consumer_id=7, ack_type=1, message_id=[{"ledgerId": 1, "entryId": 0}]
    )
    await ready.send(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=7)
    await ready.silent()


async def test_a_dead_letter_producer_may_not_create_foreign_subscriptions(broker, ready):
    broker.access = Access(Nothing(Action.PRODUCE))
    code, _ = await ready.refused(
        Type.PRODUCER, topic=TOPIC, producer_id=7, initial_subscription_name="dlq"
    )
    assert code == DENIED
    assert broker.subscriptions.find(broker.topics.get(NAME), b"dlq") is None


BY_TOPIC = [kind for kind, (fields, _) in SAMPLES.items() if "topic" in fields]


@pytest.mark.parametrize("kind", BY_TOPIC, ids=Type.Name)
async def test_a_refusal_does_not_reveal_the_topics_existence(broker, client, kind):
    fields, answer = SAMPLES[kind]
    texts = []
    for makes in (True, False):
        broker.access = Access()
        if makes:
            await broker.topics.create(NAME, 1)
        else:
            await broker.topics.delete(NAME)
        broker.access = Access(Nothing())
        refused = await client.ask(kind, answer, **fields)
        refused.ClearField("request_id")
        texts.append(refused)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("broker", [{"access.required": "true"}], indirect=True, ids=[""])
@pytest.mark.parametrize("kind", sorted(set(FIELDS) - {Type.CONNECT}), ids=Type.Name)
async def test_before_a_login_no_command_is_served(broker, open_client, kind):
    rules = Nothing()
    broker.access = Access(rules)
    stranger = RawPulsar(await open_client("pulsar"))
    fields, _ = SAMPLES.get(kind, ({}, None))
    if kind == Type.SEND:
        await stranger.send(kind, entry(), producer_id=0, sequence_id=0)
    else:
        known = BaseCommand.DESCRIPTOR.fields_by_name[FIELDS[kind]].message_type.fields_by_name
        numbered = {"request_id": 1} if "request_id" in known else {}
        await stranger.send(kind, **numbered, **fields)
    await stranger.stream.send_eof()  # A PING alone does not end the connection.
    while await stranger.frame() is not None:
        pass  # The answer before the end is Pulsar's own error.
    assert not rules.asked
    assert not broker.topics.all()


async def test_a_topic_is_created_for_its_client_in_a_producers_lane_too(client, makers):
    for producer_id, topic in enumerate(("one", "two")):
        await client.produce(f"persistent://public/default/{topic}", producer_id)
    assert makers == [("anonymous", "pulsar 127.0.0.1")] * 2
