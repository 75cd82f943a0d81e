import random
import struct
import uuid
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.storage.errors import BodyError, CorruptBody, RecordTooLarge
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.iggy.classic import (
    HEADER_BYTES_MAX,
    IGGY,
    body_from_send,
    pack_key,
    read_key,
)
from braidlog.storage.formats.record import Header, HeaderKind, Record
from tests.storage.formats.descriptions import IGGY_POLLS
from tests.storage.formats.strategies import QUICK
from tests.storage.formats.vectors import rows


def header(name: bytes, value: bytes, kind: int = 2) -> bytes:
    sizes = struct.pack("<I", len(name)), struct.pack("<I", len(value))
    return sizes[0] + name + bytes((kind,)) + sizes[1] + value


def sent(payload: bytes, headers: bytes = b"", message_id: int = 1) -> bytes:
    """Return a message as in a SEND."""
    return (
        message_id.to_bytes(16, "little")
        + struct.pack("<I", len(headers))
        + headers
        + struct.pack("<I", len(payload))
        + payload
    )


def test_a_send_as_literal_bytes() -> None:
    """A poll answer: offset 0, its time, id 1, "hello"."""
    polled = bytes.fromhex(
        "0000000000000000 01 00d54d5b31040600 01000000000000000000000000000000"
        "86a61036 00000000 05000000 68656c6c6f"
    )
    body = body_from_send(sent(b"hello"), 0, 1693459892000000).body
    assert body == bytes(4) + polled
    assert IGGY.readable(body) == polled
    record = Record(0, 1693459892000000, value=b"hello", message_id=1)
    assert IGGY.decode(body, 0, 0).records == [record]
    assert IGGY.encode([record], 0) == body


@pytest.mark.parametrize("row", rows("iggy", "send-messages.tsv"), ids=lambda row: row[0] + row[1])
def test_sends_are_accepted_and_refused_as_by_iggy(row: list[str]) -> None:
    _, _, key, messages, answer = row
    refused_for_its_target = answer.isdigit() and answer != "3"
    bad_partitioning = "key of length 0" in row[1] or "partitioning kind" in row[1]
    if answer == "ok" or refused_for_its_target or bad_partitioning:
        body = body_from_send(bytes.fromhex(messages), 5, 1000, key=bytes.fromhex(key) or None)
        decoded = IGGY.decode(body.body, 5, 1000)
        assert len(decoded.records) == body.info.record_count >= 1
        assert {record.key for record in decoded.records} == {bytes.fromhex(key) or None}
    else:
        with pytest.raises(CorruptBody):
            body_from_send(bytes.fromhex(messages), 5, 1000)


@pytest.mark.parametrize(
    "row", rows("iggy", "polled-messages.tsv"), ids=lambda row: row[0] + row[1]
)
def test_messages_that_iggys_server_sent_read_and_encode_the_same(row: list[str]) -> None:
    polled, count = bytes.fromhex(row[3]), int(row[2])
    body = pack_key(None) + polled
    decoded = IGGY.decode(body, 0, 0)
    assert decoded.failed is None
    assert len(decoded.records) == count
    assert IGGY.encode(decoded.records, 0) == body
    assert len(IGGY.split(body, 0)) == count
    messages_seen = IGGY_POLLS.parse(polled).messages
    assert [(m.offset, m.timestamp, bytes(m.payload)) for m in messages_seen] == [
        (r.offset, r.append_us, r.value) for r in decoded.records
    ]


def test_the_partitioning_key_is_every_records_key_hidden_from_iggy() -> None:
    body = body_from_send(sent(b"a") + sent(b"b"), 3, 9, key=b"key-1").body
    assert [record.key for record in IGGY.decode(body, 3, 9).records] == [b"key-1", b"key-1"]
    assert body[:9] == b"\x05\x00\x00\x00key-1"
    assert IGGY.readable(body) == body[9:]
    assert b"key-1" not in body[9:]
    assert read_key(body) == (9, b"key-1")


def test_a_foreign_key_is_the_last_header() -> None:
    record = Record(0, 1, key=b"\xff", value=b"v", headers=[Header(b"braidlog.key", b"own")])
    (seen,) = IGGY.decode(IGGY.encode([record], 0), 0, 1).records
    assert seen.key is None
    assert seen.headers == [
        Header(b"braidlog.key", b"own"),
        Header(b"braidlog.key", b"\xff", HeaderKind.RAW),
    ]


def test_properties_that_no_header_can_hold_are_left_out() -> None:
    longest = b"x" * 255
    headers = [
        Header(b"", b"v"),
        Header(b"n", b""),
        Header(longest + b"x", b"v"),
        Header(b"n", longest + b"x"),
        Header(b"\xff", b"v"),
        Header(longest, longest),
        Header(b"text", b"\xff"),
    ]
    for key in (None, b"", longest + b"x"):
        record = Record(0, 1, key=key, value=b"v", headers=headers)
        (seen,) = IGGY.decode(IGGY.encode([record], 0), 0, 1).records
        assert seen.headers == [
            Header(longest, longest),
            Header(b"text", b"\xff", HeaderKind.RAW),
        ]


@pytest.mark.parametrize("value", [None, b""])
def test_a_record_without_payload_is_not_carried(value: bytes | None) -> None:
    assert not IGGY.carries(Record(0, 1, key=b"k", value=value))


