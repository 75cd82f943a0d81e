"""Layouts as tables of fields: the content of requests and answers, by version.

A table is read into a dataclass and written from one, the field names being its attributes. Fixed
fields that lie side by side are read and written together. Layout rules: Kafka protocol guide,
"Protocol Primitive Types", without the flexible versions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from braidlog.broker.server.endings import ProtocolError
from braidlog.protocols.reader import BigEndianReader
from braidlog.storage.formats.api import Buffer, Part, StoredPart

Value = Any  # A field's value; the type depends on the table.

LATEST = 1 << 15  # "and every later version"

# The most topics, partitions and other entries in a request: five times what one broker is meant to
# hold. Without a limit a frame full of empty names would become gigabytes of objects.
ENTRIES_MAX = 50_000
# A request with more is decoded, and the answer encoded, in a thread: the work takes ten
# milliseconds.
ENTRIES_INLINE_MAX = 5000
# A request with more is large: the names in all such requests are counted (`large_requests.py`).
ENTRIES_FEW_MAX = 100

# A shorter piece of a message set is copied into the surrounding bytes: cheaper than a separate
# part.
PIECE_BYTES_MIN = 4096

UVARINT_BITS = 35

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


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

    def blob(self) -> bytes | None:
        """Return bytes of any kind; any negative length is null."""
        size = self.i32()
        return None if size < 0 else bytes(self.take(size))

    def count(self) -> int:
        """Return the number of entries of an array, negative for null. Raises ProtocolError,
        ManyEntries.
        """
        pos = self._pos + INT32.size  # hot: see make bench
        if pos > self._end:
            self.i32()  # Raises.
        count: int = INT32.unpack_from(self._view, self._pos)[0]
        self._pos = pos
        if count > 0:
            self.add_entries(count)
        return count

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
        number = 0
        for shift in range(0, UVARINT_BITS, 7):
            byte = self.u8()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ProtocolError(f"number of more than {UVARINT_BITS // 7} bytes")

    def entries(self) -> Iterator[int]:
        """Iterate over the indexes of an array; a negative count is an empty array. Raises
        ProtocolError.
        """
        return iter(range(self.count()))


class Writer:
    """Collects an answer: small fields are joined, large pieces stay separate."""

    def __init__(self) -> None:
        """Begin an empty answer."""
        self._parts: list[Part] = []
        self.small = bytearray()

    def piece(self, data: Part) -> None:
        """Append bytes. A large piece is not copied and must not change."""
        if len(data) < PIECE_BYTES_MIN and not isinstance(data, StoredPart):
            self.small += data
            return
        if self.small:
            self._parts.append(bytes(self.small))
            self.small.clear()
        self._parts.append(data)

    def parts(self) -> list[Part]:
        """Return the whole answer, in order."""
        return [*self._parts, bytes(self.small)] if self.small else self._parts


def uvarint_bytes(number: int) -> bytes:
    """Encode an unsigned number in groups of 7 bits, lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Kind(Protocol):
    """The layout of a value in a frame."""

    def read(self, reader: FieldReader, version: int) -> Value:
        """Return the value. Raises ProtocolError."""

    def write(self, out: Writer, value: Value, version: int) -> None:
        """Append the value to `out`."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number of a fixed size, by its letter in the module struct."""

    letter: str

    def read(self, reader: FieldReader, version: int) -> Value:
        """See `Kind`."""
        return reader.unpack(_layout(self.letter))[0]

    def write(self, out: Writer, value: Value, version: int) -> None:
        """See `Kind`."""
        out.small += _layout(self.letter).pack(value)


@dataclass(frozen=True, slots=True)
class Text:
    """A string, as bytes; None is null."""

    def read(self, reader: FieldReader, version: int) -> bytes | None:
        """See `Kind`."""
        return reader.string()

    def write(self, out: Writer, value: bytes | None, version: int) -> None:
        """See `Kind`."""
        out.small += b"\xff\xff" if value is None else INT16.pack(len(value)) + value


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes of any kind, copied; None is null."""

    def read(self, reader: FieldReader, version: int) -> bytes | None:
        """See `Kind`."""
        return reader.blob()

    def write(self, out: Writer, value: bytes | None, version: int) -> None:
        """See `Kind`."""
        out.small += INT32.pack(-1) if value is None else INT32.pack(len(value)) + value


@dataclass(frozen=True, slots=True)
class Records:
    """A message set: read as a view of the frame, written from a list of pieces."""

    def read(self, reader: FieldReader, version: int) -> memoryview:
        """See `Kind`. Null reads as empty."""
        size = reader.i32()
        return reader.take(0 if size == -1 else size)

    def write(self, out: Writer, value: Sequence[Buffer] | memoryview, version: int) -> None:
        """See `Kind`."""
        value = [value] if isinstance(value, memoryview) else value
        out.small += INT32.pack(sum(map(len, value)))
        for piece in value:
            out.piece(piece)


@dataclass(frozen=True, slots=True)
class Array:
    """A list; null reads as an empty list, or as None where null has another meaning."""

    of: Kind
    nullable: bool = False

    def read(self, reader: FieldReader, version: int) -> list[Any] | None:
        """See `Kind`."""
        count = reader.count()
        if count < 0 and self.nullable:
            return None
        read = self.of.read
        return [read(reader, version) for _ in range(count)]

    def write(self, out: Writer, value: Sequence[Any] | None, version: int) -> None:
        """See `Kind`."""
        if value is None:
            out.small += INT32.pack(-1)
            return
        out.small += INT32.pack(len(value))
        for one in value:
            self.of.write(out, one, version)


@dataclass(frozen=True, slots=True)
class ByPartition:
    """An array of topics, each with an array of partitions, as a dict of dicts.

    Of a partition that is named twice the last value counts (0.8 builds a map), and a topic without
    partitions is left out. `of` is what follows a partition's number.
    """

    of: Kind
    nullable: bool = False

    def read(self, reader: FieldReader, version: int) -> Mapping[bytes | None, Any] | None:
        """See `Kind`."""
        topics: dict[bytes | None, dict[int, Any]] = {}
        count = reader.count()
        if count < 0 and self.nullable:
            return None
        read = self.of.read
        for _ in range(count):
            name = reader.string()
            for _ in reader.entries():
                index = reader.i32()
                topics.setdefault(name, {})[index] = read(reader, version)
        return topics

    def write(
        self, out: Writer, value: Mapping[bytes | None, Mapping[int, Any]] | None, version: int
    ) -> None:
        """See `Kind`."""
        if value is None:
            out.small += INT32.pack(-1)
            return
        out.small += INT32.pack(len(value))
        for name, partitions in value.items():
            TEXT.write(out, name, version)
            out.small += INT32.pack(len(partitions))
            for index, one in partitions.items():
                out.small += INT32.pack(index)
                self.of.write(out, one, version)


@dataclass(frozen=True, slots=True)
class Nothing:
    """No bytes at all: a partition without fields of its own."""

    def read(self, reader: FieldReader, version: int) -> None:
        """See `Kind`."""

    def write(self, out: Writer, value: Value, version: int) -> None:
        """See `Kind`."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table. Without a name it is skipped when read, and written as `value`."""

    name: str
    kind: Kind
    since: int = 0
    until: int = LATEST
    value: Value = None


