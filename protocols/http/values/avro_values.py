"""Values of an Avro definition: from Avro's JSON encoding to Avro binary, and back (Avro
specification, "JSON Encoding" and "Binary Encoding").

fastavro reads and writes JSON too, but loses the union branch that a value names: of two records
with the same fields fastavro writes the first. Logical types appear as their underlying types, as
in the JSON of Avro's own library. Python's recursion limit bounds the depth of a value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Definition = Any  # The result of fastavro's parse_schema: with full names.
Value = Any  # JSON.

FLOAT, DOUBLE = struct.Struct("<f"), struct.Struct("<d")
LONG_BITS = 64
ONE_BYTE_TEXT = "latin-1"  # Bytes are written as text of U+0000 to U+00FF.
# Limit of a value's JSON: a definition of a few kilobytes can give a value of no bytes millions of
# fields, and a value of one byte a name of any length.
JSON_BYTES_MIN, JSON_EXPANSION = 4096, 128
NAME_EXTRA = 4  # Quotes, colon and comma.
# Limits of a field's default. Each line of a definition of nested records can double the default.
DEFAULT_BYTES_MAX, DEFAULT_PARTS_MAX = 64 * 1024, 10_000
NAMED = ("record", "error", "enum", "fixed")

# The JSON types of each kind of value.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    **dict.fromkeys(("int", "long"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    **dict.fromkeys(("string", "bytes", "fixed", "enum"), (str,)),
    "array": (list,),
    **dict.fromkeys(("map", "record", "error"), (dict,)),
}
_JSON_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


class AvroValues:
    """Reads and writes values of a parsed definition. Values or bytes that do not fit raise
    ValueError, or Python's own error for them.
    """

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._named: dict[str, Definition] = {}
        # Defaults by a field's `id`; or the reason for a missing default.
        self._defaults: dict[int, bytes | str] = {}
        self._names_sizes: dict[str, int] = {}
        self._collect(definition)

    def write(self, value: Value) -> bytes:
        """Return the Avro binary of a value."""
        out = bytearray()
        self.write_as(self._definition, value, out)
        return bytes(out)

    def read(self, data: bytes) -> Value:
        """Return the value of Avro binary, after a check that no bytes follow."""
        source = AvroSource(data)
        value = self.read_as(self._definition, source)
        if source.pos != len(data):
            raise ValueError("more bytes than the Avro schema describes")
        return value

    def write_as(self, node: Definition, value: Value, out: bytearray) -> None:
        """Append a value of a part of the definition."""
        kind, node = self.resolved(node)
        if kind != "union" and type(value) not in _TYPES[kind]:
            raise ValueError(f"a value of {kind} cannot be {_JSON_NAMES[type(value)]}")
        _KINDS[kind][0](self, node, value, out)

    def read_as(self, node: Definition, source: AvroSource) -> Value:
        """Return the next value, which is of a part of the definition."""
        kind, node = self.resolved(node)
        return _KINDS[kind][1](self, node, source)

    def label(self, branch: Definition) -> str:
        """Return the name of a union's branch in JSON."""
        kind, node = self.resolved(branch)
        return str(node["name"]) if kind in NAMED else kind

    def default_of(self, field: Mapping[str, Definition]) -> bytes:
        """Return the Avro binary of an omitted field.

        The binary is made once: a definition of a few kilobytes can have a default of very many
        parts.
        """
        default = self._defaults.get(id(field))
        if default is None:
            try:
                default = self._written_default(field)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                default = str(error)
            self._defaults[id(field)] = default
        if isinstance(default, str):
            raise ValueError(default)
        return default

    def _written_default(self, field: Mapping[str, Definition]) -> bytes:
        name = field["name"]
        if "default" not in field:
            raise ValueError(f"no value for {name!r}, which has no default")
        out = bytearray()
        value = _Labelling(self).of(field["type"], field["default"])
        self.write_as(field["type"], value, out)
        if len(out) > DEFAULT_BYTES_MAX:
            raise ValueError(f"the default of {name!r} is too large")
        return bytes(out)

    def names_size(self, record: Mapping[str, Definition]) -> int:
        """Return the size of the JSON of a record's field names."""
        size = self._names_sizes.get(record["name"])
        if size is None:
            size = sum(len(field["name"]) + NAME_EXTRA for field in record["fields"])
            self._names_sizes[record["name"]] = size
        return size

    def resolved(self, node: Definition) -> tuple[str, Definition]:
        """Return the kind of a definition, and the node that has its parts."""
        while True:
            if isinstance(node, list):
                return "union", node
            kind = node if isinstance(node, str) else node["type"]
            if isinstance(kind, str) and kind not in self._named:
                return kind, node
            node = self._named[kind] if isinstance(kind, str) else kind

    def _collect(self, node: Definition) -> None:
        if isinstance(node, list):
            for child in node:
                self._collect(child)
        elif isinstance(node, dict):
            if node["type"] in NAMED:
                self._named[node["name"]] = node
            for field in node.get("fields", ()):
                self._collect(field["type"])
            for name in ("type", "items", "values"):
                self._collect(node.get(name))


