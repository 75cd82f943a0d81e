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
    found = read_info(info(type=kind, schema=schema), None)
    assert (found.type, found.definition) == (kind, definition.encode())


def test_a_whole_schema_may_be_text():
    text = json.dumps(json.dumps({"type": "STRING", "name": "n", "properties": {"a": "b"}}))
    found = read_info(text.encode(), None)
    assert (found.type, found.name, found.properties) == ("STRING", "n", {"a": "b"})


@pytest.mark.parametrize(
    ("given", "definition"),
    [
        (RECORD.replace(",", " , "), RECORD),
        ('["int", "string"]', '["int","string"]'),
        (json.dumps('"int"'), '"int"'),
    ],
)
def test_with_a_separate_type_the_definition_may_be_alone(given, definition):
    found = read_info(given.encode(), "AVRO")
    assert (found.type, found.definition) == ("AVRO", definition.encode())


@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        (info(type="KEY_VALUE"), None, "takes a key_schema and a value_schema"),
        (info(type="JSON", schema="[]"), None, "not a definition: "),
        (info(type="JSON", schema="{"), None, "not a definition: "),
        (info(type="AVRO", schema={"type": "no"}), None, "not an Avro definition"),
        (info(type="PROTOBUF", schema="x " * DEFINITION_BYTES_MAX), None, "at most 262144 bytes"),
        (info(type="PROTOBUF"), None, "definition .* is missing"),
        (info(schema="{}"), None, "type is missing"),
        (info(type="COLOUR"), None, "no schema type 'COLOUR'"),
        (b"{", None, "ends too early"),
        (b"{", "INT32", "ends too early"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_reason(given, wanted, reason):
    with pytest.raises(BadValue, match=reason):
        read_info(given, wanted)
