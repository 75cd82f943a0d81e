"""Avro binary, compared with fastavro's output, and the branches of unions."""

import io
import json

import fastavro
import pytest

from braidlog.protocols.http.values.avro import AvroCodec
from braidlog.protocols.http.values.primitives import BadValue


def codec(definition):
    return AvroCodec(json.dumps(definition).encode())


def written(definition, value):
    return codec(definition).write(json.dumps(value).encode())


def shown(definition, data):
    return json.loads(codec(definition).read(data))


def fields(*types):
    named = [{"name": f"f{number}", "type": field_type} for number, field_type in enumerate(types)]
    return {"type": "record", "name": "R", "namespace": "a", "fields": named}


def like(name):
    return {"type": "record", "name": name, "fields": [{"name": "id", "type": "int"}]}


FIXED = {"type": "fixed", "name": "F", "size": 3}
KIND = {"type": "enum", "name": "K", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("definition", "value", "native"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -(2**31), -(2**31)),
        ("int", 2**31 - 1, 2**31 - 1),
        ("long", 2**63 - 1, 2**63 - 1),
        ("long", -(2**63), -(2**63)),
        ("float", 1.5, 1.5),
        ("double", 0.1, 0.1),
        ("double", 7, 7.0),
        ("string", "é\u2028\n\U0001f600", "é\u2028\n\U0001f600"),
        ("bytes", "\u0000\u00ff", b"\x00\xff"),
        (FIXED, "\u0000\u00ffx", b"\x00\xffx"),
        (KIND, "B", "B"),
        ({"type": "array", "items": "long"}, [], []),
        ({"type": "array", "items": "long"}, [1, -1, 300], [1, -1, 300]),
        ({"type": "map", "values": "int"}, {"a": 1, "": 2, "ü": 3}, {"a": 1, "": 2, "ü": 3}),
        (fields(), {}, {}),
        (fields("int", FIXED), {"f1": "abc", "f0": 1, "more": 0}, {"f0": 1, "f1": b"abc"}),
    ],
)
def test_bytes_equal_fastavros(definition, value, native):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition), native)
    data = out.getvalue()
    assert written(definition, value) == data
    known = (
        {name: field for name, field in value.items() if name != "more"}
        if (isinstance(value, dict))
        else value
    )
    assert shown(definition, data) == known


NUMBERS = ["int", "long", "float", "double"]
TEXTS = ["null", "string", "bytes", FIXED, KIND]
RECORDS = [like("Created"), like("Deleted")]


@pytest.mark.parametrize(
    ("union", "value", "branch"),
    [
        (NUMBERS, {"int": 1}, 0),
        (NUMBERS, {"long": 1}, 1),
        (NUMBERS, {"float": 1.5}, 2),
        (NUMBERS, {"double": 1.5}, 3),
        (TEXTS, None, 0),
        (TEXTS, {"string": "A"}, 1),
        (TEXTS, {"bytes": "abc"}, 2),
        (TEXTS, {"a.F": "abc"}, 3),
        (TEXTS, {"a.K": "A"}, 4),
        (RECORDS, {"a.Created": {"id": 1}}, 0),
        (RECORDS, {"a.Deleted": {"id": 1}}, 1),
    ],
)
def test_a_union_keeps_the_named_branch(union, value, branch):
    data = written(fields(union), {"f0": value})
    assert data[0] == 2 * branch
    assert shown(fields(union), data) == {"f0": value}


@pytest.mark.parametrize(
    "value", [{"long": "5"}, {"int": 5, "long": 5}, {"Deleted": {"id": 1}}, 5, None, {}]
)
def test_a_value_without_a_branch_is_refused(value):
    with pytest.raises(BadValue):
        written(fields([*NUMBERS, *RECORDS, "string"]), {"f0": value})


def test_values_of_logical_types_are_their_underlying_values():
    types = {
        "date": "int",
        "time-millis": "int",
        "timestamp-millis": "long",
        "timestamp-micros": "long",
        "uuid": "string",
        "decimal": "bytes",
    }
    logical = [
        {"type": plain, "logicalType": name, "precision": 9} for name, plain in types.items()
    ]
    values = [-800_000, -1, 2**62, -(2**62), "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6", "\u00ff\u00ff"]
    value = {f"f{number}": field for number, field in enumerate(values)}
    assert written(fields(*logical), value) == written(fields(*types.values()), value)
    assert shown(fields(*logical), written(fields(*logical), value)) == value


