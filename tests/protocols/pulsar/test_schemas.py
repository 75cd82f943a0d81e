"""Schemas: stored, compared by type, returned."""

import pytest

from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.errors import CommandRefused
from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.protocols.pulsar.golden import answered, taken_apart
from tests.protocols.pulsar.talk import NAME, TOPIC

STRING, JSON, AVRO, AUTO_CONSUME = 1, 2, 4, 21


EMPTY = b'{"type": "record", "name": "R", "fields": []}'


def definition(name):
    """Return a definition that may follow all others of its kind."""
    return b'{ "type":"record", "name":"%s", "fields":[] }' % name.encode()


def schema(kind=JSON, data=EMPTY, name="JSON"):
    return {
        "name": name,
        "type": kind,
        "schema_data": data,
        "properties": [{"key": "p", "value": "1"}],
    }


def version(number):
    return number.to_bytes(8, "big")


async def get(client, **fields):
    return await client.ask(Type.GET_SCHEMA, Type.GET_SCHEMA_RESPONSE, topic=TOPIC, **fields)


async def test_schema_is_kept_byte_for_byte_under_the_topics_name(client):
    success = await client.produce(schema=schema(data=definition("R")))
    assert success.schema_version == version(0)
    answer = await get(client)
    assert answer.schema.schema_data == definition("R")
    assert answer.schema.name == "public/default/t"
    assert answer.schema.type == JSON
    assert [(item.key, item.value) for item in answer.schema.properties] == [("p", "1")]
    assert answer.schema_version == version(0)


async def test_versions(client):
    versions = [
        (
            await client.produce(producer_id=number, schema=schema(data=definition(data)))
        ).schema_version
        for number, data in enumerate("ababc")
    ]
    assert versions == [version(number) for number in (0, 1, 0, 1, 2)]
    assert (await get(client)).schema.schema_data == definition("c")
    assert (await get(client, schema_version=version(1))).schema.schema_data == definition("b")


async def test_versions_survive_a_read_of_the_catalogue(broker, client):
    await client.produce(schema=schema())
    (topic,) = broker.topics.all()
    assert [schema.data for schema in broker.catalogue.state.topic(topic.name).schemas] == [EMPTY]


async def test_another_type_is_incompatible_and_no_schema_is_compatible(client):
    await client.produce(schema=schema())
    code, _ = await client.refused(Type.PRODUCER, topic=TOPIC, producer_id=1, schema=schema(STRING))
    assert code == ServerError.IncompatibleSchema
    code, _ = await client.refused(
        Type.SUBSCRIBE,
        topic=TOPIC,
        subscription="s",
        subType=0,
        consumer_id=0,
        schema=schema(AVRO),
    )
    assert code == ServerError.IncompatibleSchema
    assert (await client.produce(producer_id=1)).schema_version == b""
    await client.subscribe(schema=schema(AUTO_CONSUME))
    await client.subscribe(consumer_id=1, subscription="t", schema=schema(data=definition("S")))


async def test_the_first_consumer_registers_the_schema_too(client):
    await client.subscribe(schema=schema())
    assert (await get(client)).schema.schema_data == EMPTY


@pytest.mark.parametrize("fields", [{}, {"schema_version": version(3)}, {"schema_version": b"x"}])
async def test_a_missing_schema_is_not_found(client, fields):
    answer = await get(client, **fields)
    recorded, _ = taken_apart(answered("get_schema_response_none"))
    assert answer.error_code == recorded.getSchemaResponse.error_code
    assert answer.error_message.startswith("Topic not found or no-schema persistent://")


async def test_empty_version_is_incompatible(client):
    await client.produce(schema=schema())
    answer = await get(client, schema_version=b"")
    assert answer.error_code == ServerError.IncompatibleSchema


async def test_get_or_create(client):
    async def ask(topic):
        return await client.ask(
            Type.GET_OR_CREATE_SCHEMA,
            Type.GET_OR_CREATE_SCHEMA_RESPONSE,
            topic=topic,
            schema=schema(data=definition("n")),
        )

    assert (await ask(TOPIC)).error_code == ServerError.TopicNotFound
    await client.produce(schema=schema())
    assert (await ask(TOPIC)).schema_version == version(1)


def record(kind):
    return b'{"type":"record","name":"R","fields":[{"name":"x","type":"%s"}]}' % kind.encode()


@pytest.mark.parametrize("kind", [JSON, AVRO])
async def test_changed_field_types_and_invalid_definitions_are_refused(client, kind):
    await client.produce(schema=schema(kind, record("int")))
    for data in (record("string"), b"no definition"):
        code, text = await client.refused(
            Type.PRODUCER, topic=TOPIC, producer_id=1, schema=schema(kind, data)
        )
        assert code == ServerError.IncompatibleSchema, text
    assert (await get(client)).schema_version == version(0)


async def test_the_topics_setting_decides_about_a_new_schema(broker, client):
    await client.produce(schema=schema(data=record("int")))
    await broker.topics.alter_settings(NAME, {"schema_compatibility": "backward"})
    success = await client.produce(producer_id=1, schema=schema(data=record("long")))
    assert success.schema_version == version(1)
    code, _ = await client.refused(
        Type.PRODUCER, topic=TOPIC, producer_id=2, schema=schema(data=record("boolean"))
    )
    assert code == ServerError.IncompatibleSchema


def fields(**types):
    named = ",".join(f'{{"name":"{name}","type":"{kind}"}}' for name, kind in types.items())
    return f'{{"type":"record","name":"R","fields":[{named}]}}'.encode()


@pytest.mark.parametrize("strategy", ["full", "forward", "forward_transitive"])
async def test_a_consumers_schema_must_only_read_written_data(broker, client, strategy):
    await client.produce(schema=schema(data=fields(x="int", y="int")))
    await broker.topics.alter_settings(NAME, {"schema_compatibility": strategy})
    await client.subscribe(schema=schema(data=fields(x="int")))  # An older program, or a view.
    subscribe = {"topic": TOPIC, "subscription": "other", "subType": 0, "consumer_id": 1}
    unreadable = schema(data=fields(x="int", y="int", z="int"))
    code, text = await client.refused(Type.SUBSCRIBE, **subscribe, schema=unreadable)
    assert code == ServerError.IncompatibleSchema, text
    if strategy == "full":  # The consumers of the last schema must read a producer's schema, too.
        new = {"topic": TOPIC, "producer_id": 1, "schema": schema(data=fields(x="int"))}
        assert (await client.refused(Type.PRODUCER, **new))[0] == ServerError.IncompatibleSchema


def test_a_refusal_may_quote_invalid_text():
    """JSON can hold half a surrogate pair, which no text of an answer can."""
    refused = CommandRefused(ServerError.IncompatibleSchema, "not an Avro schema: \ud800ing")
    assert b"\\ud800ing" in messages.error(1, refused.code, refused.text)


async def test_bytes_with_a_name_are_a_schema_as_in_apache(client):
    """Go's `NewBytesSchema` has a name and properties."""
    schema = {"name": "bytes", "schema_data": b"", "type": 0}
    answer = await client.produce(schema=schema)
    assert answer.schema_version == bytes(8)
    schema_answer = await client.ask(Type.GET_SCHEMA, Type.GET_SCHEMA_RESPONSE, topic=TOPIC)
    assert schema_answer.HasField("schema") and schema_answer.schema.type == 0
    assert (
        await client.produce(producer_id=1, schema={**schema, "name": ""})
    ).schema_version == b""
