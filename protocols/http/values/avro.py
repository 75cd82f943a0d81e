"""AVRO values: Avro's JSON encoding to and from Avro binary, under limits.

fastavro parses the definition. With a recursive schema, or with items without bytes, the data
decides the amount of the reader's work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import fastavro

from braidlog.broker.topics.schema_rules import definition_fault
from braidlog.protocols.http.values.avro_values import AvroValues
from braidlog.protocols.http.values.jsontext import RepeatedName
from braidlog.protocols.http.values.primitives import BadValue

PRIMITIVE_BYTES = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8}
PRIMITIVE_BYTES |= {"bytes": 1, "string": 1}

Definition = Any  # JSON, the input of fastavro.


class AvroCodec:
    """Reads and writes values of an Avro definition. Raises BadValue for an invalid definition."""

    def __init__(self, definition: bytes) -> None:
        try:
            parsed = json.loads(definition)
            self._values = AvroValues(fastavro.parse_schema(parsed))
            shape = _Shape(parsed)
        except Exception as error:  # fastavro fails in many ways, also with KeyError and TypeError.
            raise BadValue(f"not an Avro definition: {definition_fault(error)}") from None
        if shape.has_free_items:
            raise BadValue("arrays and maps of items without bytes are not served")

    def write(self, text: bytes) -> bytes:
        """Return the Avro binary of a value in Avro's JSON encoding. Raises BadValue."""
        try:
            return self._values.write(json.loads(text, object_pairs_hook=_unique))
        except Exception as error:  # Of many types, RecursionError among them.
            raise BadValue(f"does not fit the Avro schema: {_reason(error)}") from None

    def read(self, data: bytes) -> str:
        """Return the value in Avro's JSON encoding, as JSON text. Raises BadValue."""
        try:
            return json.dumps(self._values.read(data))
        except Exception as error:
            raise BadValue(f"does not fit the Avro schema: {_reason(error)}") from None


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raises RepeatedName."""
    by_name = dict(members)
    if len(by_name) != len(members):
        raise RepeatedName("an object names a field twice")
    return by_name


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


class _Shape:
    """The possible effects of a definition's data. A malformed definition may raise any
    exception.
    """

    def __init__(self, definition: Definition) -> None:
        self.has_free_items = False  # Items of no bytes: a count of 2^60 items costs nine bytes.
        self._bytes_min: dict[str, int] = {}  # By full name, for named types read so far.
        self._open: set[str] = set()  # Named types being read now.
        self._measure(definition, "")

    def _measure(self, node: Definition, namespace: str) -> int:
        """Return the smallest size of a value in bytes."""
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
            return 1  # A union must come in between; otherwise the value would never end.
        return self._bytes_min[full]

    def _items(self, node: Mapping[str, Definition], namespace: str) -> int:
        if self._measure(node["items"], namespace) == 0:
            self.has_free_items = True
        return 1

    def _values(self, node: Mapping[str, Definition], namespace: str) -> int:
        self._measure(node["values"], namespace)  # Each value has a key of at least a byte.
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
    """Return a named type's full name, and the namespace of the names inside the type."""
    name = str(node["name"])
    if "." in name:
        return name, name.rpartition(".")[0]
    own = node.get("namespace", namespace)
    return (f"{own}.{name}" if own else name), str(own or "")
