"""Length-prefixed framing: sizes from the first bytes, limits checked before buffering."""

import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.framing import LengthPrefix

PREFIX = LengthPrefix(struct.Struct(">i"), bytes_min=1, bytes_max=100)


@pytest.mark.parametrize("missing", [1, 2, 3, 4])
def test_the_size_is_unknown_until_the_whole_length(missing: int) -> None:
    assert PREFIX.frame_size(memoryview(b"\x00\x00\x00\x05"[:-missing])) is None


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("body", [b"", b"abc", b"x" * 200])
def test_size_counts_the_length_field_whatever_follows(size: int, body: bytes) -> None:
    assert PREFIX.frame_size(memoryview(struct.pack(">i", size) + body)) == size + 4


@pytest.mark.parametrize("size", [0, -1, 101, 2**31 - 1, -(2**31)])
def test_length_out_of_bounds_is_refused_at_once(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"frame of {size} bytes"):
        PREFIX.frame_size(memoryview(struct.pack(">i", size)))


def test_little_endian_lengths_are_a_layout_like_any_other() -> None:
    prefix = LengthPrefix(struct.Struct("<I"), bytes_min=4, bytes_max=10)
    assert prefix.frame_size(memoryview(b"\x04\x00\x00\x00")) == 8
