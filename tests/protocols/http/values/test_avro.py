"""Avro values with a depth and size that the data decides."""

import json
import struct

import pytest

from braidlog.protocols.http.values.avro import AvroCodec
from braidlog.protocols.http.values.primitives import BadValue

LIST = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "value", "type": "int"},
        {"name": "next", "type": ["null", "Node"], "default": None},
    ],
}
# A value of this type never ends.
ENDLESS = {"type": "record", "name": "E", "fields": [{"name": "e", "type": "E"}]}


def codec(definition):
    return AvroCodec(json.dumps(definition).encode())


def nested(depth):
    text = "null"
    for number in range(depth):
        text = f'{{"Node": {{"value": {number}, "next": {text}}}}}'
    return f'{{"value": -1, "next": {text}}}'


@pytest.mark.parametrize("depth", [0, 1, 30])
def test_a_recursive_definition_takes_nested_values(depth):
    packed = codec(LIST).write(nested(depth).encode())
    assert json.loads(codec(LIST).read(packed)) == json.loads(nested(depth))


# Every kind of definition, inside a definition that refers to itself by its full name.
TREE = {
    "type": "record",
    "name": "Tree",
    "namespace": "a.b",
    "fields": [
        {"name": "children", "type": {"type": "array", "items": "Tree"}, "default": []},
        {"name": "named", "type": {"type": "map", "values": ["null", "Tree"]}, "default": {}},
        {"name": "any", "type": ["null", "int", "string", "bytes", "boolean", "double", "Tree"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "again", "type": ["null", "Kind", "Hash"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def leaf(**fields):
    full = {"children": [], "named": {}, "any": None, "kind": "A", "hash": "\u00ff\u0000"}
    return {**full, "again": None, "at": 1764000000000, **fields}


@pytest.mark.parametrize(
    "value",
    [
        leaf(),
        leaf(any={"int": 5}, again={"a.b.Kind": "B"}),
        leaf(any={"string": "é"}, again={"a.b.Hash": "ab"}),
        leaf(any={"bytes": "\u0000\u00ff"}),
        leaf(any={"boolean": True}),
        leaf(any={"double": 1.5}),
        leaf(any={"a.b.Tree": leaf(children=[leaf(), leaf(any={"int": 1})])}),
        leaf(named={"x": {"a.b.Tree": leaf(named={"y": None})}, "z": None}),
    ],
)
def test_every_kind_of_value_in_a_tree_round_trips(value):
    assert json.loads(codec(TREE).read(codec(TREE).write(json.dumps(value).encode()))) == value


def test_a_default_replaces_a_missing_field():
    fields = leaf()
    for name in ("children", "named", "again"):
        del fields[name]
    assert json.loads(codec(TREE).read(codec(TREE).write(json.dumps(fields).encode()))) == leaf()


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        leaf(any=5),
        leaf(any={"long": 5}),
        leaf(any={"int": 5, "string": "x"}),
        leaf(any={"int": "5"}),
        leaf(kind="C"),
        leaf(hash="abc"),
        leaf(hash="\u0100a"),
        leaf(children=[{}]),
        leaf(children={}),
        leaf(named=[]),
        leaf(at="soon"),
    ],
)
def test_a_value_of_another_shape_is_refused(value):
    with pytest.raises(BadValue, match="does not fit"):
        codec(TREE).write(json.dumps(value).encode())


def test_too_deep_bytes_are_refused():
    packed = b"\x02\x02" * 100_000 + b"\x02\x00"
    with pytest.raises(BadValue, match="does not fit"):
        codec(LIST).read(packed)
    assert codec(LIST).read(b"\x02\x00") == '{"value": 1, "next": null}'


@pytest.mark.parametrize(
    "packed", [b"", b"\x02", b"\x02\x04", b"\x02\x02\x02", b"\x02\x00\x00", b"\xff" * 20]
)
def test_invalid_bytes_are_refused(packed):
    with pytest.raises(BadValue):
        codec(LIST).read(packed)


def test_a_value_that_never_ends_is_refused():
    with pytest.raises(BadValue):
        codec(ENDLESS).read(b"\x00" * 100)
    with pytest.raises(BadValue):
        codec(ENDLESS).write(b'{"e": {"e": {}}}')


def test_a_union_without_null_takes_no_null():
    node = {"name": "next", "type": ["int", "Node"]}
    definition = {**LIST, "fields": [node]}
    assert json.loads(codec(definition).read(codec(definition).write(b'{"next": {"int": 5}}')))
    with pytest.raises(BadValue, match="'null' is not a branch"):
        codec(definition).write(b'{"next": null}')


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "x.Empty", "fields": []},
    ],
)
def test_items_without_bytes_are_refused(items):
    with pytest.raises(BadValue, match="items without bytes"):
        codec({"type": "array", "items": items})


def test_a_names_namespace_applies_to_inner_names():
    inner = {"name": "next", "type": ["null", "x.y.Node"], "default": None}
    definition = {"type": "record", "name": "x.y.Node", "namespace": "not.this", "fields": [inner]}
    value = {"next": {"x.y.Node": {"next": None}}}
    assert (
        json.loads(codec(definition).read(codec(definition).write(json.dumps(value).encode())))
        == value
    )


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_outside_json_is_not_shown(number):
    with pytest.raises(BadValue, match="JSON has no"):
        codec("double").read(struct.pack("<d", number))


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "counts", "type": {"type": "map", "values": "int"}, "default": {}},
    ],
}


NOT_ORDERS = [
    ("x", "a value of record cannot be text"),
    (3, "a value of record cannot be a number"),
    (None, "a value of record cannot be null"),
    ([], "a value of record cannot be a list"),
    ({"id": True}, "a value of int cannot be true or false"),
    (
        {"id": 1, "note": "untagged"},
        "a value of a union is null or an object that names its branch",
    ),
    ({"id": 1, "note": {"int": 3}}, "'int' is not a branch of the union"),
    ({"id": 1, "tags": {}}, "a value of array cannot be an object"),
    ({"id": 1, "counts": [1]}, "a value of map cannot be a list"),
    ({}, "no value for 'id', which has no default"),
]


@pytest.mark.parametrize(("value", "reason"), NOT_ORDERS)
def test_json_of_another_shape_gets_the_expected_type(value, reason):
    with pytest.raises(BadValue) as caught:
        codec(ORDER).write(json.dumps(value).encode())
    assert str(caught.value) == f"does not fit the Avro schema: {reason}"
