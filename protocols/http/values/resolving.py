"""Resolves the schema of a request (rest.md 4.2), in the registry that Pulsar's clients use.

Knows topics and their schemas, no record and no route.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from braidlog.broker.config.wording import explain
from braidlog.broker.topics.schemas import (
    IncompatibleSchema,
    SchemaMeta,
    compatible,
    in_force,
    latest_version,
    schema_of,
    version_of,
)
from braidlog.protocols.http.errors import (
    BAD_KEY_SCHEMA,
    BAD_VALUE_SCHEMA,
    PAIR_SCHEMA_MISSING,
    VALUE_SCHEMA_MISSING,
    RequestRefused,
    WireCode,
)
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.definitions import SchemaInfo, known_type, pair_info, read_info
from braidlog.protocols.http.values.primitives import BadValue
from braidlog.protocols.http.values.values import TEXT, RecordCodec, record_codec, value_codec

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic

CODECS_MAX = 200  # Parsed schemas in the cache; an Avro definition of some KiB takes some 100 KiB.
NO_SCHEMA = RecordCodec(types.NONE, TEXT, TEXT)


@dataclass(slots=True, frozen=True)
class SchemaFields:
    """The schema fields of a request, from either spelling."""

    type: str | None = None
    version: int | None = None
    key: bytes | None = None  # JSON as received.
    value: bytes | None = None


@dataclass(slots=True, frozen=True)
class Chosen:
    """The schema for a request; `version` is None for no schema, or for a schema not registered
    yet.
    """

    codec: RecordCodec
    version: int | None = None
    new: SchemaMeta | None = None


class SchemaRegistry:
    """The parsed schemas of a broker's topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._codecs: OrderedDict[tuple[int, int], RecordCodec | BadValue] = OrderedDict()

    def codec(self, topic: Topic, version: int) -> RecordCodec:
        """Return the codec for records of the version. Raises BadValue for an unreadable schema."""
        key = (topic.meta.topic_id, version)
        known_codec = self._codecs.get(key)
        if known_codec is None:
            known_codec = self._codecs[key] = self._parsed(topic, version)
            if len(self._codecs) > CODECS_MAX:
                self._codecs.popitem(last=False)
        else:
            self._codecs.move_to_end(key)
        if isinstance(known_codec, BadValue):
            raise BadValue(str(known_codec))
        return known_codec

    def _parsed(self, topic: Topic, version: int) -> RecordCodec | BadValue:
        meta = schema_of(topic.meta.schemas, version)
        if meta is None:
            return BadValue(f"{topic.name} has no schema version {version}")
        try:
            return record_codec(types.name_of(meta.type), meta.data, meta.properties)
        except BadValue as error:
            return error

    def choose(self, topic: Topic, fields: SchemaFields) -> Chosen:
        """Choose the schema of a request, without registering it. Raises RequestRefused."""
        if fields.version is not None and fields.version >= 0:
            return self._of_version(topic, fields.version)
        try:
            name = None if fields.type is None else known_type(fields.type)
        except BadValue as error:
            raise RequestRefused(BAD_VALUE_SCHEMA, f"schema_type: {error}") from None
        if name == types.KEY_VALUE or fields.key is not None:
            return self._of_pair(topic, fields)
        if fields.value is not None:
            return self._of_value(topic, name, fields.value)
        if name in types.WITH_DEFINITION:
            return self._latest(topic, name)
        if name in types.WITHOUT_SCHEMA:
            return Chosen(RecordCodec(name, TEXT, value_codec(name, b"")))
        if name is not None:
            return self._of_info(topic, SchemaInfo(name, b""), BAD_VALUE_SCHEMA)
        latest = latest_version(topic.meta.schemas)
        if latest is not None:
            return self._of_version(topic, latest)
        return Chosen(NO_SCHEMA)

    async def register(self, topic: Topic, chosen: Chosen) -> tuple[int | None, int]:
        """Return the version that records of this schema carry, and the ticket after which the
        schema is on disk.

        Raises RequestRefused if another client's schema came first, StorageFull, StorageFailed.
        """
        if chosen.new is None:
            return chosen.version, 0
        try:
            return self._broker.schemas.add(topic, chosen.new)
        except IncompatibleSchema as error:
            raise RequestRefused(BAD_VALUE_SCHEMA, str(error)) from None

    def _of_version(self, topic: Topic, version: int) -> Chosen:
        try:
            return Chosen(self.codec(topic, version), version)
        except BadValue as error:
            raise RequestRefused(BAD_VALUE_SCHEMA, str(error)) from None

    def _latest(self, topic: Topic, name: str) -> Chosen:
        """Return the newest schema of a type that needs a definition."""
        schemas = topic.meta.schemas
        for version in reversed(in_force(schemas)):
            if schemas[version].type == types.NUMBERS[name]:
                return self._of_version(topic, version)
        message = f"schema type {name} needs a value_schema: {topic.name} has none of that type"
        raise RequestRefused(VALUE_SCHEMA_MISSING, message)

    def _of_pair(self, topic: Topic, fields: SchemaFields) -> Chosen:
        if fields.key is None or fields.value is None:
            missing = "key_schema" if fields.key is None else "value_schema"
            raise RequestRefused(PAIR_SCHEMA_MISSING, f"KEY_VALUE needs a {missing} too")
        key = _read(fields.key, None, "key_schema", BAD_KEY_SCHEMA)
        value = _read(fields.value, None, "value_schema", BAD_VALUE_SCHEMA)
        return self._of_info(topic, pair_info(key, value), BAD_VALUE_SCHEMA)

    def _of_value(self, topic: Topic, name: str | None, value: bytes) -> Chosen:
        info = _read(value, name, "value_schema", BAD_VALUE_SCHEMA)
        if name is not None and info.type != name:
            message = f"value_schema is of type {info.type}, schema_type says {name}"
            raise RequestRefused(BAD_VALUE_SCHEMA, message)
        if info.type in types.WITHOUT_SCHEMA:
            return Chosen(RecordCodec(info.type, TEXT, value_codec(info.type, b"")))
        return self._of_info(topic, info, BAD_VALUE_SCHEMA)

    def _of_info(self, topic: Topic, info: SchemaInfo, wire: WireCode) -> Chosen:
        meta = SchemaMeta(types.NUMBERS[info.type], info.name, info.definition, info.properties)
        version = version_of(topic, meta)
        try:
            if version is not None:
                return Chosen(self.codec(topic, version), version)
            compatible(topic, meta)
            return Chosen(record_codec(info.type, info.definition, info.properties), None, meta)
        except (BadValue, IncompatibleSchema) as error:
            raise RequestRefused(wire, str(error)) from None


def _read(raw: bytes, wanted: str | None, field: str, wire: WireCode) -> SchemaInfo:
    try:
        return read_info(raw, wanted)
    except (BadValue, msgspec.DecodeError) as error:
        raise RequestRefused(wire, f"{field}: {explain(error)}") from None
