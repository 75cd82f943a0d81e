"""Reads the fields of a frame, with all bounds checks in one place. Knows no protocol.

A frame that ends too early raises ProtocolError and nothing else, for any bytes of the peer. `take`
and `rest` return views that are valid as long as the frame; the caller copies data that it keeps
longer.
"""

import struct
from typing import Any, ClassVar

from braidlog.broker.runtime.endings import ProtocolError


class Reader:
    """A position in a frame. Subclasses define the byte order of integers."""

    __slots__ = ("_end", "_pos", "_view")

    _U8: ClassVar = struct.Struct("B")
    _I16: ClassVar[struct.Struct]
    _U32: ClassVar[struct.Struct]
    _I32: ClassVar[struct.Struct]

    def __init__(self, view: memoryview, pos: int = 0) -> None:
        """Begin to read `view` at byte `pos`."""
        self._view = view
        self._pos = pos
        self._end = len(view)

    @property
    def pos(self) -> int:
        """Position of the next field, in bytes from the start of the view."""
        return self._pos

    @property
    def left(self) -> int:
        """Number of bytes not read yet."""
        return self._end - self._pos

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes, not copied. Raises ProtocolError if fewer are left."""
        start = self._pos
        end = start + size
        if size < 0 or end > self._end:
            raise ProtocolError(f"{size} bytes wanted at byte {start} of a frame of {self._end}")
        self._pos = end
        return self._view[start:end]

    def rest(self) -> memoryview:
        """Return all bytes not read yet, not copied."""
        return self.take(self.left)

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the fields of a layout, in the layout's byte order. Raises ProtocolError."""
        start = self._pos
        end = start + layout.size
        if end > self._end:
            raise ProtocolError(f"{layout.size} bytes wanted at byte {start} of {self._end}")
        self._pos = end
        return layout.unpack_from(self._view, start)

    def u8(self) -> int:
        """Return an unsigned byte."""
        return int(self.unpack(self._U8)[0])

    def i16(self) -> int:
        """Return a signed 16-bit integer."""
        return int(self.unpack(self._I16)[0])

    def u32(self) -> int:
        """Return an unsigned 32-bit integer."""
        return int(self.unpack(self._U32)[0])

    def i32(self) -> int:
        """Return a signed 32-bit integer."""
        return int(self.unpack(self._I32)[0])


class BigEndianReader(Reader):
    """A reader with integers in network byte order (Kafka, Pulsar)."""

    __slots__ = ()

    _I16 = struct.Struct(">h")
    _U32 = struct.Struct(">I")
    _I32 = struct.Struct(">i")


class LittleEndianReader(Reader):
    """A reader with the least significant byte of integers first (Iggy)."""

    __slots__ = ()

    _I16 = struct.Struct("<h")
    _U32 = struct.Struct("<I")
    _I32 = struct.Struct("<i")
