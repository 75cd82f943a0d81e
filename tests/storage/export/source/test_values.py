"""Values as columns: types from schemas, JSON and Avro, and values without a schema."""

import io
import json

import fastavro
import pyarrow as pa
import pytest

from braidlog.storage.export.source.options import BadOption, ValueFormat
from braidlog.storage.export.source.value_types import ddl_of, struct_type
from braidlog.storage.export.source.values import decoder_of

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
SPARK = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {
            "name": "lines",
            "nullable": True,
            "metadata": {},
            "type": {
                "type": "array",
                "containsNull": True,
                "elementType": {
                    "type": "struct",
                    "fields": [{"name": "n", "type": "integer", "nullable": True, "metadata": {}}],
                },
            },
        },
    ],
}


def test_the_three_forms_of_a_schema():
    assert ddl_of(struct_type("id bigint, `name` string", avro=False)) == (
        "struct<`id`:bigint,`name`:string>"
    )
    assert ddl_of(struct_type(json.dumps(SPARK), avro=False)) == (
        "struct<`id`:bigint,`lines`:array<struct<`n`:int>>>"
    )
    assert ddl_of(struct_type(json.dumps(AVRO), avro=True)) == (
        "struct<`id`:bigint,`name`:string,`tags`:array<string>,`at`:timestamp>"
    )


@pytest.mark.parametrize(
    ("schema", "avro", "text"),
    [
        ("", False, "expected"),
        ("id", False, "no column"),
        ("{", False, "not JSON"),
        ("id bigint", True, "Avro record"),
        (
            '{"type": "record", "fields": [{"name": "a", "type": ["int", "string"]}]}',
            True,
            "Avro type",
        ),
        ('{"type": "struct", "fields": [{"name": "a", "type": "interval"}]}', False, "of type"),
    ],
)
def test_an_invalid_schema_is_a_clear_error(schema, avro, text):
    with pytest.raises(BadOption, match=text):
        struct_type(schema, avro=avro)


def test_json_values_are_rows_and_invalid_values_are_named():
    decoder = decoder_of(ValueFormat("json", "id bigint, name string"))
    values = [
        b'{"id": 1, "name": "a", "more": true}',
        None,
        b"{",
        b'{\n  "id": 2\n}',
        b"",
        b'{"id": 3} {"id": 4}',
        b'{"id": "x"}',
        b'{"id": 5, "name": null}',
    ]
    data, bad = decoder.decode(pa.array(values, pa.binary()))
    assert [row and row["id"] for row in data.to_pylist()] == [
        1,
        None,
        None,
        2,
        None,
        None,
        None,
        5,
    ]
    assert sorted(failure.row for failure in bad) == [2, 4, 5, 6]
    assert data.type == decoder.type


def test_avro_values_are_rows_and_invalid_values_are_named():
    decoder = decoder_of(ValueFormat("avro", json.dumps(AVRO)))
    out = io.BytesIO()
    schema = fastavro.parse_schema(AVRO)
    fastavro.schemaless_writer(out, schema, {"id": 7, "name": None, "tags": ["x"], "at": 5})
    good = out.getvalue()
    data, bad = decoder.decode(pa.array([good, b"\xff", None, good + b"!"], pa.binary()))
    assert [row and (row["id"], row["tags"]) for row in data.to_pylist()] == [
        (7, ["x"]),
        *[None] * 3,
    ]
    assert [failure.row for failure in bad] == [1, 3]


def test_no_values_decode_to_no_rows():
    decoder = decoder_of(ValueFormat("json", "id bigint"))
    assert len(decoder.decode(pa.array([], pa.binary()))[0]) == 0


def of_avro(kind):
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    return ddl_of(struct_type(json.dumps(schema), avro=True)).removeprefix("struct<`a`:")[:-1]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("boolean", "boolean"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        (
            {"type": "record", "name": "S", "fields": [{"name": "b", "type": "int"}]},
            "struct<`b`:int>",
        ),
        ({"type": "map", "values": ["null", "long"]}, "map<string,bigint>"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "F", "size": 4}, "binary"),
        ({"type": "double"}, "double"),
        ({"type": ["null", "float"]}, "float"),
    ],
)
def test_each_type_of_avro_has_its_column(kind, column):
    assert of_avro(kind) == column


def nested(depth):
    kind = "int"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ({"type": "string", "logicalType": "uuid"}, "logical type uuid"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 99}, "decimal\\(99, 0\\)"),
        (nested(40), "too deeply nested, or a type that holds itself"),
        ("R", "Avro type R"),
    ],
)
def test_avro_types_without_a_column_are_an_error(kind, reason):
    with pytest.raises(BadOption, match=reason):
        of_avro(kind)


def of_spark(kind):
    schema = {"type": "struct", "fields": [{"name": "a", "type": kind}]}
    return ddl_of(struct_type(json.dumps(schema), avro=False)).removeprefix("struct<`a`:")[:-1]


def test_nested_types_of_spark():
    assert of_spark("decimal(9,2)") == "decimal(9,2)"
    assert of_spark({"type": "map", "keyType": "string", "valueType": "date"}) == "map<string,date>"
    with pytest.raises(BadOption, match="no column can be of type"):
        of_spark({"type": "map", "keyType": "long", "valueType": "date"})
    with pytest.raises(BadOption, match="decimal"):
        of_spark("decimal(x,2)")
    deep = "long"
    for _ in range(40):
        deep = {"type": "array", "elementType": deep}
    with pytest.raises(BadOption, match="too deeply nested"):
        of_spark(deep)
