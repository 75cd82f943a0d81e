from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from braidlog.storage.log.segment import segment_bases, segment_path
from braidlog.storage.log.segment_header import (
    FLAG_COMPACTED,
    FLAG_SNAPSHOT,
    KIND_CURSORS,
    SEGMENT_HEADER_BYTES,
    BadSegment,
    SegmentHeader,
    new_salt,
    pack_segment_header,
    unpack_segment_header,
)
from tests.storage.log.layouts import NAMED_SEGMENT_HEADER, SEGMENT_HEADER
from tests.storage.log.logs import OneLog

HEADER = SegmentHeader(KIND_CURSORS, 0xDEADBEEF, 12, 345678, FLAG_SNAPSHOT)


def test_header_bytes_equal_the_format_page():
    data = pack_segment_header(HEADER)
    parsed = SEGMENT_HEADER.parse(data)
    assert len(data) == SEGMENT_HEADER_BYTES == SEGMENT_HEADER.sizeof()
    for name in ("kind", "salt", "partition_id", "base_offset", "flags"):
        assert parsed[name] == getattr(HEADER, name)
    assert parsed.crc == crc32c(data[:60])
    assert SEGMENT_HEADER.build(parsed) == data
    assert unpack_segment_header(data) == HEADER


def test_a_header_with_its_directory_has_the_second_version():
    header = SegmentHeader(1, 0xDEADBEEF, 12, 7, FLAG_COMPACTED, 9, 8, -5, directory_id=1 << 63)
    for written_header in (header, replace(HEADER, directory_id=5)):
        data = pack_segment_header(written_header)
        parsed = NAMED_SEGMENT_HEADER.parse(data)
        assert len(data) == SEGMENT_HEADER_BYTES == NAMED_SEGMENT_HEADER.sizeof()
        for name in SegmentHeader.__dataclass_fields__:
            assert parsed[name] == getattr(written_header, name)
        assert parsed.crc == crc32c(data[:60])
        assert NAMED_SEGMENT_HEADER.build(parsed) == data
        assert unpack_segment_header(data) == written_header


def test_a_header_of_the_second_version_must_name_a_directory():
    data = bytearray(pack_segment_header(replace(HEADER, directory_id=5)))
    data[12:20] = bytes(8)
    data[60:] = crc32c(bytes(data[:60])).to_bytes(4, "little")
    with pytest.raises(BadSegment, match="directory"):
        unpack_segment_header(data)


@pytest.mark.parametrize("directory_id", [0, 77])
def test_every_flipped_bit_and_every_cut_is_found(directory_id):
    data = pack_segment_header(replace(HEADER, directory_id=directory_id))
    for bit in range(len(data) * 8):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadSegment):
            unpack_segment_header(wrong)
    for size in range(len(data)):
        with pytest.raises(BadSegment):
            unpack_segment_header(data[:size])


@pytest.mark.parametrize(
    "header",
    [
        SegmentHeader(1, 0, 1, 0),
        SegmentHeader(1, 5, 1, 0, flags=4),
        SegmentHeader(1, 5, 1, 0, end_offset=7),
    ],
    ids=["no salt", "unknown flag", "an end without its flag"],
)
def test_an_impossible_header_is_refused(header):
    with pytest.raises(BadSegment, match="reserved"):
        unpack_segment_header(pack_segment_header(header))


def test_file_names_are_base_offsets_of_twenty_digits():
    assert segment_path("x", 42) == "x/00000000000000000042.log"
    names = ["00000000000000000042.log", "00000000000000000007.log", "7.log", "topic", "a.log"]
    assert segment_bases(names) == [7, 42]


def test_salts_differ_and_are_never_zero():
    salts = {new_salt() for _ in range(1000)}
    assert len(salts) > 990
    assert all(0 < salt < 1 << 32 for salt in salts)


def test_a_segment_starts_with_its_header_and_batches_follow_without_space(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"abc", b"de"])
    data = Path(opened.file("00000000000000000000.log")).read_bytes()
    header = unpack_segment_header(data)
    assert (header.kind, header.partition_id, header.base_offset, header.flags) == (1, 1, 0, 0)
    assert len(data) == SEGMENT_HEADER_BYTES + 2 * 128 + 5
    assert data[SEGMENT_HEADER_BYTES + 128 :][:3] == b"abc"
