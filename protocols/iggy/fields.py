"""The pieces of Iggy's classic layouts: how each is read from a request and written into a reply.

Knows bytes and our own values (`messages.py`), no command: `dialects.py` puts fields together.
Integers are little-endian. Pieces that differ between dialects are classes with parameters or
several instances, never `if`s.
"""

from __future__ import annotations

import enum
import re
import struct
from typing import Any, Protocol, TypeVar

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.messages import (
    UNBOUNDED,
    ConsumerKind,
    ConsumerRef,
    Name,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
)
from braidlog.protocols.reader import LittleEndianReader

NUMERIC, TEXT = 1, 2  # Identifier kinds
STRATEGY = struct.Struct("<BQ")  # kind, value
IDENTIFIER_HEAD = struct.Struct("<BB")  # kind, length
PARTITION = struct.Struct("<BI")  # flag, number
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
SECOND_US = 1_000_000
# The characters of names in D0 (server/src/streaming/utils/text.rs at 670a8baba).
FOLDABLE = re.compile(r"[\w.\-\s]+")
# Limits of an options block of dialect V, as in its server.
OPTIONS_MAX = 1_024
OPTIONS_BYTES_MAX = 100_000
Kind = TypeVar("Kind", bound=enum.Enum)


class FieldRefused(ProtocolError):
    """A field is refused with an error number of its own, not as a malformed frame."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Readable(Protocol):
    """A piece of a request."""

    def read(self, reader: LittleEndianReader) -> object:
        """Return our value. Raises ProtocolError for malformed bytes."""


class Writable(Protocol):
    """A piece of a reply."""

    def write(self, value: Any) -> bytes:  # noqa: ANN401 (each piece has its own kind of value)
        """Return the bytes of our value."""


class FixedNumber:
    """A number of fixed width, as `struct` writes it (without the byte order)."""

    def __init__(self, layout: str) -> None:
        self._layout = struct.Struct("<" + layout)

    def read(self, reader: LittleEndianReader) -> int | float:
        (number,) = reader.unpack(self._layout)
        return number  # type: ignore[no-any-return]  # `struct` gives no type.

    def write(self, value: float) -> bytes:
        return self._layout.pack(value)


class Text:
    """UTF-8, preceded by its length in bytes."""

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
    """A byte: 1 is yes, any other value is no (as the reference server reads it)."""

    def read(self, reader: LittleEndianReader) -> bool:
        return reader.u8() == 1


class ChosenId:
    """An id that the client chooses.

    `zero_picks`: 0 leaves the choice to the server; otherwise 0 is malformed.
    """

    def __init__(self, *, zero_picks: bool) -> None:
        self._zero_picks = zero_picks

    def read(self, reader: LittleEndianReader) -> int | None:
        number = reader.u32()
        if number == 0 and not self._zero_picks:
            raise ProtocolError("id 0")
        return number or None


class Identifier:
    """Kind, length, then a u32 or 1 to 255 bytes of text.

    The broker counts from 1; `base` is the first number on the wire.
    """

    def __init__(self, base: int) -> None:
        self._shift = 1 - base

    def read(self, reader: LittleEndianReader) -> Name:
        kind, size = reader.unpack(IDENTIFIER_HEAD)
        value = reader.take(size)
        if kind == NUMERIC and size == U32.size:
            return int(U32.unpack(value)[0]) + self._shift
        if kind == TEXT and size:
            return decoded(value)
        raise ProtocolError(f"identifier of kind {kind} and {size} bytes")


class ConsumerField:
    """Kind, then an identifier (D1a and later). Groups are counted from `base`; a consumer's number
    is its name, the same in every dialect.
    """

    def __init__(self, base: int, *, external: bool = False) -> None:
        """`external`: the group may be of another protocol."""
        self._group = Identifier(base)
        self._external = external

    def read(self, reader: LittleEndianReader) -> ConsumerRef:
        kind = known(ConsumerKind, reader.u8())
        if kind is ConsumerKind.EXTERNAL and not self._external:
            raise ProtocolError("an external group cannot be named here")
        name = self._group if kind is ConsumerKind.GROUP else GIVEN_IDENTIFIER
        return ConsumerRef(kind, name.read(reader))


class BareConsumer:
    """Kind, then a number (D0)."""

    def read(self, reader: LittleEndianReader) -> ConsumerRef:
        kind = known(ConsumerKind, reader.u8())
        if kind is ConsumerKind.EXTERNAL:
            raise ProtocolError("there are no external groups in this dialect")
        return ConsumerRef(kind, reader.u32())


class CatalogueNumber:
    """The number of a stream, topic or group, counted from 1 in the broker and from `base` on the
    wire.
    """

    def __init__(self, base: int) -> None:
        self._shift = 1 - base

    def write(self, number: int) -> bytes:
        return U32.pack(number - self._shift)


class PartitionNumber:
    """A partition, counted from `base` on the wire; `none` stands for no partition."""

    def __init__(self, base: int, none: int = 0) -> None:
        self._base = base
        self._none = none

    def read(self, reader: LittleEndianReader) -> int:
        return reader.u32() - self._base

    def write(self, index: int) -> bytes:
        return U32.pack(self._none if index < 0 else index + self._base)


class PartitionNumbers:
    """A count, then the partitions."""

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


class PartitionOrFlag:
    """A flag byte, then a partition number from 0 (D4 and later). Flag 0: no partition."""

    def read(self, reader: LittleEndianReader) -> int | None:
        flag, number = reader.unpack(PARTITION)
        if flag > 1:
            raise ProtocolError(f"partition flag {flag}")
        return number if flag else None


class PartitioningField:
    """Kind, length, value; partitions are counted from `base`.

    `bad_partition` is the error for a partition that is not a u32, if the dialect has such an
    error.
    """

    def __init__(self, base: int, bad_partition: ErrorCode | None = None) -> None:
        self._base = base
        self._bad_partition = bad_partition

    def read(self, reader: LittleEndianReader) -> Partitioning:
        kind = known(PartitioningKind, reader.u8())
        value = reader.take(reader.u8())
        if kind is PartitioningKind.BALANCED:
            return Partitioning(kind)  # The reference server ignores a value here too.
        if kind is PartitioningKind.PARTITION and len(value) == U32.size:
            return Partitioning(kind, partition=U32.unpack(value)[0] - self._base)
        if kind is PartitioningKind.KEY and len(value):
            return Partitioning(kind, key=bytes(value))
        if kind is PartitioningKind.PARTITION and self._bad_partition is not None:
            raise FieldRefused(self._bad_partition, f"partition of {len(value)} bytes")
        raise ProtocolError(f"partitioning of kind {kind} with {len(value)} bytes")


class StrategyField:
    """Kind and value of a poll's start."""

    def read(self, reader: LittleEndianReader) -> PollingStrategy:
        kind, value = reader.unpack(STRATEGY)
        return PollingStrategy(known(PollingKind, kind), value)


