"""The type of the column `data`, from the user's schema. Pure; knows no value.

A schema is an Avro schema (JSON), a Spark schema in the form of `StructType.json()`, or a list of
columns such as `id bigint, name string`.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from braidlog.storage.export.source.options import BadOption
from braidlog.storage.formats.columns.schema import TIMESTAMP

NESTING_MAX = 32

# Spark's name, Arrow's type.
_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}
_DDL: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
}
_AVRO: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_AVRO_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
}


def struct_type(schema: str, *, avro: bool) -> pa.StructType:
    """Return the type of `data`; `avro` allows only an Avro schema. Raises BadOption."""
    text = schema.strip()
    if not text:
        raise BadOption("valueSchema: expected an Avro schema, a Spark schema, or columns")
    definition: object = None
    if text.startswith("{"):
        try:
            definition = json.loads(text)
        except ValueError as error:
            raise BadOption(f"valueSchema: not JSON: {error}") from None
    if isinstance(definition, dict) and definition.get("type") == "record":
        return _of_avro(definition, 0)
    if avro:
        raise BadOption("valueSchema: expected an Avro record schema in JSON")
    if isinstance(definition, dict):
        return _of_spark(definition, 0)
    return _of_columns(text)


def ddl_of(type_: pa.DataType) -> str:
    """Return a type in Spark's DDL."""
    if pa.types.is_struct(type_):
        inner = ",".join(f"`{field.name}`:{ddl_of(field.type)}" for field in type_)
        return f"struct<{inner}>"
    if pa.types.is_list(type_):
        return f"array<{ddl_of(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{ddl_of(type_.key_type)},{ddl_of(type_.item_type)}>"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return _DDL[type_]


def _list_of(inner: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", inner))


def _of_columns(text: str) -> pa.StructType:
    columns = []
    for part in text.split(","):
        name, _, kind = part.strip().partition(" ")
        type_ = _SIMPLE.get(kind.strip().lower())
        if not name or type_ is None:
            raise BadOption(
                f"valueSchema: {part.strip()!r} is no column such as `id bigint`; for nested types "
                "give a Spark schema as JSON: schema.json()"
            )
        columns.append((name.strip("`"), type_))
    return pa.struct(columns)


def _of_spark(definition: object, depth: int) -> pa.DataType:
    if depth > NESTING_MAX:
        raise BadOption("valueSchema: too deeply nested")
    if isinstance(definition, str):
        if definition in _SIMPLE:
            return _SIMPLE[definition]
        if definition.startswith("decimal(") and definition.endswith(")"):
            return _decimal(*definition[8:-1].split(","))
    if isinstance(definition, dict):
        kind = definition.get("type")
        if kind == "struct":
            fields = [
                (field["name"], _of_spark(field["type"], depth + 1))
                for field in definition["fields"]
            ]
            return pa.struct(fields)
        if kind == "array":
            return _list_of(_of_spark(definition["elementType"], depth + 1))
        if kind == "map" and definition.get("keyType") == "string":
            return pa.map_(pa.string(), _of_spark(definition["valueType"], depth + 1))
    raise BadOption(f"valueSchema: no column can be of type {str(definition)[:80]}")


def _of_avro(definition: Any, depth: int) -> pa.DataType:  # noqa: ANN401 - any JSON
    if depth > NESTING_MAX:
        raise BadOption("valueSchema: too deeply nested, or a type that holds itself")
    if isinstance(definition, list):
        others = [branch for branch in definition if branch != "null"]
        if len(others) == 1:
            return _of_avro(others[0], depth + 1)
    if isinstance(definition, str) and definition in _AVRO:
        return _AVRO[definition]
    if isinstance(definition, Mapping):
        return _of_avro_object(definition, depth)
    raise BadOption(f"valueSchema: no column can be of Avro type {str(definition)[:80]}")


def _of_avro_object(definition: Mapping[str, Any], depth: int) -> pa.DataType:
    logical = definition.get("logicalType")
    if logical in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[logical]
    if logical == "decimal":
        return _decimal(definition["precision"], definition.get("scale", 0))
    if logical is not None:
        raise BadOption(f"valueSchema: no column can be of Avro's logical type {logical}")
    kind = definition.get("type")
    if kind == "record":
        return pa.struct(
            [(field["name"], _of_avro(field["type"], depth + 1)) for field in definition["fields"]]
        )
    if kind == "array":
        return _list_of(_of_avro(definition["items"], depth + 1))
    if kind == "map":
        return pa.map_(pa.string(), _of_avro(definition["values"], depth + 1))
    if kind == "enum":
        return pa.string()
    if kind == "fixed":
        return pa.binary()
    return _of_avro(kind, depth + 1)


def _decimal(precision: object, scale: object = 0) -> pa.DataType:
    try:
        return pa.decimal128(int(str(precision)), int(str(scale)))
    except ValueError as error:
        raise BadOption(f"valueSchema: decimal({precision}, {scale}): {error}") from None
