import random

import pytest
from crc32c import crc32c

from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.batch import (
    ABSENT_US,
    HEADER_BYTES,
    BadHeader,
    BatchHeader,
    body_checksum,
    pack,
    peek,
    unpack,
)
from tests.storage.log.layouts import BATCH_HEADER

SALT = 0x5EEDFACE


def some_header(**fields):
    return BatchHeader(
        **{
            "partition_id": 7,
            "base_offset": 1000,
            "last_offset_delta": 9,
            "record_count": 8,
            "durable_offset": 990,
            "append_us": 1_700_000_000_000_123,
            "body_format": 3,
            "body_version": 2,
            "flags": BatchFlag.COMPRESSED | BatchFlag.COMPACTED,
            "owner_epoch": 5,
            "first_publish_us": 1_699_999_999_000_000,
            "max_publish_us": 1_699_999_999_500_000,
            "producer_id": 77,
            "producer_epoch": -1,
            "first_sequence": 41,
            "last_sequence": 50,
            "positions_bytes": 32,
            "body_bytes": 12345,
            "body_crc": 0xCAFEBABE,
        }
        | fields
    )


def test_header_bytes_equal_the_format_page():
    header = some_header()
    data = pack(header, SALT)
    assert len(data) == HEADER_BYTES == BATCH_HEADER.sizeof()
    parsed = BATCH_HEADER.parse(data)
    for name in BatchHeader.__dataclass_fields__:
        assert parsed[name] == getattr(header, name), name
    assert parsed.header_crc == crc32c(data[8:], SALT)


def test_a_header_round_trips():
    header = some_header()
    assert unpack(pack(header, SALT), SALT) == header
    assert unpack(memoryview(b"..." + pack(header, SALT) + b"..."), SALT, 3) == header


def test_absent_times_are_not_zero():
    header = some_header(first_publish_us=None, max_publish_us=None)
    parsed = BATCH_HEADER.parse(pack(header, SALT))
    assert parsed.first_publish_us == parsed.max_publish_us == ABSENT_US
    assert unpack(pack(header, SALT), SALT) == header
    assert unpack(pack(some_header(first_publish_us=0), SALT), SALT).first_publish_us == 0


def test_a_glance_returns_the_next_batch_and_the_body_checksum():
    data = b"..." + pack(some_header(), SALT)
    assert peek(data, 3, SALT, 7, 1000) == (1010, 12345 + 32, 0xCAFEBABE)


@pytest.mark.parametrize(
    ("pos", "salt", "partition_id", "base_offset"),
    [(2, SALT, 7, 1000), (3, SALT + 1, 7, 1000), (3, SALT, 8, 1000), (3, SALT, 7, 1001)],
    ids=["place", "salt", "partition", "offset"],
)
def test_a_glance_accepts_only_the_expected_batch(pos, salt, partition_id, base_offset):
    data = b"..." + pack(some_header(), SALT)
    assert peek(data, pos, salt, partition_id, base_offset) is None
    assert peek(data[:-1], 3, SALT, 7, 1000) is None


def test_batch_time_is_the_publish_time_else_the_append_time():
    assert some_header().time_us == 1_699_999_999_500_000
    assert some_header(max_publish_us=None).time_us == 1_700_000_000_000_123


def test_every_flipped_bit_is_found():
    data = pack(some_header(), SALT)
    for bit in range(len(data) * 8):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadHeader):
            unpack(wrong, SALT)
        assert peek(wrong, 0, SALT, 7, 1000) is None


def test_a_header_with_another_salt_is_refused():
    with pytest.raises(BadHeader, match="checksum"):
        unpack(pack(some_header(), SALT), SALT + 1)


def test_a_short_header_is_refused():
    data = pack(some_header(), SALT)
    for size in range(HEADER_BYTES):
        with pytest.raises(BadHeader):
            unpack(data[:size], SALT)


@pytest.mark.parametrize(
    ("change", "reason"), [({"version": 2}, "version 2"), ({"reserved": 1}, "reserved")]
)
def test_a_later_version_is_refused(change, reason):
    fields = BATCH_HEADER.parse(pack(some_header(), SALT))
    rest = bytearray(BATCH_HEADER.build(fields)[8:])
    if "version" in change:
        rest[0] = 2
    else:
        rest[-1] = 1
    data = bytes.fromhex("f34241d7") + crc32c(bytes(rest), SALT).to_bytes(4, "little") + rest
    with pytest.raises(BadHeader, match=reason):
        unpack(data, SALT)
    assert peek(data, 0, SALT, 7, 1000) is None


def test_unknown_flags_are_refused():
    data = pack(some_header(flags=1 << 20), SALT)
    with pytest.raises(BadHeader, match="reserved"):
        unpack(data, SALT)
    assert peek(data, 0, SALT, 7, 1000) is None


def test_the_body_checksum_does_not_depend_on_the_pieces():
    content = random.Random(4).randbytes(1000)
    assert body_checksum([content]) == crc32c(content)
    assert body_checksum([content[:1], b"", memoryview(content)[1:]]) == crc32c(content)
