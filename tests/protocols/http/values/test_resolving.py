"""The schema of a request: its own, the topic's, or none."""

import json

import pytest

from braidlog.broker.topics.schemas import SchemaMeta
from braidlog.protocols.http.errors import RequestRefused
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.primitives import BadValue
from braidlog.protocols.http.values.resolving import CODECS_MAX, SchemaFields, SchemaRegistry
from braidlog.protocols.http.values.values import join_pair
from braidlog.storage.metadata.names import TopicName

AVRO_INT = b'"int"'


@pytest.fixture
async def topic(broker):
    return await broker.topics.create(TopicName("public", "default", "t"), 1)


@pytest.fixture
def registry(broker):
    return SchemaRegistry(broker)


@pytest.fixture
def add(broker, topic):
    """Return `add`: `add(type, data)` registers a version by another client."""

    def add(kind, data=b"", **properties):
        return broker.schemas.add(topic, SchemaMeta(types.NUMBERS[kind], "", data, properties))[0]

    return add


def json_body(**fields):
    return json.dumps(fields).encode()


async def test_the_default_schema_is_the_topics_latest(topic, registry, add):
    assert registry.choose(topic, SchemaFields()).version is None
    add("STRING")
    chosen = registry.choose(topic, SchemaFields())
    assert (chosen.version, chosen.codec.type) == (0, "STRING")


async def test_a_type_without_definition_uses_the_newest_of_that_type(topic, registry, add):
    topic.meta.settings["schema_compatibility"] = "always_compatible"
    add("AVRO", AVRO_INT)
    newest = add("AVRO", b'"long"')
    add("STRING")
    chosen = registry.choose(topic, SchemaFields(type="avro"))
    assert (chosen.version, chosen.codec.type) == (newest, "AVRO")
    with pytest.raises(RequestRefused, match="none of that type"):
        registry.choose(topic, SchemaFields(type="json"))


@pytest.mark.parametrize("name", ["BYTES", "NONE"])
async def test_an_empty_schema_is_not_registered(topic, registry, name):
    chosen = registry.choose(topic, SchemaFields(value=json_body(type=name)))
    assert (chosen.codec.type, chosen.version, chosen.new) == (name, None, None)
    assert await registry.register(topic, chosen) == (None, 0)
    assert not topic.meta.schemas


async def test_a_second_different_schema_is_refused(topic, registry, add):
    chosen = registry.choose(topic, SchemaFields(type="STRING"))
    add("INT32")  # Meanwhile.
    with pytest.raises(RequestRefused, match="Incompatible schema"):
        await registry.register(topic, chosen)
    assert len(topic.meta.schemas) == 1


async def test_an_unreadable_version_is_refused_each_time(topic, registry, add):
    add("KEY_VALUE", b"no pair")
    for _ in range(2):
        with pytest.raises(BadValue, match="a pair is cut short"):
            registry.codec(topic, 0)
        with pytest.raises(RequestRefused, match="a pair is cut short"):
            registry.choose(topic, SchemaFields(version=0))


async def test_parsed_schemas_are_cached_up_to_a_limit(topic, registry, add):
    for number in range(CODECS_MAX + 1):
        add("KEY_VALUE", join_pair(b"", b""), **{"value.schema.type": "INT32", "n": str(number)})
    first = registry.codec(topic, 0)
    assert registry.codec(topic, 0) is first
    for version in range(1, CODECS_MAX + 1):
        assert registry.codec(topic, version).value.write(b"1") == b"\0\0\0\1"
    again = registry.codec(topic, 0)
    assert again is not first and again == first
    assert registry.codec(topic, CODECS_MAX) is registry.codec(topic, CODECS_MAX)
