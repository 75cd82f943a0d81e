import random
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numpy", reason="the extra `fast` is not installed")

from storage.codecs import kafka_equal, kafka_prepare
from storage.codecs.kafka_layout import EQUAL_SET_MIN
from storage.codecs.kafka_prepare import prepare
from storage.errors import BodyError, CorruptBody
from tests.storage.codecs.strategies import QUICK
from tests.storage.codecs.test_kafka import entry, message

LIMIT = 1_000_012
kafka_prepare.EQUAL.wait()


def plainly(message_set: bytes) -> tuple[bytes, int] | type[BodyError]:
    """What the loop makes of a set: cut so that no piece is large enough for numpy."""
    body, count = b"", 0
    size = 12 + int.from_bytes(message_set[8:12], "big")
    step = size * (EQUAL_SET_MIN - 1)
    for pos in range(0, len(message_set), step):
        try:
            piece = prepare(message_set[pos : pos + step], 7 + count, 0, message_bytes_max=LIMIT)
        except BodyError as error:
            return type(error)
        body += bytes(piece.body)
        count += piece.info.record_count
    return body, count


def at_once(message_set: bytes) -> tuple[bytes, int] | type[BodyError]:
    try:
        whole = prepare(message_set, 7, 0, message_bytes_max=LIMIT)
    except BodyError as error:
        return type(error)
    return bytes(whole.body), whole.info.record_count


@QUICK
@given(
    key=st.none() | st.binary(max_size=4),
    value=st.none() | st.binary(max_size=9),
    count=st.integers(EQUAL_SET_MIN, EQUAL_SET_MIN + 9),
)
def test_equal_messages_come_out_as_from_the_loop(
    key: bytes | None, value: bytes | None, count: int
) -> None:
    message_set = entry(0, message(key, value)) * count
    buffer = bytearray(message_set)
    assert kafka_equal.check_and_stamp(memoryview(buffer), len(message_set) // count, 7)
    assert (bytes(buffer), count) == plainly(message_set) == at_once(message_set)


@pytest.mark.parametrize("seed", range(30))
def test_a_changed_byte_is_judged_as_by_the_loop(seed: int) -> None:
    rng = random.Random(seed)
    good = entry(0, message(b"key", b"value")) * EQUAL_SET_MIN
    for _ in range(40):
        bad = bytearray(good)
        place = rng.randrange(len(bad))
        bad[place] = rng.randrange(256)
        if place % (len(good) // EQUAL_SET_MIN) in range(8, 12):
            continue  # Sizes: the loop is fed in pieces of the first one.
        assert at_once(bytes(bad)) == plainly(bytes(bad))


def test_unusual_sets_are_left_to_the_loop_unchanged() -> None:
    size = len(entry(0, message(b"key", b"value")))
    usual = entry(0, message(b"key", b"value")) * EQUAL_SET_MIN
    for odd in (
        entry(0, message(b"k", b"value67")),  # same size, other lengths
        entry(0, message(None, b"12345678")),
        entry(0, message(b"key", b"value", attributes=8)),
        entry(0, message(b"key", b"value", magic=1)),
    ):
        assert len(odd) == size
        buffer = bytearray(usual[:-size] + odd)
        before = bytes(buffer)
        assert not kafka_equal.check_and_stamp(memoryview(buffer), size, 7)
        assert bytes(buffer) == before


@pytest.mark.parametrize("key_size", [99, 3, 1, -2])
def test_a_key_size_that_hides_behind_a_right_checksum_is_found(key_size: int) -> None:
    rest = b"\x00\x00" + struct.pack(">ii", key_size, 8) + b"12345678"
    bad = entry(0, struct.pack(">I", zlib.crc32(rest)) + rest)
    usual = entry(0, message(None, b"12345678")) * EQUAL_SET_MIN
    assert len(usual) == len(bad) * EQUAL_SET_MIN
    assert at_once(usual + bad) is CorruptBody
    assert at_once(bad * EQUAL_SET_MIN) is CorruptBody


def test_small_sets_do_not_load_numpy() -> None:
    small = bytearray(entry(0, message(None, b"x")) * (EQUAL_SET_MIN - 1))
    assert not kafka_prepare._stamp_equal(memoryview(small), 0, LIMIT)
