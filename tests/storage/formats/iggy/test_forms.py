"""The wire forms of Iggy's later dialects: captured bytes in, the stored form, and back."""

import struct
import zlib
from collections.abc import Iterable

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from braidlog.storage.errors import BodyError, CorruptBody
from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.iggy.forms import (
    ONE_BATCH_BYTES_MAX,
    batches,
    batches_one_by_one,
    body_from_batch,
    body_from_untyped,
    crc32_wide,
    untyped,
)
from braidlog.storage.formats.iggy.typed import IGGY_TYPED, BrokenRule, body_from_typed, checksum_of
from braidlog.storage.formats.quick import SPEEDUPS
from tests.storage.formats.iggy.test_typed import message
from tests.storage.formats.strategies import QUICK

# apache-iggy 0.9.0, SEND of "hello" and "world!": batch header and frames, as captured.
BATCH = bytes.fromhex(
    "000000000000000000000000000000000000000000000000 5659c5ccbf600600 6b01000000000000"
    "dae7f49c6b28e228 02000000"
) + bytes(204)
BATCH += bytes.fromhex(
    "81978a59106f675b d32d5df273c7479d8a310663cd0ada45 00000000 00000000 00000000 05000000"
    "0000000000000000 68656c6c6f"
    "69911dab0b49efa5 5a05eb903f334ea9b0659e3cf5c564e9 01000000 00000000 00000000 06000000"
    "0000000000000000 776f726c6421"
)
SENT_US = 0x000660BFCCC55956
# Two headers as in D3 and D4: keys without kinds.
UNTYPED_HEADERS = b"\x04\0\0\0kind\x02\x05\0\0\0order" + b"\x02\0\0\0n1\x0b\x04\0\0\0\x07\0\0\0"
TYPED_HEADERS = (
    b"\x02\x04\0\0\0kind\x02\x05\0\0\0order" + b"\x02\x02\0\0\0n1\x0b\x04\0\0\0\x07\0\0\0"
)


def untyped_message(payload: bytes, headers: bytes = b"", sent_us: int = 7) -> bytes:
    head = struct.pack(
        "<Q16sQQQII", 0, b"\x01" + bytes(15), 0, 0, sent_us, len(headers), len(payload)
    )
    return head + payload + headers


def frame(payload: bytes, *, number: int = 0, headers: bytes = b"", delta: int = 0) -> bytes:
    rest = bytes(15) + b"\x09"
    rest += struct.pack("<IIIIQ", number, delta, len(headers), len(payload), 0) + payload + headers
    return struct.pack("<Q", xxhash.xxh3_64_intdigest(rest)) + rest


def batch(*frames: bytes, sent_us: int = 5, count: int | None = None, **set_: int) -> bytes:
    fields = [set_.get("partition", 0), set_.get("offset", 0), set_.get("append_us", 0)]
    fields += [sent_us, 256 + sum(map(len, frames))]
    number = len(frames) if count is None else count
    checked = struct.pack("<QQQQQI", *fields, number) + b"".join(frame[:8] for frame in frames)
    head = struct.pack("<QQQQQQI", *fields, xxhash.xxh3_64_intdigest(checked), number)
    return head.ljust(256, b"\0") + b"".join(frames)


def records_of(body: object) -> memoryview:
    return IGGY_TYPED.readable(body)


def batches_of(joined: Iterable[Buffer]) -> list[bytes]:
    """Split buffers of whole batches by the length in each head."""
    data, whole = b"".join(joined), list[bytes]()
    while data:
        (size,) = struct.unpack_from("<Q", data, 32)
        whole.append(data[:size])
        data = data[size:]
    return whole


def test_the_captured_batch_round_trips() -> None:
    prepared = body_from_batch(BATCH, 2, 0, 1000)
    decoded = IGGY_TYPED.decode(prepared.body, 0, 1000).records
    assert [(record.offset, record.value, record.publish_us) for record in decoded] == [
        (0, b"hello", SENT_US),
        (1, b"world!", SENT_US),
    ]
    (shown,) = batches(records_of(prepared.body), 0)
    assert struct.unpack_from("<QQQQ", shown) == (0, 0, 1000, SENT_US)
    assert shown[256:] == BATCH[256:]  # Frames and their checksums, byte for byte.
    again = bytearray(shown)
    again[16:24] = bytes(8)  # Without the append time, the batch equals the sent batch.
    checked = again[:40] + again[48:52] + BATCH[256:264] + BATCH[309:317]
    struct.pack_into("<Q", again, 40, checksum_of(bytes(checked)))
    assert bytes(again) == BATCH


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (batch(frame(b"x"), offset=1), "offset"),
        (batch(frame(b"x"), partition=1), "offset"),
        (batch(frame(b"x"), append_us=1), "timestamp"),
        (batch(frame(b"x")[:-1] + b"y"), "message_checksum"),
        (batch(frame(b"x"))[:40] + bytes(8) + batch(frame(b"x"))[48:], "batch_checksum"),
    ],
)
def test_invalid_batches_are_refused(broken: bytes, rule: str) -> None:
    with pytest.raises(BrokenRule) as caught:
        body_from_batch(broken, 1, 0, 1)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        batch(),
        batch(frame(b"x"))[:255],
        batch(frame(b"x"))[:-1],
        batch(frame(b"x"), count=2),
        batch(frame(b"x", number=1)),
        batch(frame(b"x"))[:52] + b"\x01" + batch(frame(b"x"))[53:],
    ],
)
def test_impossible_batches_are_refused(broken: bytes) -> None:
    with pytest.raises(CorruptBody):
        body_from_batch(broken, max(1, broken[48] if len(broken) > 48 else 0), 0, 1)


