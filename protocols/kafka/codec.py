"""Reads the structures of Kafka's messages from frames, and writes them to frames, by version.

A structure has a function for each version to read it, and another to write it. The functions are
made from the table of fields when first needed, as the module `dataclasses` makes `__init__`:
straight code is three times as fast as a walk over the table. Fields of other versions keep Kafka's
defaults. Adjacent fields of a fixed size are read and written together.

Layouts: Kafka protocol guide, "Protocol Primitive Types"; flexible versions and tagged fields:
KIP-482. Versions that are not flexible take null for every string and array, as 0.8 does.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka.fields import (
    IN_MEMORY,
    FieldReader,
    ReadValue,
    Value,
    Writer,
    uvarint_bytes,
)
from braidlog.protocols.kafka.schema import (
    STRING,
    Array,
    Field,
    Fixed,
    Pieces,
    Sized,
    Struct,
    is_same,
)
from braidlog.storage.formats.api import StoredPart

COUNT = struct.Struct(">i")
NULL, PRESENT = b"\xff", b"\x01"  # before a structure that may be null

Kind = Fixed | Sized | Array | type[Struct]
WriteValue = Callable[[Writer, Value], None]
StructT = TypeVar("StructT", bound=Struct)

_readers: dict[tuple[type[Struct], int], ReadValue] = {}
_writers: dict[tuple[type[Struct], int], WriteValue] = {}


def read(kind: type[StructT], reader: FieldReader, version: int) -> StructT:
    """Return the structure at the reader's position. Raises ProtocolError, ManyEntries."""
    function = _readers.get((kind, version))
    if function is None:
        function = _readers[kind, version] = _ReadSource(version).function(kind)
    value: StructT = reader.value(function)
    return value


def write(out: Writer, value: Struct, version: int) -> None:
    """Append the structure to `out`."""
    kind = type(value)
    function = _writers.get((kind, version))
    if function is None:
        function = _writers[kind, version] = _WriteSource(version).function(kind)
    function(out, value)


class KeptList(list[StructT]):
    """A list for many answers, which must not change: its bytes are made once for each version.

    Threads may encode the same list: they make the same bytes.
    """

    def __init__(self, items: Iterable[StructT]) -> None:
        super().__init__(items)
        self._encoded: dict[int, bytes] = {}  # version -> the items without their count

    def is_ready(self, version: int) -> bool:
        """Return True if the bytes of this version are made."""
        return version in self._encoded

    def encoded(self, version: int) -> bytes:
        """Return the bytes of all items."""
        data = self._encoded.get(version)
        if data is None:
            out = Writer()
            for item in self:
                write(out, item, version)
            parts = (part.read() if isinstance(part, StoredPart) else part for part in out.parts())
            data = self._encoded[version] = b"".join(parts)
        return data


