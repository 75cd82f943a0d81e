"""Schemas: GET_SCHEMA, GET_OR_CREATE_SCHEMA, and those that producers and consumers send.

Definitions are kept and returned byte for byte; the broker decides which may follow which.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import Action
from braidlog.broker.cluster.peers import Asker
from braidlog.broker.errors import NotOwner, TopicNotFound
from braidlog.broker.topics import schemas as stored_schemas
from braidlog.broker.topics.schemas import (
    IncompatibleSchema,
    SchemaMeta,
    latest_version,
    numbered,
    readable,
    version_of,
)
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.errors import CommandRefused
from braidlog.protocols.pulsar.names import is_non_persistent
from braidlog.protocols.pulsar.resolving import non_persistent_channel, resolve
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetSchema,
    Schema,
    ServerError,
)

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.pulsar.client import PulsarClient
    from braidlog.storage.metadata.names import TopicName

LANE: Final = "schema"
VERSION: Final = struct.Struct(">q")
NO_VERSION: Final = b""
NO_SUCH_VERSION: Final = -1
SchemaVersion = tuple[int, SchemaMeta] | None
# Values of Schema.Type without a definition: plain bytes, and "the schema that the topic has".
WITHOUT_DEFINITION: Final = frozenset({Schema.Type.Value("None"), Schema.Type.AutoConsume})


def of_producer(client: PulsarClient, topic: Topic, schema: Schema) -> tuple[bytes, int]:
    """The version that a producer's messages carry, and the ticket after which it is on disk.

    Raises CommandRefused (IncompatibleSchema), StorageFull, StorageFailed.
    """
    if _is_without_definition(schema):
        check_needed(topic)
        return NO_VERSION, 0
    stored = _stored(schema)
    try:
        if not topic.client_limits.adds_schemas and version_of(topic, stored) is None:
            text = "Schema not found and schema auto updating is disabled."  # Apache's words.
            raise IncompatibleSchema(text)
        version, ticket = client.broker.schemas.add(topic, stored)
    except IncompatibleSchema as error:
        raise CommandRefused(ServerError.IncompatibleSchema, str(error)) from None
    return VERSION.pack(version), ticket


def check_needed(topic: Topic) -> None:
    """Refuse a producer without a schema if the topic's settings demand one. Raises
    CommandRefused.
    """
    try:
        stored_schemas.check_needed(topic)
    except IncompatibleSchema as error:
        raise CommandRefused(ServerError.IncompatibleSchema, str(error)) from None


def _is_without_definition(schema: Schema) -> bool:
    """Return True for plain bytes and for "the topic's schema". Bytes with a name or properties
    (Go's `NewBytesSchema`) are a schema of their own, as in Apache.
    """
    if schema.type == Schema.Type.Value("None") and (schema.name or schema.properties):
        return False
    return schema.type in WITHOUT_DEFINITION


def of_consumer(client: PulsarClient, topic: Topic, schema: Schema) -> int:
    """Check a consumer's schema, and store the first schema of a topic. Return a ticket.

    Raises CommandRefused (IncompatibleSchema), StorageFull, StorageFailed.
    """
    if latest_version(topic.meta.schemas) is None:
        return of_producer(client, topic, schema)[1]
    if not _is_without_definition(schema):
        try:
            readable(topic, _stored(schema))
        except IncompatibleSchema as error:
            raise CommandRefused(ServerError.IncompatibleSchema, str(error)) from None
    return 0


def get_schema(client: PulsarClient, command: CommandGetSchema) -> None:
    """Answer with the schema of a version, or the latest. Clients ask any broker."""
    with client.refusing(command.request_id, messages.schema_failed):
        name, _ = resolve(client, Action.DESCRIBE, command.topic)
        _wanted(command)
        if client.broker.placement.is_here(name):
            client.outbox.put([_answer_of(command, name, _here(client, command, name))])
            return
        work = partial(_ask_owner, client, command, name)
        client.lanes.in_order((LANE, command.request_id), work)


def _wanted(command: CommandGetSchema) -> int | None:
    """The version that is asked for, None for the latest. Raises CommandRefused."""
    if not command.HasField("schema_version"):
        return None
    if not command.schema_version:
        raise CommandRefused(ServerError.IncompatibleSchema, "Empty schema version")
    if len(command.schema_version) != VERSION.size:
        return NO_SUCH_VERSION
    return int(VERSION.unpack(command.schema_version)[0])


def _here(client: PulsarClient, command: CommandGetSchema, name: TopicName) -> SchemaVersion:
    topic = client.broker.topics.find(name)
    schemas: Sequence[SchemaMeta] = topic.meta.schemas if topic is not None else ()
    if is_non_persistent(command.topic):
        schemas = client.broker.non_persistent.schemas(name)
    return numbered(schemas, _wanted(command))


async def _ask_owner(client: PulsarClient, command: CommandGetSchema, name: TopicName) -> None:
    """Ask the topic's owner, which has the schemas; wait for an owner while the topic moves."""
    tries = client.broker.peers.tries(client.shared.limits.find_s)
    with client.refusing(command.request_id, messages.schema_failed):
        while True:
            try:
                schema = await _there_or_here(client, command, name)
                client.outbox.put([_answer_of(command, name, schema)])
                return
            except NotOwner as error:
                if not await tries.again(error):
                    raise


async def _there_or_here(
    client: PulsarClient, command: CommandGetSchema, name: TopicName
) -> SchemaVersion:
    """Raises TopicNotFound; NotOwner if no broker can answer."""
    broker, connection = client.broker, client.connection
    owner = broker.placement.owner(name)
    if owner is None:
        return _here(client, command, name)
    asker, non_persistent = (
        Asker(connection.principal, connection.at),
        is_non_persistent(command.topic),
    )
    version = _wanted(command)
    return await broker.peers.schema(
        owner.node_id, asker, name, version=version, non_persistent=non_persistent
    )


def _answer_of(command: CommandGetSchema, name: TopicName, schema_found: SchemaVersion) -> bytes:
    """Raises TopicNotFound if there is no such schema."""
    if schema_found is None:
        raise TopicNotFound(f"Topic not found or no-schema {command.topic}")
    number, meta = schema_found
    schema = Schema(name=name.full, schema_data=meta.data, type=Schema.Type.Name(meta.type))
    for key, value in meta.properties.items():
        schema.properties.add(key=key, value=value)
    return messages.schema(command.request_id, schema, VERSION.pack(number))


def get_or_create_schema(client: PulsarClient, command: CommandGetOrCreateSchema) -> None:
    """Register a schema as a producer does, for an existing topic."""
    with client.refusing(command.request_id, messages.schema_version_failed):
        topic = _existing(client, command.topic)
        version, ticket = of_producer(client, topic, command.schema)
        client.outbox.answer([messages.schema_version(command.request_id, version)], ticket)


def _existing(client: PulsarClient, text: str) -> Topic:
    """Return the topic of a name, without creating it. Raises the errors of resolving."""
    if is_non_persistent(text):
        return non_persistent_channel(client, Action.PRODUCE, text, make=False).topic
    name, _ = resolve(client, Action.PRODUCE, text)
    return client.broker.topics.get(name)


def _stored(schema: Schema) -> SchemaMeta:
    properties = {item.key: item.value for item in schema.properties}
    return SchemaMeta(schema.type, schema.name, schema.schema_data, properties)
