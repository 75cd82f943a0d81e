"""Allowed successors of a schema: Avro's rules of resolution under Pulsar's strategies."""

import json

import pytest

from braidlog.broker.topics.schema_rules import (
    AVRO,
    DEFINITION_BYTES_MAX,
    JSON,
    BadDefinition,
    SchemaStrategy,
    check_definition,
    difference,
)
from braidlog.storage.metadata.catalogue_records import SchemaMeta

STRING = 1


def schema(definition, kind=AVRO):
    return SchemaMeta(kind, "n", json.dumps(definition).encode(), {})


def record(*fields, kind=AVRO, name="R"):
    return schema({"type": "record", "name": name, "fields": list(fields)}, kind)


def field(name, kind, **more):
    return {"name": name, "type": kind, **more}


X = field("x", "int")
BASE = record(X)

# Backward: the new schema reads old data; forward: the old schema reads new data.
PAIRS = [
    ("the same", BASE, BASE, True, True),
    ("another name", BASE, record(X, name="S"), True, True),
    ("a field with a default", BASE, record(X, field("y", "int", default=1)), True, True),
    ("a field without one", BASE, record(X, field("y", "int")), False, True),
    ("a field less", record(X, field("y", "int")), BASE, True, False),
    ("a wider number", BASE, record(field("x", "long")), True, False),
    ("another type", BASE, record(field("x", "boolean")), False, False),
    ("may be null now", BASE, record(field("x", ["null", "int"])), True, False),
    ("text as bytes", record(field("x", "string")), record(field("x", "bytes")), True, True),
    ("renamed with an alias", BASE, record(field("z", "int", aliases=["x"])), True, False),
    (
        "a symbol more",
        schema({"type": "enum", "name": "E", "symbols": ["A"]}),
        schema({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
        True,
        False,
    ),
    (
        "other items",
        record(field("x", {"type": "array", "items": "int"})),
        record(field("x", {"type": "array", "items": "string"})),
        False,
        False,
    ),
    (
        "other values",
        record(field("x", {"type": "map", "values": "float"})),
        record(field("x", {"type": "map", "values": "double"})),
        True,
        False,
    ),
    (
        "another size",
        schema({"type": "fixed", "name": "F", "size": 4}),
        schema({"type": "fixed", "name": "F", "size": 5}),
        False,
        False,
    ),
]


@pytest.mark.parametrize(("strategy", "old", "new", "backward", "forward"), PAIRS)
def test_strategies(strategy, old, new, backward, forward):
    assert (difference(SchemaStrategy.BACKWARD, old, new) == "") == backward
    assert (difference(SchemaStrategy.FORWARD, old, new) == "") == forward
    assert (difference(SchemaStrategy.FULL, old, new) == "") == (backward and forward)
    assert difference(SchemaStrategy.ALWAYS_COMPATIBLE, old, new) == ""
    assert difference(SchemaStrategy.ALWAYS_INCOMPATIBLE, old, new)


def test_json_definitions_are_avro_too():
    old, new = record(X, kind=JSON), record(field("x", "string"), kind=JSON)
    assert "x: int cannot be read as string" in difference(SchemaStrategy.FULL, old, new)


def test_another_type_is_incompatible_and_plain_types_are_compared_by_type_alone():
    assert difference(SchemaStrategy.FULL, BASE, record(X, kind=JSON))
    assert difference(SchemaStrategy.FULL, SchemaMeta(STRING, "", b"", {}), BASE)
    assert not difference(
        SchemaStrategy.FULL, SchemaMeta(STRING, "", b"", {}), SchemaMeta(STRING, "", b"null", {})
    )


def test_a_recursive_record():
    def chain(inner):
        return record(field("next", ["null", "R"], default=None), field("v", inner))

    assert not difference(SchemaStrategy.FULL, chain("int"), chain("int"))
    assert difference(SchemaStrategy.FULL, chain("int"), chain("string"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"{}",
        b"[]{",
        b'{"type":"record","name":"R","fields":[{"name":"x","type":"nothing"}]}',
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"type":"array","items":' * 500 + b'"int"' + b"}" * 500,
        b'"' + b"x" * DEFINITION_BYTES_MAX + b'"',
    ],
)
@pytest.mark.parametrize("kind", [JSON, AVRO])
def test_an_invalid_definition_is_refused(data, kind):
    with pytest.raises(BadDefinition):
        check_definition(SchemaMeta(kind, "n", data, {}))


def test_definitions_of_plain_types_are_ignored():
    with pytest.raises(BadDefinition):
        check_definition(SchemaMeta(JSON, "n", b"null", {}))
    check_definition(SchemaMeta(STRING, "n", b"null", {}))
