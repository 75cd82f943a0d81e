"""Reads fields out of one frame, with the bounds checked in one place. Knows no protocol.

A frame that ends too early raises ProtocolError and nothing else, whatever the peer sends. `take`
and `rest` return views that die with the frame; the caller copies what it keeps longer.
"""

import struct
from typing import Any, ClassVar

from braidlog.broker.server.endings import ProtocolError


class Reader:
    """A position in a frame. The subclasses say in which byte order its integers are written."""

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
        """Where the next field begins, in bytes from the start of the view."""
        return self._pos

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return self._end - self._pos

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, not copied. Raises ProtocolError if there are fewer."""
        start = self._pos
        end = start + size
        if size < 0 or end > self._end:
            raise ProtocolError(f"{size} bytes wanted at byte {start} of a frame of {self._end}")
        self._pos = end
        return self._view[start:end]

    def rest(self) -> memoryview:
        """All bytes not read yet, not copied."""
        return self.take(self.left)

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The fields of a fixed layout, in the byte order that it names. Raises ProtocolError."""
        start = self._pos
        end = start + layout.size
        if end > self._end:
            raise ProtocolError(f"{layout.size} bytes wanted at byte {start} of {self._end}")
        self._pos = end
        return layout.unpack_from(self._view, start)

    def u8(self) -> int:
        """An unsigned byte."""
        return int(self.unpack(self._U8)[0])

    def i16(self) -> int:
        """A signed 16-bit integer."""
        return int(self.unpack(self._I16)[0])

    def u32(self) -> int:
        """An unsigned 32-bit integer."""
        return int(self.unpack(self._U32)[0])

    def i32(self) -> int:
        """A signed 32-bit integer."""
        return int(self.unpack(self._I32)[0])


class BigEndianReader(Reader):
    """Integers in network byte order (Kafka, Pulsar)."""

    __slots__ = ()

    _I16 = struct.Struct(">h")
    _U32 = struct.Struct(">I")
    _I32 = struct.Struct(">i")


class LittleEndianReader(Reader):
    """Integers with the least significant byte first (Iggy)."""

    __slots__ = ()

    _I16 = struct.Struct("<h")
    _U32 = struct.Struct("<I")
    _I32 = struct.Struct("<i")
