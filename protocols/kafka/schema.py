"""Structures of Kafka's messages: read from a frame and written to one, by version.

A generated class in `wire/` declares a structure: a row for each field, in the order of the frame.
`read` and `write` handle the fields of a version; all other fields keep Kafka's defaults.
Adjacent fields of a fixed size are read and written together.

Layouts: Kafka protocol guide, "Protocol Primitive Types"; flexible versions and tagged fields:
KIP-482. Versions that are not flexible take null for every string and array, as 0.8 does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka.fields import FieldReader, Writer, uvarint_bytes
from braidlog.storage.formats.api import Part, StoredPart

LATEST = 1 << 15  # "and every later version"; as a first version: never
NO_UUID = bytes(16)
NULL, PRESENT = b"\xff", b"\x01"  # before a structure that may be null

Item = TypeVar("Item")
Value = Any  # A field's value; the type depends on the field.
EMPTY: tuple[Value, ...] = ((), [])  # The empty default of a list, and a list that was read.
Pieces = Sequence[Part] | memoryview  # A message set: pieces to write, or a view of the frame.


class Fixed(NamedTuple):
    """A number or a UUID, by its format in the module struct."""

    format: str


class Sized(NamedTuple):
    """Bytes behind their size; `size` is the layout of that in versions that are not flexible."""

    size: struct.Struct
    is_set: bool = False  # True for a message set, which is not copied.


class Array(NamedTuple):
    """A list of values of a kind."""

    of: Fixed | Sized | type[Struct]


BOOL, INT8, INT16, INT32, INT64 = map(Fixed, "?bhiq")
UINT16, UINT32, FLOAT64, UUID = map(Fixed, ("H", "I", "d", "16s"))
STRING = Sized(struct.Struct(">h"))
BYTES = Sized(struct.Struct(">i"))
RECORDS = Sized(struct.Struct(">i"), is_set=True)
COUNT = struct.Struct(">i")


class Field(NamedTuple):
    """A field of a structure: it exists from version `since` to version `until`, both inclusive."""

    name: str
    kind: Fixed | Sized | Array | type[Struct]
    since: int = 0
    until: int = LATEST
    nullable: int = LATEST  # Null is allowed from this version on.
    tag: int | None = None  # A tagged field has its number.


class Struct:
    """Base of the generated classes."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    FLEXIBLE: ClassVar[int] = LATEST  # the first flexible version
    KEY: ClassVar[int]  # the api key of a request
    VERSIONS: ClassVar[tuple[int, int]]  # the first and the last version of a request
    _plans: ClassVar[dict[int, tuple[CodecStep, ...]]]  # by version
    _usual: ClassVar[list[Struct]]  # The structure in which every field has its default.

    def __init_subclass__(cls) -> None:
        """Begin without plans: they are made when first needed."""
        cls._plans, cls._usual = {}, []

    @classmethod
    def read(cls, reader: FieldReader, version: int) -> Self:
        """Return the structure at the reader's position. Raises ProtocolError, ManyEntries."""
        values: dict[str, Any] = {}
        for step in cls._plans.get(version) or cls._plan(version):
            step.read(reader, values, version)
        return cls(**values)

    @classmethod
    def write(cls, out: Writer, value: Self, version: int) -> None:
        """Append the structure to `out`."""
        for step in cls._plans.get(version) or cls._plan(version):
            step.write(out, value, version)

    @classmethod
    def usual(cls) -> Struct:
        """Return a structure in which every field has its default."""
        if not cls._usual:
            cls._usual.append(cls())
        return cls._usual[0]

    @classmethod
    def _plan(cls, version: int) -> tuple[CodecStep, ...]:
        """Return the steps that read and write the structure in a version."""
        is_flexible = version >= cls.FLEXIBLE
        served = [field for field in cls.FIELDS if field.since <= version <= field.until]
        steps: list[CodecStep] = []
        run: list[Field] = []
        for field in served:
            if field.tag is not None:
                continue
            if isinstance(field.kind, Fixed):
                run.append(field)
                continue
            if run:
                steps.append(_FixedFields(run))
                run = []
            shape = layout(field.kind, is_flexible, field.nullable <= version)
            steps.append(_Single(field.name, shape))
        if run:
            steps.append(_FixedFields(run))
        if is_flexible:
            steps.append(_Tags(cls, [field for field in served if field.tag is not None], version))
        cls._plans[version] = tuple(steps)
        return cls._plans[version]

    def __eq__(self, other: object) -> bool:
        """Compare all fields, also those of other versions."""
        if type(self) is not type(other):
            return NotImplemented
        names = [field.name for field in self.FIELDS]
        return all(_is_same(getattr(self, name), getattr(other, name)) for name in names)

    def __repr__(self) -> str:
        """Show the fields that differ from their defaults."""
        values = {field.name: getattr(self, field.name) for field in self.FIELDS}
        usual = self.usual()
        shown = [
            f"{name}={value!r}"
            for name, value in values.items()
            if not _is_same(value, getattr(usual, name))
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


class CodecStep(Protocol):
    """A step of reading or writing a structure."""

    def read(self, reader: FieldReader, values: dict[str, Any], version: int) -> None:
        """Read this step's fields into `values`."""

    def write(self, out: Writer, value: Struct, version: int) -> None:
        """Append this step's fields of a structure to `out`."""


class Layout(Protocol):
    """The layout of a value in a frame."""

    def read(self, reader: FieldReader, version: int) -> Value:
        """Return the value. Raises ProtocolError, ManyEntries."""

    def write(self, out: Writer, value: Value, version: int) -> None:
        """Append the value to `out`."""


def layout(
    kind: Fixed | Sized | Array | type[Struct], is_flexible: bool, is_nullable: bool
) -> Layout:
    """Return the layout of a kind of value. Old versions let every string and array be null."""
    if isinstance(kind, Fixed):
        return _Number(kind)
    if isinstance(kind, Sized):
        if kind is STRING and not is_flexible:
            return _OldString()
        return _Bytes(kind, is_flexible, is_nullable)
    if isinstance(kind, Array):
        if isinstance(kind.of, Fixed):
            return _Numbers(kind.of, is_flexible, is_nullable)
        return _List(layout(kind.of, is_flexible, False), is_flexible, is_nullable)
    return _Nullable(kind) if is_nullable else kind


class _FixedFields:
    """Adjacent fields of a fixed size."""

    def __init__(self, fields: Sequence[Field]) -> None:
        letters = "".join(field.kind.format for field in fields if isinstance(field.kind, Fixed))
        self._layout = struct.Struct(">" + letters)
        self._names = [field.name for field in fields]
        self._is_single = len(fields) == 1
        self._values: Callable[[Struct], Any] = attrgetter(*self._names)

    def read(self, reader: FieldReader, values: dict[str, Any], version: int) -> None:
        values.update(zip(self._names, reader.unpack(self._layout), strict=True))

    def write(self, out: Writer, value: Struct, version: int) -> None:
        values = self._values(value)
        out.small += self._layout.pack(values) if self._is_single else self._layout.pack(*values)


class _Single:
    """A field of any other kind."""

    def __init__(self, name: str, shape: Layout) -> None:
        self._name = name
        self._shape = shape

    def read(self, reader: FieldReader, values: dict[str, Any], version: int) -> None:
        values[self._name] = self._shape.read(reader, version)

    def write(self, out: Writer, value: Struct, version: int) -> None:
        self._shape.write(out, getattr(value, self._name), version)


class _Tags:
    """The tagged fields at the end of a structure; unknown tags are skipped."""

    def __init__(self, kind: type[Struct], fields: Sequence[Field], version: int) -> None:
        self._kind = kind
        self._fields = {
            tag: (field.name, layout(field.kind, True, field.nullable <= version))
            for tag, field in sorted((field.tag or 0, field) for field in fields)
        }

    def read(self, reader: FieldReader, values: dict[str, Any], version: int) -> None:
        count = reader.uvarint()
        reader.add_entries(count)
        for _ in range(count):
            tag, size = reader.uvarint(), reader.uvarint()
            tagged = self._fields.get(tag)
            if tagged is None:
                reader.take(size)
                continue
            end = reader.pos + size
            name, shape = tagged
            values[name] = shape.read(reader, version)
            if reader.pos != end:
                raise ProtocolError(f"tagged field {tag} does not have {size} bytes")

    def write(self, out: Writer, value: Struct, version: int) -> None:
        usual = self._kind.usual()
        present = [
            (tag, field_value, shape)
            for tag, (name, shape) in self._fields.items()
            if not _is_same(field_value := getattr(value, name), getattr(usual, name))
        ]
        out.small += uvarint_bytes(len(present))
        for tag, field_value, shape in present:
            inner = Writer()
            shape.write(inner, field_value, version)
            parts = inner.parts()
            out.small += uvarint_bytes(tag) + uvarint_bytes(sum(map(len, parts)))
            for part in parts:
                out.piece(part)


def _is_same(value: Value, other: Value) -> bool:
    """Return True if two values are equal; the empty default and any empty list are."""
    return bool(value == other or (value in EMPTY and other in EMPTY))


class _Number:
    """A number or a UUID."""

    def __init__(self, kind: Fixed) -> None:
        self._layout = struct.Struct(">" + kind.format)

    def read(self, reader: FieldReader, version: int) -> Value:
        return reader.unpack(self._layout)[0]

    def write(self, out: Writer, value: Value, version: int) -> None:
        out.small += self._layout.pack(value)


class _OldString:
    """A string of a version that is not flexible: the reader has a quick way."""

    def read(self, reader: FieldReader, version: int) -> bytes | None:
        return reader.string()

    def write(self, out: Writer, value: bytes | None, version: int) -> None:
        out.small += STRING.size.pack(-1 if value is None else len(value))
        out.small += value or b""


class _Length:
    """The size or the count ahead of a value; a negative number is null."""

    def __init__(self, old: struct.Struct, is_flexible: bool, is_nullable: bool) -> None:
        self._old = None if is_flexible else old
        self._refuses_null = is_flexible and not is_nullable
        self.is_nullable = is_nullable

    def read(self, reader: FieldReader) -> int:
        """Return the number. Raises ProtocolError for null where a flexible version has none."""
        if self._old is not None:
            return int(reader.unpack(self._old)[0])
        size = reader.uvarint() - 1
        if size < 0 and self._refuses_null:
            raise ProtocolError("null in a field that cannot be null")
        return size

    def write(self, out: Writer, size: int) -> None:
        """Append the number, -1 for null."""
        out.small += uvarint_bytes(size + 1) if self._old is None else self._old.pack(size)


class _Bytes:
    """A string, bytes or a message set."""

    def __init__(self, kind: Sized, is_flexible: bool, is_nullable: bool) -> None:
        self._length = _Length(kind.size, is_flexible, is_nullable)
        self._is_set = kind.is_set

    def read(self, reader: FieldReader, version: int) -> bytes | memoryview | None:
        size = self._length.read(reader)
        if size < 0:
            return None
        return reader.take(size) if self._is_set else bytes(reader.take(size))

    def write(self, out: Writer, value: bytes | Pieces | None, version: int) -> None:
        if value is None:
            self._length.write(out, -1)
            return
        pieces: Sequence[Part] = [value] if isinstance(value, bytes | memoryview) else value
        self._length.write(out, sum(map(len, pieces)))
        for piece in pieces:
            out.piece(piece)


class KeptList(list[Item]):
    """A list for many answers, which must not change: its bytes are made once for each version.

    Threads may encode the same list: they make the same bytes.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        super().__init__(items)
        self._encoded: dict[int, bytes] = {}  # version -> the items without their count

    def is_ready(self, version: int) -> bool:
        """Return True if the bytes of this version are made."""
        return version in self._encoded

    def encoded(self, of: Layout, version: int) -> bytes:
        """Return the bytes of all items."""
        data = self._encoded.get(version)
        if data is None:
            out = Writer()
            for item in self:
                of.write(out, item, version)
            parts = (part.read() if isinstance(part, StoredPart) else part for part in out.parts())
            data = self._encoded[version] = b"".join(parts)
        return data


class _List:
    """A list; null reads as an empty list where null has no meaning."""

    def __init__(self, of: Layout, is_flexible: bool, is_nullable: bool) -> None:
        self._of = of
        self._length = _Length(COUNT, is_flexible, is_nullable)

    def read(self, reader: FieldReader, version: int) -> list[Any] | None:
        count = self._length.read(reader)
        if count < 0:
            return None if self._length.is_nullable else []
        reader.add_entries(count)
        read = self._of.read
        return [read(reader, version) for _ in range(count)]

    def write(self, out: Writer, value: Sequence[Any] | None, version: int) -> None:
        self._length.write(out, -1 if value is None else len(value))
        if isinstance(value, KeptList):
            out.piece(value.encoded(self._of, version))
            return
        for item in value or ():
            self._of.write(out, item, version)


class _Numbers:
    """A list of numbers, read and written as a whole."""

    def __init__(self, kind: Fixed, is_flexible: bool, is_nullable: bool) -> None:
        self._format = kind.format
        self._size = struct.calcsize(">" + kind.format)
        self._length = _Length(COUNT, is_flexible, is_nullable)

    def read(self, reader: FieldReader, version: int) -> list[Any] | None:
        count = self._length.read(reader)
        if count < 0:
            return None if self._length.is_nullable else []
        reader.add_entries(count)
        data = reader.take(count * self._size)
        return [number for (number,) in struct.iter_unpack(">" + self._format, data)]

    def write(self, out: Writer, value: Sequence[Any] | None, version: int) -> None:
        self._length.write(out, -1 if value is None else len(value))
        for number in value or ():
            out.small += struct.pack(">" + self._format, number)


class _Nullable:
    """A structure that may be null."""

    def __init__(self, kind: type[Struct]) -> None:
        self._kind = kind

    def read(self, reader: FieldReader, version: int) -> Struct | None:
        return None if reader.u8() & 0x80 else self._kind.read(reader, version)

    def write(self, out: Writer, value: Struct | None, version: int) -> None:
        out.small += NULL if value is None else PRESENT
        if value is not None:
            self._kind.write(out, value, version)
