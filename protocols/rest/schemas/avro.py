"""AVRO values: Avro's JSON encoding to and from Avro binary, both by fastavro, under limits.

fastavro's fast reader and writer are in C: they run to their end however long that takes, and a
schema that refers to itself lets data decide how deep they go. So they are used only for small
values of harmless schemas. All others use the same code in Python, in a worker thread.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol, cast

import fastavro
from fastavro import _read_py, _write_py

from protocols.rest.schemas.avro_trees import Tree, without_logical_types
from protocols.rest.schemas.primitives import BadValue

# A larger value is read and written by Python code in a thread: C would hold up the loop for 10 ms
# or more, since every byte may be a number.
FAST_BYTES_MAX = 32 * 1024
DEFINITION_BYTES_MAX = 256 * 1024  # Parsed definitions are kept; usual ones have a few KiB.

PRIMITIVE_BYTES = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8}
PRIMITIVE_BYTES |= {"bytes": 1, "string": 1}

Definition = Any  # JSON, as fastavro takes it.


class _Read(Protocol):
    def __call__(self, fo: IO[bytes], writer_schema: Definition, /) -> object: ...


class _Write(Protocol):
    def __call__(self, fo: IO[bytes], schema: Definition, record: object, /) -> None: ...


class AvroCodec:
    """Reads and writes values of one Avro definition. Raises BadValue if it is not one."""

    def __init__(self, definition: bytes) -> None:
        if len(definition) > DEFINITION_BYTES_MAX:
            raise BadValue(f"an Avro definition has at most {DEFINITION_BYTES_MAX} bytes")
        try:
            parsed = json.loads(definition)
            shape = _Shape(parsed)
            if shape.is_recursive:
                parsed = without_logical_types(parsed)
            self._schema: Definition = fastavro.parse_schema(parsed)
            self._tree = Tree(self._schema) if shape.is_recursive else None
        except Exception as error:  # fastavro fails in many ways, also with KeyError and TypeError.
            raise BadValue(f"not an Avro definition: {error or type(error).__name__}") from None
        if shape.has_free_items:
            raise BadValue("arrays and maps of items without bytes are not served")

    def write(self, text: bytes) -> bytes:
        """Avro binary of a value in Avro's JSON encoding. Raises BadValue."""
        # To fastavro each line is a value; in JSON a line feed can only be white space.
        line = text.replace(b"\n", b" ").replace(b"\r", b" ").decode()
        out = io.BytesIO()
        try:
            if self._tree is not None:
                value = self._tree.datum(json.loads(line))
            else:
                value = next(iter(fastavro.json_reader(io.StringIO(line), self._schema)))
            fastavro.validate(value, self._schema, raise_errors=True)
            self._writer(len(text))(out, self._schema, value)
        except Exception as error:  # Unexpected ones too: AttributeError for an untagged union.
            raise BadValue(f"does not fit the Avro schema: {_reason(error)}") from None
        return out.getvalue()

    def read(self, data: bytes) -> str:
        """The value in Avro's JSON encoding, as JSON text. Raises BadValue."""
        source = io.BytesIO(data)
        try:
            text = self._shown(source, len(data))
            json.loads(text, parse_constant=_refuse_constant)
        except Exception as error:  # fastavro raises IndexError, EOFError and others on bad bytes.
            raise BadValue(f"does not fit the Avro schema: {_reason(error)}") from None
        if source.read(1):
            raise BadValue("more bytes than the Avro schema describes")
        return text.strip()

    def _shown(self, source: io.BytesIO, size: int) -> str:
        if self._tree is not None:
            read = _read_py.schemaless_reader
            return json.dumps(self._tree.shown(read(source, self._schema, return_named_type=True)))
        out = io.StringIO()
        fastavro.json_writer(out, self._schema, [self._reader(size)(source, self._schema)])
        return out.getvalue()

    def _writer(self, size: int) -> _Write:
        is_fast = size <= FAST_BYTES_MAX and self._tree is None
        chosen = fastavro.schemaless_writer if is_fast else _write_py.schemaless_writer
        return cast(_Write, chosen)

    def _reader(self, size: int) -> _Read:
        is_fast = size <= FAST_BYTES_MAX
        return cast(_Read, fastavro.schemaless_reader if is_fast else _read_py.schemaless_reader)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"JSON has no {name}")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


class _Shape:
    """What a definition allows its data to do. A malformed one may raise any exception."""

    def __init__(self, definition: Definition) -> None:
        self.is_recursive = False
        self.has_free_items = False  # Items of no bytes: a count of 2^60 of them costs nine bytes.
        self._bytes_min: dict[str, int] = {}  # By full name, for named types that were read.
        self._open: set[str] = set()  # Named types that are being read now.
        self._measure(definition, "")

    def _measure(self, node: Definition, namespace: str) -> int:
        """The fewest bytes that a value takes."""
        if isinstance(node, str):
            return self._named(node, namespace)
        if isinstance(node, list):
            for branch in node:
                self._measure(branch, namespace)
            return 1
        measure = self._KINDS.get(node["type"]) if isinstance(node["type"], str) else None
        if measure is not None:
            return measure(self, node, namespace)
        return self._measure(node["type"], namespace)

    def _named(self, name: str, namespace: str) -> int:
        if name in PRIMITIVE_BYTES:
            return PRIMITIVE_BYTES[name]
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._open or full in self._bytes_min else name
        if full in self._open:
            self.is_recursive = True
            return 1  # A union must come in between: else the value would never end.
        return self._bytes_min[full]

    def _items(self, node: Mapping[str, Definition], namespace: str) -> int:
        if self._measure(node["items"], namespace) == 0:
            self.has_free_items = True
        return 1

    def _values(self, node: Mapping[str, Definition], namespace: str) -> int:
        self._measure(node["values"], namespace)  # Each value has a key of one byte or more.
        return 1

    def _fixed(self, node: Mapping[str, Definition], namespace: str) -> int:
        size = int(node["size"])
        self._bytes_min[_full_name(node, namespace)[0]] = size
        return size

    def _enum(self, node: Mapping[str, Definition], namespace: str) -> int:
        self._bytes_min[_full_name(node, namespace)[0]] = 1
        return 1

    def _record(self, node: Mapping[str, Definition], namespace: str) -> int:
        full, inner = _full_name(node, namespace)
        self._open.add(full)
        size = sum(self._measure(field["type"], inner) for field in node["fields"])
        self._open.discard(full)
        self._bytes_min[full] = size
        return size

    _KINDS: Mapping[str, Callable[[_Shape, Mapping[str, Definition], str], int]] = {
        "array": _items,
        "map": _values,
        "fixed": _fixed,
        "enum": _enum,
        "record": _record,
        "error": _record,
    }


def _full_name(node: Mapping[str, Definition], namespace: str) -> tuple[str, str]:
    """A named type's full name, and the namespace of the names inside it."""
    name = str(node["name"])
    if "." in name:
        return name, name.rpartition(".")[0]
    own = node.get("namespace", namespace)
    return (f"{own}.{name}" if own else name), str(own or "")
