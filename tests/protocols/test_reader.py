"""The bounds-checked reader: both byte orders, and ProtocolError for cut fields."""

import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.reader import BigEndianReader, LittleEndianReader, Reader

FIELDS = [
    ("u8", "B", 0xFE),
    ("i16", "h", -2),
    ("u32", "I", 0xFEDCBA98),
    ("i32", "i", -3),
]
READERS = [(BigEndianReader, ">"), (LittleEndianReader, "<")]


@pytest.mark.parametrize(("reader_type", "order"), READERS)
@pytest.mark.parametrize(("method", "code", "value"), FIELDS)
def test_integers_are_read_in_their_byte_order(
    reader_type: type[Reader], order: str, method: str, code: str, value: int
) -> None:
    data = struct.pack(order + code, value)
    reader = reader_type(memoryview(b"\xaa" + data + b"\xbb"), pos=1)
    assert getattr(reader, method)() == value
    assert (reader.pos, reader.left) == (1 + len(data), 1)


@pytest.mark.parametrize(("reader_type", "order"), READERS)
@pytest.mark.parametrize(("method", "code", "value"), FIELDS)
def test_integer_cut_short_raises_protocol_error(
    reader_type: type[Reader], order: str, method: str, code: str, value: int
) -> None:
    data = struct.pack(order + code, value)
    with pytest.raises(ProtocolError):
        getattr(reader_type(memoryview(data[:-1])), method)()


def test_take_gives_views_of_the_frame_and_stays_inside_it() -> None:
    frame = bytearray(b"abcdef")
    reader = BigEndianReader(memoryview(frame))
    piece = reader.take(2)
    frame[0] = ord("x")
    assert piece == b"xb"
    assert reader.rest() == b"cdef"
    assert reader.rest() == b""


@pytest.mark.parametrize("size", [-1, 4, 2**31])
def test_take_outside_the_frame_raises_and_does_not_move(size: int) -> None:
    reader = BigEndianReader(memoryview(b"abc"))
    with pytest.raises(ProtocolError):
        reader.take(size)
    assert reader.pos == 0


def test_unpack_reads_a_whole_layout_or_nothing() -> None:
    layout = struct.Struct(">hi")
    reader = BigEndianReader(memoryview(b"\x00\x01\x00\x00\x00\x02\x00"))
    assert reader.unpack(layout) == (1, 2)
    with pytest.raises(ProtocolError):
        reader.unpack(layout)
    assert reader.left == 1