def test_empty_payloads_and_ids_of_zero_are_kept() -> None:
    empty = bytes(16) + struct.pack("<IIIIQ", 0, 0, 0, 0, 0)
    sent = batch(struct.pack("<Q", xxhash.xxh3_64_intdigest(empty)) + empty)
    (record,) = IGGY_TYPED.decode(body_from_batch(sent, 1, 0, 1).body, 0, 1).records
    assert (record.value, record.message_id) == (b"", 0)


def test_a_batch_covers_a_single_append_time_and_range_of_times() -> None:
    far = 1 << 33
    first = body_from_typed(message(b"a", sent_us=far) + message(b"b", sent_us=far + 3), 0, 10)
    later = body_from_typed(message(b"c", sent_us=far - 2), 2, 11)
    distant = body_from_typed(message(b"d", sent_us=2) + message(b"e", sent_us=far), 3, 12)
    records = b"".join(bytes(records_of(batch.body)) for batch in (first, later, distant))
    joined = batches_of(batches(memoryview(records), 4))
    heads = [struct.unpack_from("<QQQQQQI", batch) for batch in joined]
    assert [(head[0], head[1], head[2], head[3], head[6]) for head in heads] == [
        (4, 0, 10, far, 2),
        (4, 2, 11, far - 2, 1),
        (4, 3, 12, 2, 1),
        (4, 4, 12, far, 1),
    ]
    assert struct.unpack_from("<II", joined[0], 256 + 24 + 48 + 1) == (1, 3)


@pytest.mark.parametrize("digest", [crc32_wide, checksum_of])
def test_untyped_messages_round_trip(digest) -> None:
    sent = untyped_message(b"hello", UNTYPED_HEADERS) + untyped_message(b"x")
    prepared = body_from_untyped(sent, 3, 1000)
    typed = message(b"hello", TYPED_HEADERS) + message(b"x")
    assert bytes(prepared.body) == bytes(body_from_typed(typed, 3, 1000).body)
    shown = untyped(records_of(prepared.body), digest)
    first = shown[: 56 + 5 + len(UNTYPED_HEADERS)]
    assert struct.unpack_from("<Q16sQQQII", first)[1:] == (
        *(b"\x01" + bytes(15), 3, 1000, 7),
        *(len(UNTYPED_HEADERS), 5),
    )
    assert first[56:] == b"hello" + UNTYPED_HEADERS
    assert struct.unpack_from("<Q", first) == (digest(first[8:]),)


def test_the_checksum_of_crate_0_7_is_zlibs() -> None:
    assert crc32_wide(b"hello") == zlib.crc32(b"hello")


def test_binary_keys_are_left_out_without_key_kinds() -> None:
    block = b"\x0b\x04\0\0\0\x07\0\0\0\x02\x01\0\0\0v" + TYPED_HEADERS
    prepared = body_from_typed(message(b"x", block), 0, 1)
    assert untyped(records_of(prepared.body), checksum_of).endswith(b"x" + UNTYPED_HEADERS)


@QUICK
@given(st.binary(max_size=400), st.integers(0, 3))
def test_any_bytes_raise_only_body_errors(data: bytes, count: int) -> None:
    for act in (
        lambda: body_from_untyped(data, 0, 1),
        lambda: body_from_batch(data, count, 0, 1),
        lambda: body_from_batch(batch(data, count=count), count, 0, 1),
    ):
        try:
            act()
        except BodyError:
            pass


def test_batches_are_written_into_the_given_memory() -> None:
    records = records_of(body_from_typed(message(b"a") + message(b"b"), 0, 10).body)
    lent: list[memoryview] = []

    def memory(size: int) -> memoryview:
        lent.append(memoryview(bytearray(size)))
        return lent[-1]

    joined = list(batches(records, 4, memory))
    if SPEEDUPS is not None:
        assert [bytes(room[: len(part)]) for room, part in zip(lent, joined, strict=True)] == joined
    assert batches_of(joined) == list(batches_one_by_one(records, 4))


def test_a_batch_has_a_bounded_length_unless_a_message_is_longer() -> None:
    long = b"x" * (ONE_BATCH_BYTES_MAX // 2)
    bodies = [body_from_typed(message(value), at, 10).body for at, value in
              enumerate((long, long, long * 3, b"y"))]  # fmt: skip
    records = memoryview(b"".join(bytes(records_of(body)) for body in bodies))
    joined = batches_of(batches(records, 0))
    assert [len(batch) > ONE_BATCH_BYTES_MAX for batch in joined] == [False, False, True, False]
    assert joined == list(batches_one_by_one(records, 0))
