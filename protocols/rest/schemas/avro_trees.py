"""Avro's JSON encoding for recursive definitions, whose values are trees: fastavro's own reader and
writer of JSON follow such a name only one level deep.

Turns JSON into what fastavro writes, and what it reads into JSON (Avro specification, "JSON
Encoding"). Logical types are treated as their underlying types. Python's recursion limit bounds how
deep a value may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Definition = Any  # As fastavro's parse_schema returns it: with full names.
Value = Any  # JSON, or what fastavro takes for it.

# The JSON types of each kind of value; fastavro checks the rest.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    **dict.fromkeys(("int", "long"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    **dict.fromkeys(("string", "bytes", "fixed", "enum"), (str,)),
    "array": (list,),
    **dict.fromkeys(("map", "record", "error"), (dict,)),
}
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
ONE_BYTE_TEXT = "latin-1"  # Bytes are written as text of U+0000 to U+00FF.


def without_logical_types(node: Definition) -> Definition:
    """The same definition without logical types: values stay numbers and bytes."""
    if isinstance(node, list):
        return [without_logical_types(one) for one in node]
    if not isinstance(node, dict):
        return node
    kept = {name: value for name, value in node.items() if name != "logicalType"}
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = without_logical_types(kept[name])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [without_logical_types(one) for one in kept["fields"]]
    return kept


class Tree:
    """Converts values of one parsed definition. Raises ValueError, KeyError or TypeError for any
    other value.
    """

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._named: dict[str, Definition] = {}
        self._collect(definition)

    def _collect(self, node: Definition) -> None:
        if isinstance(node, list):
            for one in node:
                self._collect(one)
        elif isinstance(node, dict):
            if node["type"] in ("record", "error", "enum", "fixed"):
                self._named[node["name"]] = node
            for field in node.get("fields", ()):
                self._collect(field["type"])
            for name in ("type", "items", "values"):
                self._collect(node.get(name))

    def datum(self, value: Value) -> Value:
        """Convert a value in Avro's JSON encoding to what fastavro writes."""
        return self._datum(self._definition, value)

    def shown(self, datum: Value) -> Value:
        """Convert what fastavro has read with `return_named_type` to Avro's JSON encoding."""
        return self._shown(self._definition, datum)

    def _resolved(self, node: Definition) -> tuple[str, Definition]:
        """The kind of a definition, and the node that has its parts."""
        if isinstance(node, list):
            return "union", node
        if isinstance(node, str):
            return self._resolved(self._named[node]) if node in self._named else (node, node)
        kind = node["type"]
        return (
            (kind, node)
            if isinstance(kind, str) and kind not in self._named
            else (self._resolved(kind))
        )

    def _label(self, branch: Definition) -> str:
        """How a union's branch is named in JSON."""
        kind, node = self._resolved(branch)
        return str(node["name"]) if kind in ("record", "error", "enum", "fixed") else kind

    def _datum(self, node: Definition, value: Value) -> Value:
        kind, node = self._resolved(node)
        if kind == "union":
            return self._of_union(node, value)
        if type(value) not in _TYPES[kind]:
            raise ValueError(f"a value of {kind} cannot be a {type(value).__name__}")
        if kind in ("record", "error"):
            return {field["name"]: self._of_field(field, value) for field in node["fields"]}
        if kind == "array":
            return [self._datum(node["items"], one) for one in value]
        if kind == "map":
            return {name: self._datum(node["values"], one) for name, one in value.items()}
        if kind in ("bytes", "fixed"):
            return value.encode(ONE_BYTE_TEXT)
        return value

    def _of_union(self, branches: list[Definition], value: Value) -> Value:
        if value is None:
            if "null" not in map(self._label, branches):
                raise ValueError("null is not a branch of the union")
            return None
        if not isinstance(value, dict) or len(value) != 1:
            raise ValueError("a value of a union is an object that names its branch")
        ((label, inner),) = value.items()
        for branch in branches:
            if self._label(branch) == label:
                return self._datum(branch, inner)
        raise ValueError(f"{label[:40]!r} is not a branch of the union")

    def _of_field(self, field: Mapping[str, Definition], value: Value) -> Value:
        if field["name"] in value:
            return self._datum(field["type"], value[field["name"]])
        node, default = field["type"], field["default"]
        while (resolved := self._resolved(node))[0] == "union":
            node = resolved[1][0]  # A default belongs to the first branch, without its name.
        return self._datum(node, default)

    def _shown(self, node: Definition, datum: Value) -> Value:
        kind, node = self._resolved(node)
        if kind == "union":
            return self._of_branch(node, datum)
        if kind in ("record", "error"):
            fields = node["fields"]
            return {one["name"]: self._shown(one["type"], datum[one["name"]]) for one in fields}
        if kind == "array":
            return [self._shown(node["items"], one) for one in datum]
        if kind == "map":
            return {name: self._shown(node["values"], one) for name, one in datum.items()}
        return datum.decode(ONE_BYTE_TEXT) if kind in ("bytes", "fixed") else datum

    def _of_branch(self, branches: list[Definition], datum: Value) -> Value:
        if datum is None:
            return None
        by_label = {self._label(branch): branch for branch in branches}
        if isinstance(datum, tuple):  # fastavro says which named type it is.
            label, datum = datum
        else:
            label = next(name for name in _labels_of(datum) if name in by_label)
        return {label: self._shown(by_label[label], datum)}


def _labels_of(datum: Value) -> tuple[str, ...]:
    """The unnamed types that such a value can have."""
    if isinstance(datum, bool):
        return ("boolean",)
    if isinstance(datum, int):
        return ("int", "long") if INT_MIN <= datum <= INT_MAX else ("long",)
    if isinstance(datum, float):
        return ("double", "float")
    kinds: dict[type, tuple[str, ...]] = {
        str: ("string",),
        bytes: ("bytes",),
        list: ("array",),
        dict: ("map",),
    }
    return kinds[type(datum)]
