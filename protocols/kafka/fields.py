"""Reads the parts of a request, and collects the parts of an answer. Knows no message.

Layout rules: Kafka protocol guide, "Protocol Primitive Types".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.reader import BigEndianReader
from braidlog.storage.formats.api import Part

# The most topics, partitions and other entries in a request: five times what one broker is meant to
# hold. Without a limit a frame full of empty names would become gigabytes of objects.
ENTRIES_MAX = 50_000
# A request with more is decoded, and the answer encoded, in a thread: the work takes ten
# milliseconds.
ENTRIES_INLINE_MAX = 5000
# A request with more is large: the names in all such requests are counted (`large_requests.py`).
ENTRIES_FEW_MAX = 128

IN_MEMORY = (bytes, bytearray, memoryview)  # A part that is no `StoredPart`.
# A shorter piece of a message set is copied into the surrounding bytes: cheaper than a separate
# part.
PIECE_BYTES_MIN = 4096

UVARINT_BITS = 35

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")

Value = Any  # A field's value; the type depends on the field.
# Reads a value at a position of a frame with an end; returns the value and the position behind it.
ReadValue = Callable[["FieldReader", memoryview, int, int], tuple[Value, int]]


class ManyEntries(Exception):
    """The request names more topics and partitions than the reader's limit."""


class FieldReader(BigEndianReader):
    """Kafka's strings and arrays on top of its integers."""

    __slots__ = ("_inline_max", "named")

    def __init__(self, view: memoryview, pos: int = 0, *, inline_max: int = ENTRIES_MAX) -> None:
        """Begin to read a request at byte `pos` of its frame.

        Reading more than `inline_max` topics and partitions raises ManyEntries.
        """
        self._view = view
        self._pos = pos
        self._end = len(view)
        self.named = 0  # topics, partitions and other entries of arrays so far
        self._inline_max = inline_max

    def string(self) -> bytes | None:
        """Return a string; any negative length is null, as in 0.8."""
        pos = self._pos + INT16.size  # hot: see make bench
        if pos > self._end:
            self.i16()  # Raises.
        size = INT16.unpack_from(self._view, self._pos)[0]
        self._pos = pos
        return None if size < 0 else bytes(self.take(size))

    def add_entries(self, count: int) -> None:
        """Count the topics or partitions that follow. Raises ProtocolError, ManyEntries."""
        self.named += count
        if self.named > self._inline_max:
            if self.named > ENTRIES_MAX:
                raise ProtocolError(f"request names more than {ENTRIES_MAX} topics and partitions")
            raise ManyEntries

    def uvarint(self) -> int:
        """Return an unsigned number of up to 32 bits, in groups of 7 bits, lowest first. Raises
        ProtocolError.
        """
        pos = self._pos  # hot: see make bench
        if pos < self._end and self._view[pos] < 0x80:
            self._pos = pos + 1
            return self._view[pos]
        number = 0
        for shift in range(0, UVARINT_BITS, 7):
            byte = self.u8()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ProtocolError(f"number of more than {UVARINT_BITS // 7} bytes")

    def uvarint_at(self, pos: int) -> tuple[int, int]:
        """Return the unsigned number at a position, and the position behind it."""
        self._pos = pos
        return self.uvarint(), self._pos

    def skip_at(self, pos: int, size: int) -> int:
        """Return the position behind bytes at a position. Raises ProtocolError."""
        self._pos = pos
        self.take(size)
        return self._pos

    def value_at(self, pos: int, read: ReadValue) -> tuple[Value, int]:
        """Return the value at a position, and the position behind it."""
        return read(self, self._view, pos, self._end)

    def value(self, read: ReadValue) -> Value:
        """Return the next value."""
        value, self._pos = read(self, self._view, self._pos, self._end)
        return value

    def skip_tags(self) -> None:
        """Skip the tagged fields at the end of a structure. Raises ProtocolError, ManyEntries."""
        pos = self._pos  # hot: see make bench
        if pos < self._end and not self._view[pos]:
            self._pos = pos + 1
            return
        count = self.uvarint()
        self.add_entries(count)
        for _ in range(count):
            self.uvarint()  # The number of the field.
            self.take(self.uvarint())


class Writer:
    """Collects an answer: small fields are joined, large pieces stay separate."""

    __slots__ = ("_parts", "small")

    def __init__(self) -> None:
        """Begin an empty answer."""
        self._parts: list[Part] = []
        self.small = bytearray()

    def piece(self, data: Part) -> None:
        """Append bytes. A large piece is not copied and must not change."""
        if len(data) < PIECE_BYTES_MIN and isinstance(data, IN_MEMORY):
            self.small += data
            return
        if self.small:
            self._parts.append(bytes(self.small))
            self.small.clear()
        self._parts.append(data)

    @property
    def size(self) -> int:
        """Return the bytes of the answer."""
        return len(self.small) + (sum(map(len, self._parts)) if self._parts else 0)

    def parts(self, head: bytes = b"") -> list[Part]:
        """Return the whole answer, in order; `head` comes first."""
        if not self._parts:
            return [head + self.small] if head or self.small else []
        first = [head] if head else []
        last = [bytes(self.small)] if self.small else []
        return [*first, *self._parts, *last]


def uvarint_bytes(number: int) -> bytes:
    """Encode an unsigned number in groups of 7 bits, lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
