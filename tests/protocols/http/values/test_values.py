"""Keys and values by their schema, both ways, and pairs of both in a single payload."""

import msgspec
import pytest

from braidlog.protocols.http.values.primitives import BadValue
from braidlog.protocols.http.values.values import (
    TEXT,
    NotFromJson,
    join_pair,
    record_codec,
    split_pair,
    value_codec,
)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"{} {}", b'"\xff"', b"\xff", b"[" * 101 + b"]" * 101, b"[" * 5000],
    ids=["nothing", "cut", "two", "no text", "no JSON", "deep", "deep and cut"],
)
def test_stored_bytes_without_json_are_not_shown_as_json(data):
    with pytest.raises(BadValue):
        value_codec("JSON", b"{}").read(data)


def test_stored_json_is_shown_unchanged():
    text = b'{"b": 1.10, "a": [ ]}'
    assert msgspec.json.encode(value_codec("JSON", b"{}").read(text)) == text


def test_without_a_schema_a_string_is_its_text_and_other_json_itself():
    codec = value_codec("NONE", b"")
    assert codec.write(b' "t\\u00e4" ') == "tä".encode()
    assert codec.write(b' {"a": [1, 2]} ') == b'{"a":[1,2]}'
    assert codec.read("tä".encode()) == "tä"
    with pytest.raises(BadValue):
        codec.read(b"\xff")


@pytest.mark.parametrize("text", [b'"\\ud800"', b'"open'])
def test_an_invalid_string_is_refused(text):
    with pytest.raises(BadValue):
        TEXT.write(text)


def test_a_type_that_json_cannot_express_is_neither_written_nor_shown():
    codec = value_codec("PROTOBUF", b"x")
    with pytest.raises(NotFromJson, match="PROTOBUF values cannot be given as JSON"):
        codec.write(b"1")
    with pytest.raises(BadValue, match="PROTOBUF has no JSON form"):
        codec.read(b"1")


@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("value", [None, b"", b"value"])
def test_a_pair_is_split_into_its_parts(key, value):
    assert split_pair(join_pair(key, value)) == (key, value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\1k\0\0\0",
        b"\0\0\0\2k",
        b"\xff\xff\xff\xfe",
        join_pair(b"k", b"v") + b"x",
        join_pair(b"k", b"v")[:-1],
    ],
)
def test_an_invalid_pair_is_refused(data):
    with pytest.raises(BadValue, match="a pair"):
        split_pair(data)


def test_the_parts_of_a_pair_have_the_types_of_its_properties():
    properties = {"key.schema.type": "INT32", "value.schema.type": "STRING"}
    codec = record_codec("KEY_VALUE", join_pair(b"", b""), properties)
    assert codec.is_pair and codec.is_inline
    assert codec.write(b"5", b'"five"') == (b"\0\0\0\5", b"five")
    assert codec.write(None, None) == (None, None)
    apart = record_codec("KEY_VALUE", join_pair(b"", b""), {"kv.encoding.type": "SEPARATED"})
    assert not apart.is_inline
    assert apart.write(b'"AP8="', None) == (b"\0\xff", None)
