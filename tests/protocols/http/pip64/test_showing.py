"""The view of a reader over HTTP on records of other protocols."""

import base64
import tracemalloc

import pytest

from braidlog.broker.topics.schemas import SchemaMeta
from braidlog.protocols.http.limits import INLINE_SLOW_BYTES, TURN_MESSAGES
from braidlog.protocols.http.pip64 import showing
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.avro import AvroCodec
from braidlog.protocols.http.values.values import join_pair
from braidlog.storage.formats.record import Header, HeaderKind
from tests.broker.records import append
from tests.protocols.http.pip64.conftest import BASE

READ = f"{BASE}/partitions/0/messages"
VERSION_0 = bytes(8)


@pytest.fixture
def read(broker, orders, ask):
    """Return `read`: `await read(values, **query)` returns a reader's view of stored records."""

    async def read(*values, query="", **fields):
        await append(broker, orders.partitions[0], "plain", values, **fields)
        answer = await ask("GET", READ + query)
        assert answer.status == 200, answer.body
        return answer.json["messages"]

    return read


def register(broker, orders, kind, data=b"", **properties):
    names = {name.replace("_", "."): value for name, value in properties.items()}
    broker.schemas.add(orders, SchemaMeta(types.NUMBERS[kind], "n", data, names))


def b64(data):
    return base64.b64encode(data).decode()


async def test_properties_that_a_map_cannot_hold_are_also_a_list(read):
    headers = [
        Header(b"twice", b"1"),
        Header(b"twice", b"2"),
        Header(b"bytes", b"\xff\x00", HeaderKind.RAW),
        Header(b"\xff", b"name"),
        Header(b"number", (7).to_bytes(4, "little"), HeaderKind.INT32),
    ]
    (shown,) = await read(b"x", headers=headers)
    assert shown["properties"] == {"twice": "2", "number": "7"}
    assert shown["headers"] == [
        {"name": "twice", "value": "1"},
        {"name": "twice", "value": "2"},
        {"name": "bytes", "value": "/wA=", "encoding": "base64"},
        {"name": "/w==", "value": "name", "name_encoding": "base64"},
        {"name": "number", "value": "7"},
    ]


async def test_properties_that_a_map_holds_are_not_listed_again(read):
    (shown,) = await read(b"x", headers=[Header(b"a", b"1"), Header(b"b", b"2")])
    assert shown["properties"] == {"a": "1", "b": "2"} and "headers" not in shown


async def test_binary_property_names_are_left_out(read):
    (shown,) = await read(b"x", producer_name=b"\xff", ordering_key=b"\xff")
    assert "producerName" not in shown and "orderingKey" not in shown
    _, shown = await read(b"x", producer_name=b"p", ordering_key=b"o")
    assert (shown["producerName"], shown["orderingKey"]) == ("p", "o")


async def test_binary_bytes_are_base64(read):
    shown = await read(b"\xff", b"\0" * 20, b"tab\t and a bell \x07")
    assert [(message["value"], message["encoding"]) for message in shown] == [
        ("/w==", "base64"),
        (b64(bytes(20)), "base64"),
        ("tab\t and a bell \x07", "utf8"),
    ]


async def test_an_unknown_schema_version_is_shown_with_the_bytes(read):
    (shown,) = await read(b"text", schema_version=(9).to_bytes(8, "big"))
    assert (shown["value"], shown["encoding"]) == (b64(b"text"), "base64")
    assert "no schema version 9" in shown["decode_error"]
    assert "schema_version" not in shown


async def test_a_version_of_another_registry_is_ignored(read):
    (shown,) = await read(b"text", schema_version=b"\0\0\0\0\1")
    assert (shown["value"], shown["encoding"]) == ("text", "utf8")
    assert "decode_error" not in shown


async def test_an_invalid_definition_shows_the_bytes(broker, orders, read):
    register(broker, orders, "KEY_VALUE", b"no pair")
    for shown in await read(b"a", b"b", schema_version=VERSION_0):
        assert shown["encoding"] == "base64"
        assert "a pair" in shown["decode_error"]


PAIR = {"key_schema_type": "INT32", "value_schema_type": "STRING"}


async def test_a_pair_in_a_payload_is_split(broker, orders, read):
    register(broker, orders, "KEY_VALUE", join_pair(b"", b""), **PAIR)
    shown = await read(
        join_pair(b"\0\0\0\5", b"five"),
        join_pair(None, None),
        {"value": None, "key": b"\0\0\0\6"},
        schema_version=VERSION_0,
    )
    assert [(message.get("key"), message["value"]) for message in shown] == [
        (5, "five"),
        (None, None),
        (6, None),
    ]
    assert not any("decode_error" in message for message in shown)


async def test_a_payload_without_a_pair_is_shown_whole(broker, orders, read):
    register(broker, orders, "KEY_VALUE", join_pair(b"", b""), **PAIR)
    (shown,) = await read({"value": b"five", "key": b"k"}, schema_version=VERSION_0)
    assert (shown["key"], shown["value"]) == ("k", b64(b"five"))
    assert shown["decode_error"] == "a pair is cut short"


async def test_a_key_that_does_not_fit_its_schema_is_base64(broker, orders, read):
    register(broker, orders, "KEY_VALUE", join_pair(b"", b""), **PAIR)
    (shown,) = await read(join_pair(b"five", b"five")[:-1] + b"e", schema_version=VERSION_0)
    assert (shown["key"], shown["value"]) == (int.from_bytes(b"five", "big"), "five")
    _, shown = await read(join_pair(b"k", b"five"), schema_version=VERSION_0)
    assert (shown["key"], shown["key_encoding"]) == (b64(b"k"), "base64")
    assert shown["value"] == "five"
    assert shown["decode_error"].startswith("key: expected 4 bytes")


@pytest.mark.parametrize("size", [10, INLINE_SLOW_BYTES + 1])
async def test_avro_is_shown_alike_in_the_loop_and_in_a_thread(broker, orders, read, size):
    definition = b'{"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}'
    register(broker, orders, "AVRO", definition)
    value = {"s": "x" * size}
    packed = AvroCodec(definition).write(b'{"s": "%s"}' % value["s"].encode())
    shown = await read(packed, b"\xff", schema_version=VERSION_0)
    assert shown[0]["value"] == value and "encoding" not in shown[0]
    assert shown[1]["value"] == "/w==" and "does not fit" in shown[1]["decode_error"]


async def test_many_messages_are_shown_in_order(read):
    shown = await read(
        *(b"%d" % number for number in range(2 * TURN_MESSAGES)), query="?max_messages=1000"
    )
    assert [message["value"] for message in shown] == [
        str(number) for number in range(2 * TURN_MESSAGES)
    ]


@pytest.mark.parametrize("as_text", [showing._base64, showing._decoded])
def test_the_text_of_a_large_value_is_in_memory_once(as_text):
    value = bytes(8 << 20)
    tracemalloc.start()
    try:
        text = as_text(value)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * len(text)
    assert text == (
        base64.b64encode(value).decode() if as_text is showing._base64 else "\0" * len(value)
    )
