"""Declarations of the structures of Kafka's messages; `codec.py` reads and writes them.

A generated class in `wire/` declares a structure: a row for each field, in the order of the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from braidlog.protocols.kafka.fields import Value
from braidlog.storage.formats.api import Part

LATEST = 1 << 15  # "and every later version"; as a first version: never
NO_UUID = bytes(16)

Pieces = Sequence[Part] | memoryview  # A message set: pieces to write, or a view of the frame.
EMPTY: tuple[Value, ...] = ((), [])  # The empty default of a list, and a list that was read.


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


class Field(NamedTuple):
    """A field of a structure: it exists from version `since` to version `until`, both inclusive."""

    name: str
    kind: Fixed | Sized | Array | type[Struct]
    since: int = 0
    until: int = LATEST
    nullable: int = LATEST  # Null is allowed from this version on.
    tag: int | None = None  # A tagged field has its number.


# An object of msgspec's is made in a quarter of the time of a Python class's. No structure is part
# of a cycle, so collections need not look at them.
class Struct(msgspec.Struct, eq=False, gc=False):
    """Base of the generated classes: a default for each field."""

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    FLEXIBLE: ClassVar[int] = LATEST  # the first flexible version
    KEY: ClassVar[int]  # the api key of a request
    VERSIONS: ClassVar[tuple[int, int]]  # the first and the last version of a request

    def __eq__(self, other: object) -> bool:
        """Compare all fields, also those of other versions."""
        if type(self) is not type(other):
            return NotImplemented
        names = [field.name for field in self.FIELDS]
        return all(is_same(getattr(self, name), getattr(other, name)) for name in names)

    def __repr__(self) -> str:
        """Show the fields that differ from their defaults."""
        values = {field.name: getattr(self, field.name) for field in self.FIELDS}
        usual = type(self)()
        shown = [
            f"{name}={value!r}"
            for name, value in values.items()
            if not is_same(value, getattr(usual, name))
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


StructT = TypeVar("StructT", bound=Struct)


def own(kind: type[StructT]) -> StructT:
    """Declare a new structure as the default of a field."""
    declared: StructT = msgspec.field(default_factory=kind)
    return declared


def is_same(value: Value, other: Value) -> bool:
    """Return True if two values are equal; the empty default and any empty list are."""
    return bool(value == other or (value in EMPTY and other in EMPTY))
