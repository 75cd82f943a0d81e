"""Text that is not UTF-8 is refused on arrival and leaves nothing behind; section 2."""

import pytest

from braidlog.protocols.pulsar.machine import FIELDS, Type
from braidlog.protocols.pulsar.text import not_text, text_fields
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    BaseCommand,
    CommandSubscribe,
    ServerError,
)
from tests.protocols.pulsar.talk import NAME, TOPIC, command_bytes

BAD = "ÿþ".encode()  # Replaced by invalid UTF-8 of the same length.
NOT_UTF8 = b"\xff\xfe\xff\xfe"
MARK = "ÿþ"
SCHEMA = {"name": "n", "type": 1, "schema_data": b"null"}

COMMANDS = [
    (Type.PRODUCER, {"topic": MARK, "producer_id": 0}),
    (Type.PRODUCER, {"topic": TOPIC, "producer_id": 0, "producer_name": MARK}),
    (Type.PRODUCER, {"topic": TOPIC, "producer_id": 0, "initial_subscription_name": MARK}),
    (Type.PRODUCER, {"topic": TOPIC, "producer_id": 0, "metadata": [{"key": "k", "value": MARK}]}),
    (Type.PRODUCER, {"topic": TOPIC, "producer_id": 0, "schema": {**SCHEMA, "name": MARK}}),
    (
        Type.PRODUCER,
        {
            "topic": TOPIC,
            "producer_id": 0,
            "schema": {**SCHEMA, "properties": [{"key": MARK, "value": "v"}]},
        },
    ),
    (Type.SUBSCRIBE, {"topic": MARK, "subscription": "s", "subType": 0, "consumer_id": 0}),
    (Type.SUBSCRIBE, {"topic": TOPIC, "subscription": MARK, "subType": 0, "consumer_id": 0}),
    (
        Type.SUBSCRIBE,
        {
            "topic": TOPIC,
            "subscription": "s",
            "subType": 0,
            "consumer_id": 0,
            "subscription_properties": [{"key": "k", "value": MARK}],
        },
    ),
    (
        Type.SUBSCRIBE,
        {
            "topic": TOPIC,
            "subscription": "s",
            "subType": 0,
            "consumer_id": 0,
            "consumer_name": MARK,
        },
    ),
    (Type.GET_TOPICS_OF_NAMESPACE, {"namespace": MARK}),
]
WITH_OWN_ANSWER = [
    (Type.LOOKUP, Type.LOOKUP_RESPONSE, {"topic": MARK}),
    (Type.LOOKUP, Type.LOOKUP_RESPONSE, {"topic": TOPIC, "advertised_listener_name": MARK}),
    (Type.PARTITIONED_METADATA, Type.PARTITIONED_METADATA_RESPONSE, {"topic": MARK}),
    (Type.GET_SCHEMA, Type.GET_SCHEMA_RESPONSE, {"topic": MARK}),
    (
        Type.GET_OR_CREATE_SCHEMA,
        Type.GET_OR_CREATE_SCHEMA_RESPONSE,
        {"topic": TOPIC, "schema": {**SCHEMA, "name": MARK}},
    ),
]


def broken(kind, fields):
    """Return the command with invalid UTF-8 instead of the mark."""
    frame = command_bytes(kind, request_id=7, **fields)
    assert BAD in frame
    return frame.replace(BAD, NOT_UTF8)


@pytest.mark.parametrize(("kind", "fields"), COMMANDS)
async def test_invalid_text_is_refused_and_leaves_no_trace(broker, client, kind, fields):
    await client.stream.send_all(broken(kind, fields))
    error = await client.next(Type.ERROR)
    assert (error.request_id, error.error) == (7, ServerError.NotAllowedError)
    assert "is not UTF-8 text" in error.message
    assert broker.topics.find(NAME) is None
    await client.produce()


@pytest.mark.parametrize(("kind", "answer", "fields"), WITH_OWN_ANSWER)
async def test_invalid_text_is_refused_by_the_commands_answer(broker, client, kind, answer, fields):
    await client.stream.send_all(broken(kind, fields))
    refused = await client.next(answer)
    code = (
        refused.error_code if "error_code" in refused.DESCRIPTOR.fields_by_name else refused.error
    )
    assert (refused.request_id, code) == (7, ServerError.NotAllowedError)
    assert broker.topics.find(NAME) is None


async def test_the_next_start_reads_the_stored_names(broker, client):
    await client.produce()
    for kind, fields in COMMANDS:
        await client.stream.send_all(broken(kind, fields))
        await client.next(Type.ERROR)
    await broker.durability.all_durable()
    broker.catalogue.state.writer.rewrite()
    assert broker.topics.get(NAME).meta.schemas == []


async def test_connect_with_broken_text_closes(open_client):
    stream = await open_client("pulsar")
    frame = command_bytes(Type.CONNECT, client_version=MARK, protocol_version=20)
    await stream.send_all(frame.replace(BAD, NOT_UTF8))
    assert await stream.receive_some() == b""


def test_every_served_command_is_checked():
    fields = text_fields(CommandSubscribe.DESCRIPTOR)
    names = {field.name for field in fields}
    assert {"topic", "subscription", "consumer_name", "metadata", "schema"} <= names
    for kind, field in FIELDS.items():
        text_fields(BaseCommand.DESCRIPTOR.fields_by_name[field].message_type)
        assert Type.Name(kind)


def test_valid_text_is_accepted():
    command = CommandSubscribe(topic="tøpic", subscription="s", subType=0, request_id=1)
    command.metadata.add(key="ключ", value="")
    assert not_text(command, text_fields(CommandSubscribe.DESCRIPTOR)) == ""


# Limits of a connection.


@pytest.mark.pulsar_limits(producers=2)
async def test_producers_above_a_connections_limit_are_refused(client):
    for number in range(2):
        await client.produce(producer_id=number)
    code, _ = await client.refused(Type.PRODUCER, topic=TOPIC, producer_id=2)
    assert code == ServerError.NotAllowedError
    await client.produce(producer_id=1)


@pytest.mark.pulsar_limits(consumers=1)
async def test_consumers_above_a_connections_limit_are_refused(client):
    await client.subscribe()
    code, _ = await client.refused(
        Type.SUBSCRIBE, topic=TOPIC, subscription="t", subType=0, consumer_id=1
    )
    assert code == ServerError.NotAllowedError


async def test_the_transaction_coordinator_is_found_so_that_it_can_refuse(client):
    topic = "persistent://pulsar/system/transaction_coordinator_assign"
    answer = await client.ask(
        Type.PARTITIONED_METADATA, Type.PARTITIONED_METADATA_RESPONSE, topic=topic
    )
    assert (answer.response, answer.partitions) == (0, 0)
    lookup = await client.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=topic)
    assert lookup.response == 1
    code, text = await client.refused(Type.TC_CLIENT_CONNECT_REQUEST, tc_id=0)
    assert (code, text) == (ServerError.NotAllowedError, "Transactions are not enabled.")
