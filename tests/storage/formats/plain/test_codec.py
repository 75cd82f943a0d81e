import struct

import pytest
from msgspec.structs import replace

from braidlog.storage.errors import CorruptBody
from braidlog.storage.formats.api import BatchFlag, BodyInfo
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.record import Chunk, Header, HeaderKind, Record

DELAYED = int(BatchFlag.DELAYED)

FULL = Record(
    offset=12,
    append_us=5,
    publish_us=-1,
    event_us=2,
    key=b"",
    value=b"v",
    headers=[Header(b"n", b"\x07", HeaderKind.UINT8), Header(b"n", b"")],
    ordering_key=b"o",
    producer_name=b"p",
    sequence_id=3,
    message_id=4,
    schema_version=b"s",
    chunk=Chunk(b"u", 1, 2, 9, 3, 8),
    deliver_at_us=6,
)


def test_a_record_with_every_field_as_literal_bytes() -> None:
    """FORMAT.md, section 8.1."""
    fields = (
        "ffffffffffffffff 0200000000000000"  # publish, event
        "0300000000000000 04000000000000000000000000000000"  # sequence id, message id
        "00000000 01000000 76"  # key, value
        "01000000 6f 01000000 70 01000000 73"  # ordering key, producer, schema version
        "01000000 75 01000000 02000000 0900000000000000 08000000 03000000"  # chunk
        "02000000"  # headers
        "09000000 01000000 6e 01000000 07"
        "02000000 01000000 6e 00000000"
        "0600000000000000"  # delivery time
    )
    packed = bytes.fromhex(fields)
    body = struct.pack("<IIHH", 8 + len(packed), 2, 4095, 0) + packed
    assert PLAIN.encode([FULL], 10) == body
    assert PLAIN.decode(body, 10, 5).records == [FULL]


def test_an_empty_record_has_no_fields() -> None:
    body = bytes.fromhex("08000000 00000000 0000 0000")
    assert PLAIN.encode([Record(10, 5)], 10) == body
    assert PLAIN.decode(body, 10, 5).records == [Record(10, 5)]


def test_times_of_a_body_are_the_first_and_the_greatest() -> None:
    records = [replace(FULL, offset=n, publish_us=t) for n, t in enumerate([None, 7, 3, 9, 1])]
    assert PLAIN.inspect(PLAIN.encode(records, 0)) == BodyInfo(5, 7, 9, DELAYED)
    at_once = [replace(record, deliver_at_us=None) for record in records]
    assert PLAIN.inspect(PLAIN.encode(at_once, 0)) == BodyInfo(5, 7, 9)
    assert PLAIN.inspect(PLAIN.encode(at_once[:1], 0)) == BodyInfo(1)


def test_reserved_bits_are_of_another_version() -> None:
    body = PLAIN.encode([FULL], 10)
    for pos, value in ((9, body[9] | 0x10), (10, 1), (11, 1)):
        bad = bytearray(body)
        bad[pos] = value
        assert isinstance(PLAIN.decode(bad, 10, 5).failed, CorruptBody)


def test_a_record_with_trailing_bytes_is_corrupt() -> None:
    body = bytearray(PLAIN.encode([Record(10, 5, value=b"v")], 10)) + b"x"
    body[0] += 1
    assert isinstance(PLAIN.decode(body, 10, 5).failed, CorruptBody)


@pytest.mark.parametrize("seq", [2**64 - 1, -1])
def test_sequence_ids_are_unsigned(seq: int) -> None:
    body = PLAIN.encode([Record(0, 0, sequence_id=seq)], 0)
    assert PLAIN.decode(body, 0, 0).records[0].sequence_id == 2**64 - 1
