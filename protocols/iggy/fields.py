"""The pieces that Iggy's classic layouts are made of: how each is read from a request and written
into a reply.

Knows bytes and our own values (`messages.py`), no command: `dialects.py` puts fields together.
Integers are little-endian. Pieces that differ between dialects are classes with parameters or
several instances, never `if`s.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, Protocol, TypeVar

from broker.server.adapters import ProtocolError
from protocols.iggy.messages import (
    Consumer,
    ConsumerKind,
    Name,
    Partitioning,
    PartitioningKind,
    PollingKind,
    Strategy,
)
from protocols.reader import LittleEndianReader

NUMERIC, TEXT = 1, 2  # Identifier kinds
STRATEGY = struct.Struct("<BQ")  # kind, value
U32 = struct.Struct("<I")
Kind = TypeVar("Kind", bound=enum.Enum)


class Readable(Protocol):
    """A piece of a request."""

    def read(self, reader: LittleEndianReader) -> object:
        """Our value. Raises ProtocolError for bytes that are no such piece."""


class Writable(Protocol):
    """A piece of a reply."""

    def write(self, value: Any) -> bytes:  # noqa: ANN401 (each piece has its own kind of value)
        """The bytes of our value."""


class Number:
    """A number of fixed width, as `struct` writes it (without the byte order)."""

    def __init__(self, layout: str) -> None:
        self._layout = struct.Struct("<" + layout)

    def read(self, reader: LittleEndianReader) -> int | float:
        (number,) = reader.unpack(self._layout)
        return number  # type: ignore[no-any-return]

    def write(self, value: float) -> bytes:
        return self._layout.pack(value)


class Text:
    """UTF-8 behind its length in bytes."""

    def __init__(self, length_layout: str, *, bytes_min: int = 0) -> None:
        self._length = struct.Struct("<" + length_layout)
        self._bytes_min = bytes_min

    def read(self, reader: LittleEndianReader) -> str:
        (size,) = reader.unpack(self._length)
        if size < self._bytes_min:
            raise ProtocolError(f"text of {size} bytes, at least {self._bytes_min} are needed")
        return decoded(reader.take(size))

    def write(self, value: str) -> bytes:
        text = value.encode()
        return self._length.pack(len(text)) + text


class Flag:
    """One byte: 1 is yes, anything else no (as the reference server reads it)."""

    def read(self, reader: LittleEndianReader) -> bool:
        return reader.u8() == 1


class ChosenId:
    """An id that the client chooses.

    `zero_picks`: 0 leaves the choice to the server, else it is malformed.
    """

    def __init__(self, *, zero_picks: bool) -> None:
        self._zero_picks = zero_picks

    def read(self, reader: LittleEndianReader) -> int | None:
        number = reader.u32()
        if number == 0 and not self._zero_picks:
            raise ProtocolError("id 0")
        return number or None


class Identifier:
    """Kind, length, then a u32 or 1 to 255 bytes of text."""

    def read(self, reader: LittleEndianReader) -> Name:
        kind, size = reader.u8(), reader.u8()
        value = reader.take(size)
        if kind == NUMERIC and size == U32.size:
            return int(U32.unpack(value)[0])
        if kind == TEXT and size:
            return decoded(value)
        raise ProtocolError(f"identifier of kind {kind} and {size} bytes")


class ConsumerField:
    """Kind, then who: an identifier (D1a and later)."""

    def read(self, reader: LittleEndianReader) -> Consumer:
        kind = known(ConsumerKind, reader.u8())
        return Consumer(kind, IDENTIFIER.read(reader))


class PartitionNumber:
    """A partition, counted from `base` on the wire."""

    def __init__(self, base: int) -> None:
        self._base = base

    def write(self, index: int) -> bytes:
        return U32.pack(index + self._base)


class PartitionNumbers:
    """A count, then that many partitions."""

    def __init__(self, base: int) -> None:
        self._base = base

    def write(self, indexes: list[int]) -> bytes:
        count = len(indexes)
        return struct.pack(f"<I{count}I", count, *(index + self._base for index in indexes))


class PartitionOrZero:
    """A partition counted from 1, or 0 for "none" (D0 to D3)."""

    def read(self, reader: LittleEndianReader) -> int | None:
        number = reader.u32()
        return number - 1 if number else None


class PartitioningField:
    """Kind, length, value; partitions are counted from `base`."""

    def __init__(self, base: int) -> None:
        self._base = base

    def read(self, reader: LittleEndianReader) -> Partitioning:
        kind = known(PartitioningKind, reader.u8())
        value = reader.take(reader.u8())
        if kind is PartitioningKind.BALANCED:
            return Partitioning(kind)  # The reference does not look at a value here either.
        if kind is PartitioningKind.PARTITION and len(value) == U32.size:
            return Partitioning(kind, partition=U32.unpack(value)[0] - self._base)
        if kind is PartitioningKind.KEY and len(value):
            return Partitioning(kind, key=bytes(value))
        raise ProtocolError(f"partitioning of kind {kind} with {len(value)} bytes")


class StrategyField:
    """Kind and value of a poll's start."""

    def read(self, reader: LittleEndianReader) -> Strategy:
        kind, value = reader.unpack(STRATEGY)
        return Strategy(known(PollingKind, kind), value)


class Rest:
    """Everything up to the end of the frame, not copied."""

    def read(self, reader: LittleEndianReader) -> memoryview:
        return reader.rest()


def decoded(view: memoryview) -> str:
    """UTF-8 text. Raises ProtocolError."""
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"text is not UTF-8: {error}") from None


def known(kinds: type[Kind], code: int) -> Kind:
    """The member of an enum. Raises ProtocolError if there is none of that code."""
    try:
        return kinds(code)
    except ValueError:
        raise ProtocolError(f"{kinds.__name__} {code} does not exist") from None


U8_FIELD = Number("B")
U32_FIELD = Number("I")
U64_FIELD = Number("Q")
F32_FIELD = Number("f")
STR8 = Text("B")
NAME8 = Text("B", bytes_min=1)  # Names may not be empty.
STR32 = Text("I")
FLAG = Flag()
IDENTIFIER = Identifier()
CONSUMER = ConsumerField()
STRATEGY_FIELD = StrategyField()
REST = Rest()