class _Labelling:
    """Adds branch names to the JSON of a default, in which values of unions do not name their
    branch. The first branch that fits is named.
    """

    def __init__(self, values: AvroValues) -> None:
        self._values = values
        self._left = DEFAULT_PARTS_MAX  # Each branch may be tried within each branch around it.

    def of(self, node: Definition, default: Value) -> Value:
        """Return the JSON with branch names, for a part of the definition. Omitted fields stay
        omitted.
        """
        self._left -= 1
        if self._left < 0:
            raise OverflowError("a default has too many parts")
        kind, node = self._values.resolved(node)
        if kind == "union":
            return self._branch(node, default)
        if kind in ("record", "error"):
            return {
                field["name"]: self.of(field["type"], default[field["name"]])
                for field in node["fields"]
                if field["name"] in default
            }
        if kind == "array":
            return [self.of(node["items"], element) for element in default]
        if kind == "map":
            return {name: self.of(node["values"], element) for name, element in default.items()}
        return default

    def _branch(self, branches: list[Definition], default: Value) -> Value:
        for branch in branches:
            try:
                value = self.of(branch, default)
                self._values.write_as(branch, value, bytearray())
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            return None if value is None else {self._values.label(branch): value}
        raise ValueError("a default fits no branch of its union")


class AvroSource:
    """Avro binary and the position of the reader."""

    __slots__ = ("data", "pos", "room")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.room = JSON_BYTES_MIN + JSON_EXPANSION * len(data)

    def reserve(self, size: int) -> None:
        """Reserve room for JSON that has no bytes in the binary."""
        self.room -= size
        if self.room < 0:
            raise ValueError("as JSON it would be very much larger")

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        start, self.pos = self.pos, self.pos + size
        if size < 0 or self.pos > len(self.data):
            raise ValueError("the bytes end too soon")
        return self.data[start : self.pos]

    def long(self) -> int:
        """Return the next number: seven bits a byte, the lowest first, the sign in the very first
        bit.
        """
        data, pos = self.data, self.pos
        number = shift = 0
        more = True
        while more:
            if pos == len(data) or shift >= LONG_BITS:
                raise ValueError("the bytes end in a number, or it has too many")
            byte = data[pos]
            pos += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            more = byte > 0x7F
        self.pos = pos
        return (number >> 1) ^ -(number & 1)

    def counts(self) -> Iterator[int]:
        """Yield the number of items in each block of an array or map."""
        while count := self.long():
            if count < 0:
                self.long()  # The size of the block, for readers that skip blocks.
            yield abs(count)


def _write_long(number: int, out: bytearray) -> None:
    number = (number << 1) ^ (number >> (LONG_BITS - 1))
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _write_sized(data: bytes, out: bytearray) -> None:
    _write_long(len(data), out)
    out += data


