"""Converts keys and values by their schema: from the JSON of a request to stored bytes, and back.

A `ValueCodec` is for a key or a value; a `RecordCodec` has both, as in a schema version of a topic.
Knows no topic and no registry.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec

from braidlog.broker.config.wording import explain
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.jsontext import compact, is_deep, unescaped
from braidlog.protocols.http.values.primitives import PRIMITIVES, BadValue, Json, Primitive

if TYPE_CHECKING:
    from braidlog.protocols.http.values.avro import AvroCodec

SIZE = struct.Struct(">i")  # The size of a part of an INLINE pair; -1: null.

KEY_TYPE, VALUE_TYPE = "key.schema.type", "value.schema.type"
PAIR_ENCODING, SEPARATED = "kv.encoding.type", "SEPARATED"


class NotFromJson(BadValue):
    """Values of this type cannot be given as JSON."""


class ValueCodec(Protocol):
    """Converts keys or values of a schema. `write` and `read` raise BadValue."""

    @property
    def is_slow(self) -> bool:
        """True if a value takes tens of microseconds or more: too slow for the event loop."""

    def write(self, text: bytes) -> bytes:
        """Return the stored bytes of a value given as JSON text other than null."""

    def read(self, data: bytes) -> Json:
        """Return the value in a form that `msgspec` writes as JSON."""


@dataclass(slots=True, frozen=True)
class PrimitiveCodec:
    """A primitive type of Pulsar."""

    primitive: Primitive
    is_slow: ClassVar[bool] = False

    def write(self, text: bytes) -> bytes:
        """See ValueCodec."""
        return self.primitive.write(_parse(text))

    def read(self, data: bytes) -> Json:
        """See ValueCodec."""
        return self.primitive.read(data)


@dataclass(slots=True, frozen=True)
class JsonCodec:
    """JSON: the client's own text, unchanged."""

    is_slow: ClassVar[bool] = False

    def write(self, text: bytes) -> bytes:
        """See ValueCodec."""
        return text.strip()

    def read(self, data: bytes) -> Json:
        """See ValueCodec."""
        try:
            data.decode()
            raw = msgspec.json.decode(data, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadValue(explain(error)) from None
        if is_deep(data):
            raise BadValue("JSON that is nested too deeply")
        return raw


@dataclass(slots=True, frozen=True)
class AvroValueCodec:
    """Avro, in Avro's JSON encoding."""

    avro: AvroCodec
    is_slow: ClassVar[bool] = True

    def write(self, text: bytes) -> bytes:
        """See ValueCodec."""
        return self.avro.write(text)

    def read(self, data: bytes) -> Json:
        """See ValueCodec."""
        return msgspec.Raw(self.avro.read(data))


@dataclass(slots=True, frozen=True)
class TextCodec:
    """No schema: a string is stored as its text, other JSON as its text without blanks."""

    is_slow: ClassVar[bool] = False

    def write(self, text: bytes) -> bytes:
        """See ValueCodec."""
        plain = unescaped(text)  # Most texts, without an object for each.
        if plain is not None:
            return plain
        value = _parse(text) if text.lstrip()[:1] == b'"' else None
        return value.encode() if isinstance(value, str) else compact(text)

    def read(self, data: bytes) -> Json:
        """See ValueCodec."""
        return PRIMITIVES[types.STRING].read(data)


@dataclass(slots=True, frozen=True)
class OpaqueCodec:
    """A type that JSON cannot express."""

    name: str
    is_slow: ClassVar[bool] = False

    def write(self, text: bytes) -> bytes:
        """See ValueCodec."""
        raise NotFromJson(f"{self.name} values cannot be given as JSON")

    def read(self, data: bytes) -> Json:
        """See ValueCodec."""
        raise BadValue(f"{self.name} has no JSON form")


TEXT = TextCodec()


@dataclass(slots=True, frozen=True)
class RecordCodec:
    """Keys and values of a schema, or without a schema (`type` is NONE or BYTES)."""

    type: str
    key: ValueCodec
    value: ValueCodec
    is_inline: bool = False  # KEY_VALUE with both parts in the payload.

    @property
    def is_pair(self) -> bool:
        """True if the key has a schema of its own."""
        return self.type == types.KEY_VALUE

    @property
    def is_slow(self) -> bool:
        """True if reading and writing is too slow for the event loop."""
        return self.key.is_slow or self.value.is_slow

    def write(self, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        """Encode key and value from their JSON texts; None is null. Raises BadValue."""
        return (
            None if key is None else self.key.write(key),
            None if value is None else self.value.write(value),
        )


def value_codec(name: str, definition: bytes) -> ValueCodec:
    """Return the codec of a part. Raises BadValue for an invalid definition or an unknown type."""
    if name == types.AVRO:
        from braidlog.protocols.http.values.avro import AvroCodec  # See `schema_rules.load_parser`.

        return AvroValueCodec(AvroCodec(definition))
    if name == types.JSON:
        return JsonCodec()
    if name in PRIMITIVES:
        return PrimitiveCodec(PRIMITIVES[name])
    if name == types.NONE:
        return TEXT
    return OpaqueCodec(name)


def record_codec(name: str, definition: bytes, properties: Mapping[str, str]) -> RecordCodec:
    """Return the codec of a schema as the registry holds it. Raises BadValue."""
    if name != types.KEY_VALUE:
        return RecordCodec(name, TEXT, value_codec(name, definition))
    key, value = split_pair(definition)
    return RecordCodec(
        name,
        value_codec(properties.get(KEY_TYPE, types.BYTES), key or b""),
        value_codec(properties.get(VALUE_TYPE, types.BYTES), value or b""),
        is_inline=properties.get(PAIR_ENCODING) != SEPARATED,
    )


def join_pair(key: bytes | None, value: bytes | None) -> bytes:
    """Return both parts, each after its length, as Pulsar's KeyValue writes definitions and
    payloads.
    """
    parts = []
    for part in (key, value):
        parts.append(SIZE.pack(-1 if part is None else len(part)))
        parts.append(part or b"")
    return b"".join(parts)


def split_pair(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the parts that `join_pair` joined. Raises BadValue."""
    parts: list[bytes | None] = []
    pos = 0
    for _ in range(2):
        if len(data) - pos < SIZE.size:
            raise BadValue("a pair is cut short")
        (size,) = SIZE.unpack_from(data, pos)
        pos += SIZE.size
        if size < -1 or size > len(data) - pos:
            raise BadValue("a pair is cut short")
        parts.append(data[pos : pos + size] if size >= 0 else None)
        pos += max(size, 0)
    if pos != len(data):
        raise BadValue("trailing bytes after a pair of key and value")
    return parts[0], parts[1]


def _parse(text: bytes) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadValue(explain(error)) from None
