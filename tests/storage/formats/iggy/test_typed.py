"""The stored form of the later Iggy dialects, as bytes and compared with real clients' frames."""

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from braidlog.storage.errors import BodyError, CorruptBody, RecordTooLarge
from braidlog.storage.formats.iggy.classic import HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX
from braidlog.storage.formats.iggy.typed import IGGY_TYPED, BrokenRule, body_from_typed, pack_header
from braidlog.storage.formats.record import Header, HeaderKind, Record
from tests.storage.formats.strategies import QUICK

NO_KEY = bytes(4)
# apache-iggy 0.8.0, SEND of "hello": header of 64 bytes, as captured.
SENT_HELLO = bytes.fromhex(
    "0000000000000000 00000000000000000000000000000000 0000000000000000 0000000000000000"
    "969adfcabf600600 00000000 05000000 0000000000000000 68656c6c6f"
)
SENT_US = 0x000660BFCADF9A96


def message(
    payload: bytes, headers: bytes = b"", *, message_id: int = 1, sent_us: int = 7, **set_: int
) -> bytes:
    """Return a message as in a SEND."""
    head = struct.pack(
        "<Q16sQQQIIQ",
        0,
        message_id.to_bytes(16, "little"),
        set_.get("offset", 0),
        set_.get("timestamp", 0),
        sent_us,
        len(headers),
        len(payload),
        0,
    )
    return head + payload + headers


def test_a_send_as_literal_bytes() -> None:
    prepared = body_from_typed(SENT_HELLO, 3, 1000, random_bytes=lambda size: bytes([255]) * size)
    checked = bytes.fromhex(
        "ffffffffffff4fffbfffffffffffffff 0300000000000000 e803000000000000"
        "969adfcabf600600 00000000 05000000 0000000000000000 68656c6c6f"
    )
    record = struct.pack("<Q", xxhash.xxh3_64_intdigest(checked)) + checked
    assert bytes(prepared.body) == NO_KEY + record
    assert prepared.info.first_publish_us == prepared.info.max_publish_us == SENT_US
    (decoded,) = IGGY_TYPED.decode(prepared.body, 3, 1000).records
    message_id = int.from_bytes(checked[:16], "little")
    assert decoded == Record(3, 1000, publish_us=SENT_US, value=b"hello", message_id=message_id)
    assert IGGY_TYPED.encode([decoded], 3) == bytes(prepared.body)
    assert IGGY_TYPED.inspect(prepared.body) == prepared.info
    assert IGGY_TYPED.readable(prepared.body) == record


def test_headers_keep_their_kinds_and_order() -> None:
    block = pack_header(b"Trace-Id", b"\x07\0\0\0", HeaderKind.UINT32)
    block += pack_header(b"k", b"text", HeaderKind.STRING)
    assert block[:5] == b"\x02\x08\0\0\0"
    prepared = body_from_typed(message(b"x", block), 0, 1)
    (record,) = IGGY_TYPED.decode(prepared.body, 0, 1).records
    assert record.headers == [
        Header(b"Trace-Id", b"\x07\0\0\0", HeaderKind.UINT32),
        Header(b"k", b"text", HeaderKind.STRING),
    ]
    assert IGGY_TYPED.encode([record], 0) == bytes(prepared.body)


def test_the_partitioning_key_is_the_key_of_each_record() -> None:
    prepared = body_from_typed(message(b"a") + message(b"b"), 5, 1, key=b"key")
    decoded = IGGY_TYPED.decode(prepared.body, 5, 1)
    assert [(record.offset, record.key) for record in decoded.records] == [(5, b"key"), (6, b"key")]
    assert IGGY_TYPED.split(prepared.body, 5) == [(5, 7), (6, 7 + 65)]
    assert IGGY_TYPED.split(prepared.body, 5, start_offset=6) == [(6, 7 + 65)]


@pytest.mark.parametrize("field", ["offset", "timestamp"])
def test_fields_of_the_server_are_refused(field: str) -> None:
    with pytest.raises(BrokenRule) as caught:
        body_from_typed(message(b"x", **{field: 1}), 0, 1)
    assert caught.value.rule == field


@pytest.mark.parametrize(
    "messages",
    [
        b"",
        message(b""),
        message(b"x")[:-1],
        message(b"x")[:63],
        message(b"x", b"\x02\x01\0\0\0k\x02\x00\0\0\0"),  # An empty value.
        message(b"x", b"\x02\x00\0\0\0\x02\x01\0\0\0v"),  # An empty key.
        message(b"x", b"\x02\x01\0\0\0k\x10\x01\0\0\0v"),  # An unknown kind.
        message(b"x", b"\x10\x01\0\0\0k\x02\x01\0\0\0v"),
        message(b"x", b"\x02\x01\0\0\0\xff\x02\x01\0\0\0v"),  # A text key with invalid text.
        message(b"x", b"\x02\x01\0\0\0k\x02\x02\0\0\0v"),
        message(b"x", b"\x02"),
    ],
)
def test_impossible_messages_are_refused(messages: bytes) -> None:
    with pytest.raises(CorruptBody):
        body_from_typed(messages, 0, 1)


def test_limits_of_a_send_are_exact() -> None:
    body_from_typed(message(bytes(PAYLOAD_BYTES_MAX)), 0, 1)
    with pytest.raises(RecordTooLarge):
        body_from_typed(message(bytes(PAYLOAD_BYTES_MAX)) + message(b"x"), 0, 1)
    value = pack_header(b"k", bytes(200), HeaderKind.RAW)
    full = HEADER_BYTES_MAX // 200
    body_from_typed(message(b"x", value * full), 0, 1)
    with pytest.raises(RecordTooLarge):
        body_from_typed(message(b"x", value * (full + 1)), 0, 1)


def test_a_time_outside_the_log_is_none_and_round_trips() -> None:
    latest = (1 << 64) - 1
    prepared = body_from_typed(message(b"x", sent_us=latest), 0, 1)
    assert prepared.info.max_publish_us is None
    assert struct.unpack_from("<Q", prepared.body, 4 + 40) == (latest,)
    assert IGGY_TYPED.decode(prepared.body, 0, 1).records[0].publish_us is None


def test_empty_values_are_carried_and_absent_values_are_not() -> None:
    assert IGGY_TYPED.carries(Record(0, 1, value=b""))
    assert not IGGY_TYPED.carries(Record(0, 1, value=None))


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_raise_only_body_errors(data: bytes) -> None:
    decoded = IGGY_TYPED.decode(data, 0, 1)
    assert decoded.failed is None or isinstance(decoded.failed, BodyError)
    for act in (lambda: IGGY_TYPED.inspect(data), lambda: body_from_typed(data, 0, 1)):
        try:
            act()
        except BodyError:
            pass