class NonZero:
    """A u32 that is not 0."""

    def __init__(self, largest: int = (1 << 32) - 1) -> None:
        self._largest = largest

    def read(self, reader: LittleEndianReader) -> int:
        number = reader.u32()
        if not 1 <= number <= self._largest:
            raise ProtocolError(f"{number}, expected 1 to {self._largest}")
        return number


class AtMost:
    """A u32 with an upper bound."""

    def __init__(self, largest: int) -> None:
        self._largest = largest

    def read(self, reader: LittleEndianReader) -> int:
        number = reader.u32()
        if number > self._largest:
            raise ProtocolError(f"{number}, expected at most {self._largest}")
        return number


class FoldedName:
    """A name in D0: lower case, words joined with dots."""

    def read(self, reader: LittleEndianReader) -> str:
        raw_name = NAME8.read(reader)
        if FOLDABLE.fullmatch(raw_name) is None or not raw_name.strip():
            raise ProtocolError(f"name {raw_name!r}")
        return ".".join(raw_name.lower().split())


class UserNumber:
    """A user's number, counted from `base` on the wire; None is written as `nobody`."""

    def __init__(self, base: int, nobody: int) -> None:
        self._base = base
        self._nobody = nobody

    def write(self, number: int | None) -> bytes:
        return U32.pack(self._nobody if number is None else number + self._base)


