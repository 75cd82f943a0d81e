"""Schemas in requests: the accepted forms of a definition, and invalid definitions."""

import base64
import json

import pytest

from braidlog.protocols.http.values.definitions import DEFINITION_BYTES_MAX, read_info
from braidlog.protocols.http.values.primitives import BadValue

RECORD = '{"type":"record","name":"R","fields":[]}'


def info(**fields):
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("schema", "definition"),
    [
        (json.loads(RECORD), RECORD),
        (RECORD, RECORD),
        (base64.b64encode(RECORD.encode()).decode(), RECORD),
        ("message R {}", "message R {}"),
        ('"string"', '"string"'),
    ],
    ids=["object", "text", "base64", "other text", "quoted text"],
)
def test_a_definition_may_be_json_text_or_base64(schema, definition):
    kind = "JSON" if definition == RECORD else "PROTOBUF"
    schema_info = read_info(info(type=kind, schema=schema), None)
    assert (schema_info.type, schema_info.definition) == (kind, definition.encode())


def test_a_whole_schema_may_be_text():
    text = json.dumps(json.dumps({"type": "STRING", "name": "n", "properties": {"a": "b"}}))
    schema_info = read_info(text.encode(), None)
    assert (schema_info.type, schema_info.name, schema_info.properties) == (
        "STRING",
        "n",
        {"a": "b"},
    )


@pytest.mark.parametrize(
    ("schema_text", "definition"),
    [
        (RECORD.replace(",", " , "), RECORD),
        ('["int", "string"]', '["int","string"]'),
        (json.dumps('"int"'), '"int"'),
    ],
)
def test_with_a_separate_type_the_definition_may_be_alone(schema_text, definition):
    schema_info = read_info(schema_text.encode(), "AVRO")
    assert (schema_info.type, schema_info.definition) == ("AVRO", definition.encode())


@pytest.mark.parametrize(
    ("schema", "wanted", "reason"),
    [
        (info(type="KEY_VALUE"), None, "takes a key_schema and a value_schema"),
        (info(type="JSON", schema="[]"), None, "not a definition: "),
        (info(type="JSON", schema="{"), None, "not a definition: "),
        (info(type="AVRO", schema={"type": "no"}), None, "not an Avro definition"),
        (info(type="PROTOBUF", schema="x " * DEFINITION_BYTES_MAX), None, "at most 262144 bytes"),
        (info(type="PROTOBUF"), None, "definition .* is missing"),
        (info(schema="{}"), None, "type is missing"),
        (info(type="COLOUR"), None, "no schema type 'COLOUR', expected one of "),
        (b"{", None, "ends too early"),
        (b"{", "INT32", "ends too early"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_reason(schema, wanted, reason):
    with pytest.raises(BadValue, match=reason):
        read_info(schema, wanted)