def test_a_default_uses_the_first_fitting_branch():
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": ["int", "string"]}]}
    defaults = [
        (["string", "null"], "q", {"string": "q"}),
        (["string", "null"], None, None),
        ({"type": "array", "items": ["int", "string"]}, ["a", 1], [{"string": "a"}, {"int": 1}]),
        ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, {"k": "\u00ff"}),
        (inner, {"x": "y"}, {"x": {"string": "y"}}),
    ]
    definition = fields(*(branch for branch, _, _ in defaults))
    for field, (_, default, _) in zip(definition["fields"], defaults, strict=True):
        field["default"] = default
    data = written(definition, {})
    assert shown(definition, data) == {
        f"f{number}": value for number, (_, _, value) in enumerate(defaults)
    }


@pytest.mark.parametrize(
    ("definition", "value"),
    [
        ("int", 2**31),
        ("long", -(2**63) - 1),
        ("int", 1.0),
        ("int", True),
        ("float", 1e39),
        ("double", "NaN"),
        ("boolean", 0),
        ("bytes", "\u0100"),
        (FIXED, "ab"),
        (KIND, "C"),
        (fields("int"), {}),
        ({"type": "array", "items": "int"}, {}),
        ({"type": "map", "values": "int"}, {"a": None}),
    ],
)
def test_an_unfitting_value_is_refused(definition, value):
    with pytest.raises(BadValue, match="does not fit"):
        written(definition, value)


@pytest.mark.parametrize(
    ("definition", "data"),
    [
        ("long", b"\xff" * 10),
        ("long", b"\x80"),
        ("string", b"\x01"),
        ("string", b"\x04a"),
        ("string", b"\x02\xff"),
        ("double", b"\0\0\0\0\0\0\xf8\x7f"),
        ("float", b"\0\0\0"),
        (KIND, b"\x04"),
        (["null", "int"], b"\x01"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"),
        ("int", b"\x02\x02"),
    ],
)
def test_unfitting_bytes_are_refused(definition, data):
    with pytest.raises(BadValue):
        codec(definition).read(data)


def test_blocks_with_their_sizes_are_read_too():
    data = b"\x03\x04\x02\x04\x02\x06\x00"  # Two items in two bytes, then a single item.
    assert shown({"type": "array", "items": "int"}, data) == [1, 2, 3]


def doubled(levels, leaf, **default):
    """Return nested records: each has the record below twice."""
    node = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf, **default}]}
    empty = {"default": {}} if default else {}
    for level in range(1, levels):
        again = {"name": "b", "type": f"R{level - 1}", **empty}
        fields = [{"name": "a", "type": node, **empty}, again]
        node = {"type": "record", "name": f"R{level}", "fields": fields}
    return node


def test_a_short_value_does_not_become_very_long_json():
    assert len(codec(doubled(5, "null")).read(b"")) == 386
    with pytest.raises(BadValue, match="very much larger"):
        codec(doubled(60, "null")).read(b"")
    long_name = {"type": "record", "name": "R", "fields": [{"name": "a" * 9000, "type": "int"}]}
    with pytest.raises(BadValue, match="very much larger"):
        codec({"type": "array", "items": long_name}).read(b"\x40" + bytes(33))
    with pytest.raises(BadValue, match="very much larger"):
        codec({"type": "array", "items": [like("R" * 9000)]}).read(b"\x40" + bytes(65))


def test_an_empty_value_does_not_become_very_many_bytes():
    assert written(doubled(5, "int", default=1), {}) == b"\x02" * 16
    with pytest.raises(BadValue, match="the default of 'a' is too large"):
        written(doubled(60, "int", default=1), {})


def test_a_default_that_fits_no_branch_is_not_tried_in_all_combinations():
    node = {"type": "record", "name": "Z", "fields": [{"name": "x", "type": "int"}]}
    default = "bad"
    for level in range(40):
        other = {"name": "x", "type": [node["name"], "null"]}
        both = [node, {"type": "record", "name": f"B{level}", "fields": [other]}]
        node = {"type": "record", "name": f"A{level}", "fields": [{"name": "x", "type": both}]}
        default = {"x": default}
    top = {"type": "record", "name": "T", "fields": [{"name": "x", "type": [node]}]}
    top["fields"][0]["default"] = {"x": default}
    with pytest.raises(BadValue, match="too many parts"):
        written(top, {})
