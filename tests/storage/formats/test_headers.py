import struct

import pytest

from braidlog.storage.formats.headers import header_text, is_text
from braidlog.storage.formats.record import Header, HeaderKind

TEXTS = [
    (HeaderKind.STRING, b"order", b"order"),
    (HeaderKind.RAW, b"\xff\x00", b"\xff\x00"),
    (HeaderKind.BOOL, b"\x00", b"false"),
    (HeaderKind.BOOL, b"\x01", b"true"),
    (HeaderKind.BOOL, b"\x02", b"\x02"),
    (HeaderKind.INT8, b"\xff", b"-1"),
    (HeaderKind.UINT8, b"\xff", b"255"),
    (HeaderKind.INT16, b"\xfe\xff", b"-2"),
    (HeaderKind.UINT16, b"\x01\x02", b"513"),
    (HeaderKind.INT32, b"\x00\x00\x00\x80", b"-2147483648"),
    (HeaderKind.UINT32, b"\x07\x00\x00\x00", b"7"),
    (HeaderKind.INT64, b"\xff" * 8, b"-1"),
    (HeaderKind.UINT64, b"\xff" * 8, b"18446744073709551615"),
    (HeaderKind.INT128, b"\xff" * 16, b"-1"),
    (HeaderKind.UINT128, b"\xff" * 16, b"340282366920938463463374607431768211455"),
    (HeaderKind.FLOAT32, struct.pack("<f", 0.1), b"0.1"),
    (HeaderKind.FLOAT32, b"\xff\xff\x7f\x7f", b"3.4028235e+38"),
    (HeaderKind.FLOAT32, struct.pack("<f", float("inf")), b"inf"),
    (HeaderKind.FLOAT64, struct.pack("<d", 0.1), b"0.1"),
    (HeaderKind.FLOAT64, struct.pack("<d", -2.5e300), b"-2.5e+300"),
]


@pytest.mark.parametrize(("kind", "value", "text"), TEXTS)
def test_typed_values_are_shown_as_text(kind: int, value: bytes, text: bytes) -> None:
    assert header_text(Header(b"n", value, kind)) == text


@pytest.mark.parametrize("kind", HeaderKind)
def test_a_value_with_a_wrong_size_for_its_kind_is_unchanged(kind: int) -> None:
    assert header_text(Header(b"n", b"abc", kind)) == b"abc"


def test_only_utf_8_is_text() -> None:
    assert is_text("käse".encode())
    assert is_text(b"")
    assert not is_text(b"\xe4")
    assert not is_text(b"\xed\xa0\x80")  # A lone surrogate.