def _write_null(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
    """Write nothing."""


def _write_boolean(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
    out.append(value)


def _whole(bits: int) -> Writer:
    limit = 1 << (bits - 1)

    def write(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
        if not -limit <= value < limit:
            raise ValueError(f"{value} is outside of {bits} bits")
        _write_long(value, out)

    return write


def _floating(layout: struct.Struct) -> tuple[Writer, Reader]:
    def write(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
        packed = layout.pack(value)  # OverflowError for a number that is too large.
        if not math.isfinite(layout.unpack(packed)[0]):
            raise ValueError("the number is too large")
        out += packed

    def read(values: AvroValues, node: Definition, source: AvroSource) -> Value:
        (number,) = layout.unpack(source.take(layout.size))
        if not math.isfinite(number):
            raise ValueError(f"JSON has no {number}")
        return number

    return write, read


def _write_string(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
    _write_sized(value.encode(), out)


def _write_bytes(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
    _write_sized(value.encode(ONE_BYTE_TEXT), out)


def _write_fixed(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
    if len(value) != node["size"]:
        raise ValueError(f"{len(value)} bytes of {node['name']}, which has {node['size']}")
    out += value.encode(ONE_BYTE_TEXT)


def _write_enum(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
    if value not in node["symbols"]:
        raise ValueError(f"{value[:40]!r} is not a symbol of {node['name']}")
    _write_long(node["symbols"].index(value), out)


def _write_array(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
    if value:
        _write_long(len(value), out)
        for element in value:
            values.write_as(node["items"], element, out)
    out.append(0)


def _write_map(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
    if value:
        _write_long(len(value), out)
        for name, element in value.items():
            _write_sized(name.encode(), out)
            values.write_as(node["values"], element, out)
    out.append(0)


def _write_record(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
    for field in node["fields"]:
        name = field["name"]
        if name in value:
            values.write_as(field["type"], value[name], out)
        else:
            out += values.default_of(field)


def _write_union(values: AvroValues, node: Definition, value: Value, out: bytearray) -> None:
    wanted = "null"
    if value is not None:
        if type(value) is not dict or len(value) != 1:
            raise ValueError("a value of a union is null or an object that names its branch")
        ((wanted, value),) = value.items()
    for number, branch in enumerate(node):
        if values.label(branch) == wanted:
            _write_long(number, out)
            values.write_as(branch, value, out)
            return
    raise ValueError(f"{wanted[:40]!r} is not a branch of the union")


def _read_null(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    return None


def _read_boolean(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    return source.take(1) != b"\0"


def _read_long(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    return source.long()


def _read_string(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    return source.take(source.long()).decode()


def _read_bytes(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    return source.take(source.long()).decode(ONE_BYTE_TEXT)


def _read_fixed(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    return source.take(node["size"]).decode(ONE_BYTE_TEXT)


def _read_enum(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    return _numbered(node["symbols"], source)


def _read_array(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    items = node["items"]
    return [values.read_as(items, source) for count in source.counts() for _ in range(count)]


def _read_map(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    entries = {}
    for count in source.counts():
        for _ in range(count):
            name = source.take(source.long()).decode()
            entries[name] = values.read_as(node["values"], source)
    return entries


def _read_record(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    source.reserve(values.names_size(node))
    return {field["name"]: values.read_as(field["type"], source) for field in node["fields"]}


def _read_union(values: AvroValues, node: Definition, source: AvroSource) -> Value:
    branch = _numbered(node, source)
    value = values.read_as(branch, source)
    if value is None:
        return None
    label = values.label(branch)
    source.reserve(len(label) + NAME_EXTRA)
    return {label: value}


def _numbered(choices: list[Value], source: AvroSource) -> Value:
    number = source.long()
    if not 0 <= number < len(choices):
        raise ValueError(f"there is no choice {number}")
    return choices[number]


Writer = Callable[[AvroValues, Definition, Value, bytearray], None]
Reader = Callable[[AvroValues, Definition, AvroSource], Value]

# For each kind of node, the functions that write and read a value.
_KINDS: Mapping[str, tuple[Writer, Reader]] = {
    "null": (_write_null, _read_null),
    "boolean": (_write_boolean, _read_boolean),
    "int": (_whole(32), _read_long),
    "long": (_whole(64), _read_long),
    "float": _floating(FLOAT),
    "double": _floating(DOUBLE),
    "string": (_write_string, _read_string),
    "bytes": (_write_bytes, _read_bytes),
    "fixed": (_write_fixed, _read_fixed),
    "enum": (_write_enum, _read_enum),
    "array": (_write_array, _read_array),
    "map": (_write_map, _read_map),
    "record": (_write_record, _read_record),
    "error": (_write_record, _read_record),
    "union": (_write_union, _read_union),
}