@dataclass(slots=True)
class Table:
    """The fields of one structure in wire order, and the dataclass that holds them."""

    holds: Callable[..., Any]
    fields: Sequence[Field]
    _plans: dict[int, list[_Step]] = field(default_factory=dict)
    _is_versioned: bool = False  # True if the dataclass has a field for the version.

    def __post_init__(self) -> None:
        """Inspect the dataclass once."""
        self._is_versioned = "version" in getattr(self.holds, "__dataclass_fields__", ())

    def read(self, reader: FieldReader, version: int) -> Value:
        """See `Kind`."""
        values: dict[str, Any] = {"version": version} if self._is_versioned else {}
        for step in self._plan(version):
            step.read(reader, values, version)
        return self.holds(**values)

    def write(self, out: Writer, value: Value, version: int) -> None:
        """See `Kind`."""
        for step in self._plan(version):
            step.write(out, value, version)

    def _plan(self, version: int) -> list[_Step]:
        plan = self._plans.get(version)
        if plan is None:
            served = [one for one in self.fields if one.since <= version <= one.until]
            plan = self._plans[version] = _steps(served)
        return plan


def table(holds: Callable[..., Any], *fields: Field) -> Table:
    """Return a table of these fields, in wire order."""
    return Table(holds, fields)


def ignored(kind: Kind, since: int = 0, until: int = LATEST, *, value: Value = 0) -> Field:
    """Return a field that is skipped when read, and always written as `value`."""
    return Field("", kind, since, until, value)


@dataclass(frozen=True, slots=True)
class Api:
    """An API key: versions 0 to `version_max` are served."""

    version_max: int
    request: Kind
    reply: Kind


class _Step(Protocol):
    """A step of reading or writing a structure."""

    def read(self, reader: FieldReader, values: dict[str, Any], version: int) -> None:
        """Read this step's fields into `values`."""

    def write(self, out: Writer, value: Value, version: int) -> None:
        """Write this step's attributes of `value`."""


class _FixedRun:
    """Adjacent fields of fixed size."""

    def __init__(self, fields: Sequence[Field]) -> None:
        kinds = [one.kind for one in fields]
        letters = "".join(kind.letter for kind in kinds if isinstance(kind, Fixed))
        self._layout = struct.Struct(">" + letters)
        self._names = [one.name for one in fields]
        self._fields = fields

    def read(self, reader: FieldReader, values: dict[str, Any], version: int) -> None:
        values.update(zip(self._names, reader.unpack(self._layout), strict=True))
        values.pop("", None)

    def write(self, out: Writer, value: Value, version: int) -> None:
        found = (getattr(value, one.name) if one.name else one.value for one in self._fields)
        out.small += self._layout.pack(*found)


class _One:
    """A field of any other kind."""

    def __init__(self, one: Field) -> None:
        self._field = one

    def read(self, reader: FieldReader, values: dict[str, Any], version: int) -> None:
        found = self._field.kind.read(reader, version)
        if self._field.name:
            values[self._field.name] = found

    def write(self, out: Writer, value: Value, version: int) -> None:
        one = self._field
        one.kind.write(out, getattr(value, one.name) if one.name else one.value, version)


def _steps(fields: Sequence[Field]) -> list[_Step]:
    steps: list[_Step] = []
    run: list[Field] = []
    for one in fields:
        if isinstance(one.kind, Fixed):
            run.append(one)
            continue
        if run:
            steps.append(_FixedRun(run))
            run = []
        steps.append(_One(one))
    if run:
        steps.append(_FixedRun(run))
    return steps


def _layout(letter: str) -> struct.Struct:
    return _LAYOUTS[letter]


_LAYOUTS = {letter: struct.Struct(">" + letter) for letter in "?bhiq"}

BOOL, I8, I16, I32, I64 = (Fixed(letter) for letter in "?bhiq")
TEXT, BLOB, RECORDS, NOTHING = Text(), Blob(), Records(), Nothing()