class _Source:
    """The source of a function, and the objects that the source names."""

    def __init__(self, version: int, head: str) -> None:
        self.version = version
        self._lines = [head]
        self._indent = "    "
        self._objects: dict[str, Value] = {}
        self._names = 0

    def add(self, line: str) -> None:
        self._lines.append(self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent the lines that follow `head`."""
        self.add(head)
        self._indent += "    "
        yield
        self._indent = self._indent[:-4]

    def name(self) -> str:
        """Return a new name for a variable."""
        self._names += 1
        return f"v{self._names}"

    def bind(self, value: object) -> str:
        """Return a new name for an object."""
        name = f"o{len(self._objects)}"
        self._objects[name] = value
        return name

    def compiled(self, title: str) -> Value:
        """Return the function. Tracebacks show its lines."""
        text = "\n".join(self._lines) + "\n"
        file = f"<{title}, version {self.version}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), self._objects)
        return self._objects["function"]

    def is_nullable(self, field: Field) -> bool:
        return field.nullable <= self.version

    def fields(self, kind: type[Struct]) -> list[Field]:
        """Return the fields of this version."""
        return [field for field in kind.FIELDS if field.since <= self.version <= field.until]

    def runs(self, kind: type[Struct]) -> Iterator[tuple[list[Field], str]]:
        """Yield the fields of this version without tags: those of a fixed size in runs with their
        common format, each of the others alone.
        """
        run: list[Field] = []
        letters = ""
        for field in self.fields(kind):
            if field.tag is not None:
                continue
            if isinstance(field.kind, Fixed):
                run.append(field)
                letters += field.kind.format
                continue
            if run:
                yield run, letters
                run, letters = [], ""
            yield [field], ""
        if run:
            yield run, letters

    def tagged(self, kind: type[Struct]) -> list[Field]:
        """Return the tagged fields of this version, in the order of the tags."""
        tagged = [field for field in self.fields(kind) if field.tag is not None]
        return sorted(tagged, key=lambda field: field.tag or 0)


class _ReadSource(_Source):
    """The source of a function that reads a value at a position of a frame."""

    def __init__(self, version: int) -> None:
        super().__init__(version, "def function(reader, view, pos, end):")
        self._objects |= {
            "ProtocolError": ProtocolError,
            "struct_error": struct.error,
            "null": _null,
            "read_tags": _read_tags,
        }

    def function(
        self, kind: Kind, *, is_flexible: bool = False, is_nullable: bool = False
    ) -> ReadValue:
        """Return the function. Only kinds without a structure need `is_flexible`."""
        with self.block("try:"):
            self._value(kind, "value", is_flexible=is_flexible, is_nullable=is_nullable)
        with self.block("except (struct_error, IndexError):"):
            short = '"bytes wanted at byte %d, in a frame of %d" % (pos, end)'
            self.add(f"raise ProtocolError({short}) from None")
        self.add("return value, pos")
        function: ReadValue = self.compiled(f"reading {getattr(kind, '__name__', kind)}")
        return function

    def _value(self, kind: Kind, target: str, *, is_flexible: bool, is_nullable: bool) -> None:
        """Read a value into a variable or an attribute."""
        if isinstance(kind, Fixed):
            self._numbers([target], kind.format)
        elif isinstance(kind, Sized):
            self._sized(kind, target, is_flexible=is_flexible, is_nullable=is_nullable)
        elif isinstance(kind, Array):
            self._array(kind, target, is_flexible=is_flexible, is_nullable=is_nullable)
        elif is_nullable:
            self.add("pos += 1")
            with self.block("if view[pos - 1] & 0x80:"):
                self.add(f"{target} = None")
            with self.block("else:"):
                self._struct(kind, target)
        else:
            self._struct(kind, target)

    def _numbers(self, targets: Sequence[str], letters: str) -> None:
        layout = struct.Struct(">" + letters)
        unpack = self.bind(layout.unpack_from)
        self.add(f"{', '.join(targets)}, = {unpack}(view, pos)")
        self.add(f"pos += {layout.size}")

    def _length(self, old: struct.Struct, *, is_flexible: bool) -> str:
        """Read a size or a count; return its name. A negative number is null."""
        length = self.name()
        if not is_flexible:
            self._numbers([length], old.format[1:])
            return length
        self.add(f"{length} = view[pos] - 1")
        self.add("pos += 1")
        with self.block(f"if {length} > 0x7e:"):
            self.add(f"{length}, pos = reader.uvarint_at(pos - 1)")
            self.add(f"{length} -= 1")
        return length

    def _sized(self, kind: Sized, target: str, *, is_flexible: bool, is_nullable: bool) -> None:
        size = self._length(kind.size, is_flexible=is_flexible)
        with self.block(f"if {size} < 0:"):
            self.add("null()" if is_flexible and not is_nullable else f"{target} = None")
        with self.block("else:"):
            value = f"view[pos : pos + {size}]"
            self.add(f"{target} = {value if kind.is_set else f'bytes({value})'}")
            self._advance(size)

    def _advance(self, size: str) -> None:
        """Move behind bytes that a slice has read: a slice does not complain at the end."""
        self.add(f"pos += {size}")
        with self.block("if pos > end:"):
            self.add("raise IndexError")

    def _array(self, kind: Array, target: str, *, is_flexible: bool, is_nullable: bool) -> None:
        count = self._length(COUNT, is_flexible=is_flexible)
        with self.block(f"if {count} < 0:"):
            null = "null()" if is_flexible else f"{target} = []"
            self.add(f"{target} = None" if is_nullable else null)
        with self.block("else:"):
            self.add(f"reader.add_entries({count})")
            if isinstance(kind.of, Fixed):
                number = struct.Struct(">" + kind.of.format)
                size = f"{count} * {number.size}"
                numbers = f"{self.bind(number.iter_unpack)}(view[pos : pos + {size}])"
                self.add(f"{target} = [number for (number,) in {numbers}]")
                self._advance(size)
                return
            item, items = self.name(), self.name()
            self.add(f"{target} = {items} = []")
            with self.block(f"for _ in range({count}):"):
                self._value(kind.of, item, is_flexible=is_flexible, is_nullable=False)
                self.add(f"{items}.append({item})")

    def _struct(self, kind: type[Struct], target: str) -> None:
        is_flexible = self.version >= kind.FLEXIBLE
        value, tagged = self.name(), self.tagged(kind)
        names = {field.name: self.name() for field in self.fields(kind) if field.tag is None}
        for run, letters in self.runs(kind):
            if letters:
                self._numbers([names[field.name] for field in run], letters)
                continue
            (field,) = run
            self._value(
                field.kind,
                names[field.name],
                is_flexible=is_flexible,
                is_nullable=self.is_nullable(field),
            )
        arguments = ", ".join(f"{field}={name}" for field, name in names.items())
        self.add(f"{target} = {value} = {self.bind(kind)}({arguments})")
        if not is_flexible:
            return
        shapes = {field.tag: (field.name, self._tag_function(field)) for field in tagged}
        self.add("pos += 1")
        with self.block("if view[pos - 1]:"):
            self.add(f"pos = read_tags(reader, pos - 1, {value}, {self.bind(shapes)})")

    def _tag_function(self, field: Field) -> ReadValue:
        source = _ReadSource(self.version)
        return source.function(field.kind, is_flexible=True, is_nullable=self.is_nullable(field))


def _null() -> NoReturn:
    raise ProtocolError("null in a field that cannot be null")


def _read_tags(
    reader: FieldReader, pos: int, value: Struct, shapes: dict[int, tuple[str, ReadValue]]
) -> int:
    """Read the tagged fields at the end of a structure, skip unknown tags; return the end."""
    count, pos = reader.uvarint_at(pos)
    reader.add_entries(count)
    for _ in range(count):
        tag, pos = reader.uvarint_at(pos)
        size, pos = reader.uvarint_at(pos)
        if tag not in shapes:
            pos = reader.skip_at(pos, size)
            continue
        name, function = shapes[tag]
        field_value, end = reader.value_at(pos, function)
        setattr(value, name, field_value)
        if end != pos + size:
            raise ProtocolError(f"tagged field {tag} does not have {size} bytes")
        pos = end
    return pos


class _WriteSource(_Source):
    """The source of a function that appends a value to a writer."""

    def __init__(self, version: int) -> None:
        super().__init__(version, "def function(out, value):")
        self._objects |= {
            "KeptList": KeptList,
            "size_of": _size_of,
            "uvarint_bytes": uvarint_bytes,
            "write_pieces": _write_pieces,
            "write_tags": _write_tags,
        }
        self.add("small = out.small")

    def function(
        self, kind: Kind, *, is_flexible: bool = False, is_nullable: bool = False
    ) -> WriteValue:
        """Return the function. Only kinds without a structure need `is_flexible`."""
        self._value(kind, "value", is_flexible=is_flexible, is_nullable=is_nullable)
        function: WriteValue = self.compiled(f"writing {getattr(kind, '__name__', kind)}")
        return function

    def _value(self, kind: Kind, value: str, *, is_flexible: bool, is_nullable: bool) -> None:
        """Append the value of a variable."""
        if isinstance(kind, Fixed):
            self._numbers([value], kind.format)
        elif isinstance(kind, Sized):
            self._sized(kind, value, is_flexible=is_flexible)
        elif isinstance(kind, Array):
            self._array(kind, value, is_flexible=is_flexible)
        elif is_nullable:
            with self.block(f"if {value} is None:"):
                self.add(f"small += {NULL!r}")
            with self.block("else:"):
                self.add(f"small += {PRESENT!r}")
                self._struct(kind, value)
        else:
            self._struct(kind, value)

    def _numbers(self, values: Sequence[str], letters: str) -> None:
        pack = self.bind(struct.Struct(">" + letters).pack)
        self.add(f"small += {pack}({', '.join(values)})")

    def _length(self, old: struct.Struct, length: str, *, is_flexible: bool) -> None:
        """Append a size or a count."""
        if not is_flexible:
            self._numbers([length], old.format[1:])
            return
        with self.block(f"if {length} < 0x7f:"):
            self.add(f"small.append({length} + 1)")
        with self.block("else:"):
            self.add(f"small += uvarint_bytes({length} + 1)")

    def _sized(self, kind: Sized, value: str, *, is_flexible: bool) -> None:
        with self.block(f"if {value} is None:"):
            self.add(f"small += {_null_length(kind.size, is_flexible)!r}")
        with self.block("else:"):
            size = self.name()
            is_short = kind is STRING
            self.add(f"{size} = {'len' if is_short else 'size_of'}({value})")
            self._length(kind.size, size, is_flexible=is_flexible)
            self.add(f"small += {value}" if is_short else f"write_pieces(out, {value})")

    def _array(self, kind: Array, value: str, *, is_flexible: bool) -> None:
        with self.block(f"if {value}:"):
            count, item = self.name(), self.name()
            self.add(f"{count} = len({value})")
            self._length(COUNT, count, is_flexible=is_flexible)
            with self.block(f"if type({value}) is KeptList:"):
                self.add(f"out.piece({value}.encoded({self.version}))")
            with self.block("else:"), self.block(f"for {item} in {value}:"):
                self._value(kind.of, item, is_flexible=is_flexible, is_nullable=False)
        with self.block("else:"):
            null = _null_length(COUNT, is_flexible)
            empty = uvarint_bytes(1) if is_flexible else COUNT.pack(0)
            self.add(f"small += {null!r} if {value} is None else {empty!r}")

    def _struct(self, kind: type[Struct], value: str) -> None:
        is_flexible = self.version >= kind.FLEXIBLE
        for run, letters in self.runs(kind):
            if letters:
                self._numbers([f"{value}.{field.name}" for field in run], letters)
                continue
            (field,) = run
            name = self.name()
            self.add(f"{name} = {value}.{field.name}")
            self._value(
                field.kind, name, is_flexible=is_flexible, is_nullable=self.is_nullable(field)
            )
        tagged = self.tagged(kind)
        if tagged:
            usual = kind()
            shapes = [
                (field.tag, field.name, getattr(usual, field.name), self._tag_function(field))
                for field in tagged
            ]
            absent = (f"{value}.{name} is {self.bind(default)}" for _, name, default, _ in shapes)
            with self.block(f"if {' and '.join(absent)}:"):
                self.add("small.append(0)")
            with self.block("else:"):
                self.add(f"write_tags(out, {value}, {self.bind(shapes)})")
        elif is_flexible:
            self.add("small.append(0)")

    def _tag_function(self, field: Field) -> WriteValue:
        source = _WriteSource(self.version)
        return source.function(field.kind, is_flexible=True, is_nullable=self.is_nullable(field))


def _null_length(old: struct.Struct, is_flexible: bool) -> bytes:
    return bytes(1) if is_flexible else old.pack(-1)


def _write_tags(
    out: Writer, value: Struct, shapes: Sequence[tuple[int, str, Value, WriteValue]]
) -> None:
    """Append the tagged fields that differ from their defaults."""
    present = [
        (tag, field_value, function)
        for tag, name, default, function in shapes
        if not is_same(field_value := getattr(value, name), default)
    ]
    out.small += uvarint_bytes(len(present))
    for tag, field_value, function in present:
        inner = Writer()
        function(inner, field_value)
        parts = inner.parts()
        out.small += uvarint_bytes(tag) + uvarint_bytes(sum(map(len, parts)))
        for part in parts:
            out.piece(part)


def _size_of(value: bytes | Pieces) -> int:
    """Return the size of bytes, which may be given in pieces."""
    return len(value) if isinstance(value, IN_MEMORY) else sum(map(len, value))


def _write_pieces(out: Writer, value: bytes | Pieces) -> None:
    """Append bytes, which may be given in pieces."""
    if isinstance(value, IN_MEMORY):
        out.piece(value)
    else:
        for piece in value:
            out.piece(piece)