def test_messages_without_an_id_get_random_uuids() -> None:
    seed = random.Random(3)
    messages = sent(b"a", message_id=0) * 130 + sent(b"b", message_id=2**128 - 1)
    body = body_from_send(messages, 0, 1, random_bytes=seed.randbytes).body
    ids = [message.id for message in IGGY_POLLS.parse(body[4:]).messages]
    assert ids[-1] == b"\xff" * 16
    assert len(set(ids)) == 131
    for message_id in ids[:-1]:
        assert uuid.UUID(bytes=bytes(message_id)).version == 4
        assert uuid.UUID(bytes=bytes(message_id)).variant == uuid.RFC_4122


@pytest.mark.parametrize(
    "headers",
    [
        header(b"", b"v"),
        header(b"n", b""),
        header(b"x" * 256, b"v"),
        header(b"n", b"x" * 256),
        header(b"\xff", b"v"),
        header(b"n", b"v", 0),
        header(b"n", b"v", 16),
        header(b"n", b"v")[:-1],
        header(b"n", b"v") + b"\0",
        header(b"n", b"v")[:6],
        struct.pack("<I", 2**32 - 1) + b"n",
    ],
)
def test_unreadable_headers_are_corrupt(headers: bytes) -> None:
    with pytest.raises(CorruptBody):
        body_from_send(sent(b"v", header(b"ok", b"v") + headers), 0, 1)


def test_limits_of_a_send_are_exact() -> None:
    two = sent(b"x" * 50) + sent(b"y" * 51)
    assert body_from_send(two, 0, 1, payload_bytes_max=101).info == BodyInfo(2)
    with pytest.raises(RecordTooLarge):
        body_from_send(two, 0, 1, payload_bytes_max=100)
    full = b"".join(header(b"%d" % n, b"x" * 200) for n in range(HEADER_BYTES_MAX // 200))
    assert body_from_send(sent(b"v", full), 0, 1).info == BodyInfo(1)
    with pytest.raises(RecordTooLarge):
        body_from_send(sent(b"v", full + header(b"n", b"v")), 0, 1)


@pytest.mark.parametrize("bad", [b"", sent(b""), sent(b"v") + sent(b"")])
def test_no_message_and_empty_payloads_are_corrupt(bad: bytes) -> None:
    with pytest.raises(CorruptBody):
        body_from_send(bad, 0, 1)


def test_a_send_cut_anywhere_is_corrupt() -> None:
    whole = sent(b"value", header(b"n", b"v"))
    for end in range(1, len(whole)):
        with pytest.raises(CorruptBody):
            body_from_send(whole + whole[:end], 0, 1)


def test_split_gives_whole_records_from_an_offset_up_to_a_count() -> None:
    body = body_from_send(b"".join(sent(b"%d" % n) for n in range(5)), 10, 1, key=b"k").body
    for start in range(8, 17):
        for most in range(1, 7):
            starts = IGGY.split(body, 10, start_offset=start, starts_max=most)
            assert [offset for offset, _ in starts] == list(range(max(start, 10), 15))[:most]
            for offset, pos in starts:
                assert IGGY_POLLS.parse(bytes(body[pos:])).messages[0].offset == offset


def test_a_head_of_another_version_is_corrupt() -> None:
    body = body_from_send(sent(b"a"), 0, 1).body
    for bad in (b"", body[:3], b"\0\0\1\0" + body[4:], b"\xff\xff\0\0" + body[4:]):
        assert isinstance(IGGY.decode(bad, 0, 1).failed, CorruptBody)
        with pytest.raises(CorruptBody):
            IGGY.split(bad, 0)


@QUICK
@given(
    messages=st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=20),
            st.lists(
                st.tuples(st.text(min_size=1, max_size=5), st.binary(min_size=1, max_size=9)),
                max_size=3,
            ),
            st.integers(1, 2**128 - 1),
        ),
        min_size=1,
        max_size=4,
    ),
    base_offset=st.integers(0, 2**62),
)
def test_the_description_parses_the_stored_messages(
    messages: list[tuple[bytes, list[tuple[str, bytes]], int]], base_offset: int
) -> None:
    raw = b"".join(
        sent(payload, b"".join(header(name.encode(), value) for name, value in headers), message_id)
        for payload, headers, message_id in messages
    )
    body = body_from_send(raw, base_offset, 77).body
    stored_messages = IGGY_POLLS.parse(body[4:]).messages
    assert [message.offset - base_offset for message in stored_messages] == list(
        range(len(messages))
    )
    for message, (payload, headers, message_id) in zip(stored_messages, messages, strict=True):
        assert (message.state, message.timestamp) == (1, 77)
        assert message.id == message_id.to_bytes(16, "little")
        assert (message.payload, message.checksum) == (payload, zlib.crc32(payload))
        assert [(h.name.decode(), h.value) for h in message.headers] == headers


@pytest.mark.parametrize("seed", range(20))
def test_hostile_sends_raise_only_body_errors(seed: int) -> None:
    rng = random.Random(seed)
    good = sent(b"value", header(b"n", b"v")) + sent(b"other")
    for _ in range(60):
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            body = body_from_send(bytes(bad), 0, 1)
        except BodyError:
            continue
        assert IGGY.inspect(body.body) == body.info
