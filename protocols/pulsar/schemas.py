"""Schemas: GET_SCHEMA, GET_OR_CREATE_SCHEMA, and those that producers and consumers bring.

Definitions are kept and returned byte for byte; which may follow which is the broker's business.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.access.rights import Action
from broker.errors import BrokerError, TopicNotFound
from broker.topics.schemas import (
    IncompatibleSchema,
    SchemaMeta,
    compatible,
    latest_version,
    schema_of,
)
from protocols.pulsar import messages
from protocols.pulsar.errors import Refused, refusal
from protocols.pulsar.names import is_live
from protocols.pulsar.resolving import live_topic, resolve
from storage.codecs.pb.PulsarApi_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetSchema,
    Schema,
    ServerError,
)

if TYPE_CHECKING:
    from broker.topics.topic import Topic
    from protocols.pulsar.client import Client

VERSION: Final = struct.Struct(">q")
NO_VERSION: Final = b""
# Values of Schema.Type without a definition: plain bytes, and "the schema that the topic has".
WITHOUT_DEFINITION: Final = frozenset({Schema.Type.Value("None"), Schema.Type.AutoConsume})


def of_producer(client: Client, topic: Topic, schema: Schema) -> tuple[bytes, int]:
    """The version that a producer's messages carry, and the ticket after which it is on disk.

    Raises Refused (IncompatibleSchema), StorageFull, StorageFailed.
    """
    if schema.type in WITHOUT_DEFINITION:
        return NO_VERSION, 0
    try:
        version, ticket = client.broker.schemas.add(topic, _stored(schema))
    except IncompatibleSchema as error:
        raise Refused(ServerError.IncompatibleSchema, str(error)) from None
    return VERSION.pack(version), ticket


def of_consumer(client: Client, topic: Topic, schema: Schema) -> int:
    """Check a consumer's schema; the first one of a topic is kept. Returns a ticket.

    Raises Refused (IncompatibleSchema), StorageFull, StorageFailed.
    """
    if latest_version(topic.meta.schemas) is None:
        return of_producer(client, topic, schema)[1]
    if schema.type not in WITHOUT_DEFINITION:
        try:
            compatible(topic, _stored(schema))
        except IncompatibleSchema as error:
            raise Refused(ServerError.IncompatibleSchema, str(error)) from None
    return 0


def get_schema(client: Client, command: CommandGetSchema) -> None:
    """The schema of a version, or the latest."""
    try:
        found, version = _find(client, command)
    except (BrokerError, Refused) as error:
        refused = refusal(error)
        answer = messages.schema_failed(command.request_id, refused.code, refused.text)
    else:
        answer = messages.schema(command.request_id, found, version)
    client.outbox.put([answer])


def _find(client: Client, command: CommandGetSchema) -> tuple[Schema, bytes]:
    name, _ = resolve(client, Action.DESCRIBE, command.topic)
    topic = client.broker.topics.find(name)
    schemas: Sequence[SchemaMeta] = topic.meta.schemas if topic is not None else ()
    if is_live(command.topic):
        schemas = client.broker.live.schemas(name)
    number = latest_version(schemas)
    if command.HasField("schema_version"):
        if not command.schema_version:
            raise Refused(ServerError.IncompatibleSchema, "Empty schema version")
        is_number = len(command.schema_version) == VERSION.size
        number = VERSION.unpack(command.schema_version)[0] if is_number else None
    meta = None if number is None else schema_of(schemas, number)
    if number is None or meta is None:
        raise TopicNotFound(f"Topic not found or no-schema {command.topic}")
    found = Schema(name=name.full, schema_data=meta.data, type=Schema.Type.Name(meta.type))
    for key, value in meta.properties.items():
        found.properties.add(key=key, value=value)
    return found, VERSION.pack(number)


def get_or_create_schema(client: Client, command: CommandGetOrCreateSchema) -> None:
    """Like a producer's schema, for a topic that is there."""
    try:
        topic = _there(client, command.topic)
        version, ticket = of_producer(client, topic, command.schema)
    except (BrokerError, Refused) as error:
        refused = refusal(error)
        answer = messages.schema_version_failed(command.request_id, refused.code, refused.text)
        client.outbox.put([answer])
    else:
        client.outbox.answer([messages.schema_version(command.request_id, version)], ticket)


def _there(client: Client, text: str) -> Topic:
    """The topic that a producer means, which is not made. Raises what resolving raises."""
    if is_live(text):
        return live_topic(client, Action.PRODUCE, text, make=False)
    name, _ = resolve(client, Action.PRODUCE, text)
    return client.broker.topics.get(name)


def _stored(schema: Schema) -> SchemaMeta:
    properties = {item.key: item.value for item in schema.properties}
    return SchemaMeta(schema.type, schema.name, schema.schema_data, properties)
