"""`key_schema` and `value_schema` of a request: an object, or its JSON as text (rest.md 4.1).

Knows no topic. A definition is kept byte for byte, so that the registry recognizes the same
definition.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from braidlog.broker.config.wording import explain
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.jsontext import RepeatedName, check_names, compact
from braidlog.protocols.http.values.primitives import BadValue
from braidlog.protocols.http.values.values import (
    KEY_TYPE,
    PAIR_ENCODING,
    SEPARATED,
    VALUE_TYPE,
    join_pair,
    value_codec,
)

DEFINITION_BYTES_MAX = 256 * 1024  # Of a schema; a single journal record holds the whole schema.


class SchemaInfo(msgspec.Struct):
    """A checked schema of a request."""

    type: str
    definition: bytes
    properties: dict[str, str] = {}
    name: str = ""


class _Given(msgspec.Struct):
    """Pulsar's SchemaInfo. `schema` is an object, JSON text, or base64 of that text."""

    type: str | None = None
    schema: msgspec.Raw = msgspec.Raw(b"null")
    properties: dict[str, str] | None = None
    name: str | None = None


def known_type(name: str) -> str:
    """Return the type's name in upper case. Raises BadValue for an unknown type."""
    upper = name.upper()
    if upper not in types.NUMBERS:
        known = ", ".join(types.NUMBERS)
        raise BadValue(f"there is no schema type {name[:40]!r}, expected one of {known}")
    return upper


def read_info(raw: bytes, wanted: str | None) -> SchemaInfo:
    """Return a schema from a request's JSON; `wanted` is the request's schema_type. Raises
    BadValue.
    """
    text = raw.strip()
    try:
        check_names(text)
        if text[:1] == b'"':
            text = msgspec.json.decode(text, type=str).encode().strip()
        body = msgspec.json.decode(text, type=_Given)
        is_info = body.type is not None and body.type.upper() in types.NUMBERS
    except RepeatedName as error:
        raise BadValue(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        if wanted not in types.WITH_DEFINITION:
            raise BadValue(explain(error, _Given)) from None
        is_info = False
    if not is_info and wanted in types.WITH_DEFINITION:
        return _checked(SchemaInfo(wanted, compact(text)))
    if body.type is None and wanted is None:
        raise BadValue("its type is missing")
    name = known_type(body.type or wanted or "")
    definition = _definition(bytes(body.schema)) if name in types.WITH_DEFINITION else b""
    return _checked(SchemaInfo(name, definition, body.properties or {}, body.name or ""))


def pair_info(key: SchemaInfo, value: SchemaInfo) -> SchemaInfo:
    """Return key and value schema as a schema of type KEY_VALUE, with the key outside the
    payload.
    """
    properties = {PAIR_ENCODING: SEPARATED}
    for place, info in (("key", key), ("value", value)):
        properties[f"{place}.schema.name"] = info.name
        properties[KEY_TYPE if place == "key" else VALUE_TYPE] = info.type
        packed = msgspec.json.encode(info.properties).decode()
        properties[f"{place}.schema.properties"] = packed
    return SchemaInfo(
        types.KEY_VALUE, join_pair(key.definition, value.definition), properties, "KeyValue"
    )


def _definition(raw: bytes) -> bytes:
    """Return the bytes of a definition that was given as JSON, as its text, or as base64 of the
    text.
    """
    if raw.strip() == b"null":
        raise BadValue("its definition (`schema`) is missing")
    if raw.strip()[:1] != b'"':
        return compact(raw)
    text = msgspec.json.decode(raw, type=str)
    if text.lstrip()[:1] in ("{", "[", '"'):
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()  # Neither: the type decides on its validity.


def _checked(info: SchemaInfo) -> SchemaInfo:
    if len(info.definition) > DEFINITION_BYTES_MAX:
        raise BadValue(f"a definition has at most {DEFINITION_BYTES_MAX} bytes")
    if info.type == types.KEY_VALUE:
        raise BadValue("KEY_VALUE takes a key_schema and a value_schema of other types")
    if info.type == types.JSON:
        try:
            msgspec.json.decode(info.definition, type=dict)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadValue(f"not a definition: {explain(error)}") from None
    value_codec(info.type, info.definition)
    if info.type in (types.AVRO, types.JSON):
        _check_unique(info.definition)
    return info


def _check_unique(definition: bytes) -> None:
    """Check that no name repeats in a definition, which may have come as text in JSON. Raises
    BadValue.
    """
    try:
        check_names(definition)
    except (msgspec.DecodeError, RecursionError, RepeatedName) as error:
        raise BadValue(f"not a definition: {explain(error)}") from None
