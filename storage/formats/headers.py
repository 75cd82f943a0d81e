"""Typed header values as text, for protocols whose headers are text. Knows no protocol's bytes."""

import struct

from braidlog.storage.formats.record import Header, HeaderKind

_FLOAT32 = struct.Struct("<f")
_FLOAT64 = struct.Struct("<d")

# Bytes of a value of each whole-number kind, and True for a signed kind.
INTEGERS: dict[int, tuple[int, bool]] = {
    HeaderKind.INT8: (1, True),
    HeaderKind.INT16: (2, True),
    HeaderKind.INT32: (4, True),
    HeaderKind.INT64: (8, True),
    HeaderKind.INT128: (16, True),
    HeaderKind.UINT8: (1, False),
    HeaderKind.UINT16: (2, False),
    HeaderKind.UINT32: (4, False),
    HeaderKind.UINT64: (8, False),
    HeaderKind.UINT128: (16, False),
}


def header_text(header: Header) -> bytes:
    """Return the value for a reader of text headers.

    Numbers are decimal, booleans `true` or `false`, strings and raw values their own bytes. A value
    whose size does not fit its kind, which Iggy does not check, also keeps its own bytes.
    """
    value = header.value
    kind = header.kind
    if kind in INTEGERS:
        size, signed = INTEGERS[kind]
        if len(value) == size:
            return b"%d" % int.from_bytes(value, "little", signed=signed)
    elif kind == HeaderKind.BOOL:
        return _BOOLEANS.get(value, value)
    elif kind == HeaderKind.FLOAT64 and len(value) == 8:
        return repr(_FLOAT64.unpack(value)[0]).encode()
    elif kind == HeaderKind.FLOAT32 and len(value) == 4:
        return _float32_text(value)
    return value


def is_text(value: bytes) -> bool:
    """Return True if the bytes are UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _float32_text(value: bytes) -> bytes:
    """Return the shortest decimal that reads back as the same 32-bit number."""
    number = _FLOAT32.unpack(value)[0]
    for digits in range(6, 9):
        text = f"{number:.{digits}g}"
        if _FLOAT32.pack(float(text)) == value:
            return text.encode()
    return f"{number:.9g}".encode()


_BOOLEANS: dict[bytes, bytes] = {b"\x00": b"false", b"\x01": b"true"}