class ExpirySeconds:
    """A message expiry in D0 and D1: seconds, 0 for none."""

    def read(self, reader: LittleEndianReader) -> int:
        return reader.u32() * SECOND_US or UNBOUNDED

    def write(self, expiry_us: int) -> bytes:
        if expiry_us >= UNBOUNDED:
            return U32.pack(0)
        return U32.pack(min(max(expiry_us // SECOND_US, 1), (1 << 32) - 1))


class Seconds:
    """A time in microseconds, written in seconds (D0)."""

    def write(self, time_us: int) -> bytes:
        return U64.pack(time_us // SECOND_US)


class NodeIds:
    """A count, then the ids of nodes, a byte each (W)."""

    def write(self, ids: bytes) -> bytes:
        return U8_FIELD.write(len(ids)) + ids


class NodePorts:
    """A node's ports for TCP, QUIC (0: not served), HTTP and WebSocket, then its role (leader) and
    status (healthy).
    """

    def write(self, ports: tuple[int, int, int]) -> bytes:
        tcp, http, websocket = ports
        return struct.pack("<HHHHBB", tcp, 0, http, websocket, 0, 0)


class Maybe:
    """A flag byte, then the value if the flag is set."""

    def __init__(self, value: Readable) -> None:
        self._value = value

    def read(self, reader: LittleEndianReader) -> object | None:
        return self._value.read(reader) if reader.u8() == 1 else None


class Counted:
    """A block of bytes, preceded by its length."""

    def write(self, block: bytes) -> bytes:
        return U32.pack(len(block)) + block


class Options:
    """An options block (V), which runs to the end of the body: kinds and values by key."""

    def read(self, reader: LittleEndianReader) -> dict[str, tuple[int, bytes]]:
        if reader.left > OPTIONS_BYTES_MAX:
            raise FieldRefused(ErrorCode.OPTIONS_BLOCK_TOO_LARGE, f"{reader.left} bytes of options")
        options_read: dict[str, tuple[int, bytes]] = {}
        while reader.left:
            if reader.u8() != TEXT or len(options_read) == OPTIONS_MAX:
                raise ProtocolError("an option's key is not text, or there are too many")
            key = STR32.read(reader)
            if key in options_read:
                raise ProtocolError(f"option {key!r} is there twice")
            kind = reader.u8()
            options_read[key] = (kind, bytes(reader.take(reader.u32())))
        return options_read


class RestOfFrame:
    """Everything up to the end of the frame, not copied."""

    def read(self, reader: LittleEndianReader) -> memoryview:
        return reader.rest()


def decoded(view: memoryview) -> str:
    """Return UTF-8 text. Raises ProtocolError."""
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"text is not UTF-8: {error}") from None


def known(kinds: type[Kind], code: int) -> Kind:
    """Return the member of an enum. Raises ProtocolError if no member has that code."""
    try:
        return kinds(code)
    except ValueError:
        raise ProtocolError(f"{kinds.__name__} {code} does not exist") from None


U8_FIELD = FixedNumber("B")
U32_FIELD = FixedNumber("I")
U64_FIELD = FixedNumber("Q")
F32_FIELD = FixedNumber("f")
STR8 = Text("B")
NAME8 = Text("B", bytes_min=1)  # Names may not be empty.
STR32 = Text("I")
FLAG = Flag()
GIVEN_IDENTIFIER = Identifier(1)  # Of a user or a consumer: the number is not shifted.
# Streams, topics, groups and partitions are counted from 1 before D4, from 0 since.
IDENTIFIER_FROM_1, IDENTIFIER_FROM_0 = Identifier(1), Identifier(0)
CONSUMER_FROM_1, CONSUMER_FROM_0 = ConsumerField(1), ConsumerField(0)
OFFSET_OWNER = ConsumerField(0, external=True)  # W: also a group of another protocol.
NUMBER_FROM_1, NUMBER_FROM_0 = CatalogueNumber(1), CatalogueNumber(0)
PARTITION_FROM_1, PARTITION_FROM_0 = PartitionNumber(1), PartitionNumber(0)
STRATEGY_FIELD = StrategyField()
REST = RestOfFrame()
OPTIONS = Options()
