"""The bytes of objects: pairs of values and literal bytes, and refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.storage.shared.layout import (
    KIND_PACK,
    KIND_ROUND,
    BadObject,
    ObjectHeader,
    SliceEntry,
    joined,
    pack_entries,
    pack_footer,
    pack_header,
    pack_name,
    round_name,
    segment_name,
    shard_of,
    unpack_entries,
    unpack_footer,
    unpack_header,
)

HEADER = ObjectHeader(KIND_ROUND, owner=7, number=9, mark=0x0102030405060708, part=3)
HEADER_HEX = (
    "42524149444f424a 0100 0100 03000000 0700000000000000 0900000000000000 0807060504030201"
    " 00000000 56138bd9"
)
ENTRY = SliceEntry(1, 2, 3, 0, 100, 3, 13, 48, 99)
ENTRY_HEX = (
    "0100000000000000 0200000000000000 0300000000000000 0000000000000000 6400000000000000"
    " 0300000000000000 0d00000000000000 3000000000000000 6300000000000000"
)


def test_a_header_is_these_bytes():
    packed = pack_header(HEADER)
    assert packed.hex() == HEADER_HEX.replace(" ", "")
    assert unpack_header(packed) == HEADER
    assert unpack_header(pack_header(ObjectHeader(KIND_PACK, 1, 2, 3))).kind == KIND_PACK


def test_a_footer_is_these_bytes():
    header = pack_header(HEADER)
    tail = pack_footer(header, [ENTRY])
    assert tail[:72].hex() == ENTRY_HEX.replace(" ", "")
    assert tail[72:76].hex() == "01000000" and tail[80:] == b"BRAIDEND" and len(tail) == 88
    assert unpack_footer(header, tail) == [ENTRY]
    assert unpack_footer(header, pack_footer(header, [])) == []
    assert unpack_entries(pack_entries([ENTRY, ENTRY])) == [ENTRY, ENTRY]


def test_every_flipped_byte_is_found():
    header = pack_header(HEADER)
    tail = pack_footer(header, [ENTRY, ENTRY])
    for pos in range(len(header)):
        with pytest.raises(BadObject):
            unpack_header(flipped(header, pos))
        with pytest.raises(BadObject):
            unpack_footer(flipped(header, pos), tail)
    for pos in range(len(tail)):
        with pytest.raises(BadObject):
            unpack_footer(header, flipped(tail, pos))
    for size in range(len(tail)):
        with pytest.raises(BadObject):
            unpack_footer(header, tail[:size])


def flipped(data, pos):
    return data[:pos] + bytes([data[pos] ^ 0x40]) + data[pos + 1 :]


@given(st.binary(max_size=200))
def test_any_bytes_raise_a_single_error_type(data):
    for unpack in (unpack_header, lambda d: unpack_footer(b"x" * 48, d)):
        with pytest.raises(BadObject):
            unpack(data)


def test_adjacent_slices_of_file_and_object_are_a_single_entry():
    first = SliceEntry(1, 2, 0, 0, 100, 0, 10, 48, 5)
    second = SliceEntry(1, 2, 0, 100, 50, 10, 12, 148, 9)
    other = SliceEntry(1, 3, 0, 0, 10, 0, 1, 198, 9)
    apart = SliceEntry(1, 3, 0, 10, 10, 1, 2, 300, 9)
    assert joined([first, second, other, apart]) == [
        SliceEntry(1, 2, 0, 0, 150, 0, 12, 48, 9),
        other,
        apart,
    ]


def test_names_sort_and_shards_are_fixed():
    assert round_name(5, 12, 0) == "rounds/5/00000000000000000012.0"
    assert pack_name(3, 2, 17) == "packs/3/2-17"
    assert segment_name(9, 1000, 2, 0) == "segments/9/00000000000000001000-2-0"
    assert shard_of("public/default/orders", 64) == 46
    assert {shard_of(f"public/default/t{n}", 4) for n in range(64)} == {1, 2, 3, 4}
