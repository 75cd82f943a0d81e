"""Plain words for values that cannot be read: thing, problem, expectation.

The errors of the JSON and settings libraries name Python types and places such as `$.a[0]`. Texts
of HTTP bodies, topic settings and configuration go through this module instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args, get_type_hints

import msgspec
import msgspec.inspect

Nouns = Mapping[str, str]
NOUNS: Final[Nouns] = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "bytes": "text in base64",
}
SETTING_NOUNS: Final[Nouns] = {**NOUNS, "object": "a group of settings", "null": "none"}
# The end of the library's texts. A name of an object has its own form: at `key` in `$.settings`.
_PLACE = re.compile(r" - at (`key` in )?`\$\.?(.*)`$", re.DOTALL)
_EXPECTED = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`| ?(.*))", re.DOTALL)
_LENGTH = re.compile(r"of (?:at (?:least|most) )?length (<=|>=)? ?(\d+)(?: to (\d+))?.*")
_COMPARED: Final = {"<=": "at most", ">=": "at least", "<": "below", ">": "above"}
_UNITS: Final = {"str": ("character", "characters"), "bytes": ("byte", "bytes")}
_MALFORMED = re.compile(r"JSON is malformed: (.*) \(byte (\d+)\)", re.DOTALL)
_LISTED_NAMES: Final = 40  # Names in a text; more are left out.
DEEP: Final = "nested too deeply"


@dataclass(frozen=True, slots=True)
class ValueFault:
    """A value that cannot be read.

    `place` is the dotted path of the value, `items[0].name`; empty for the whole. `unknown` is the
    name of a field that is not expected there, else empty.
    """

    place: str
    reason: str
    unknown: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason


def fault_of(error: Exception, into: type[Any] | None = None, nouns: Nouns = NOUNS) -> ValueFault:
    """Return the fault that a library's error reports; `into` is the expected type, if known.

    Errors of other kinds, whose texts are our own, keep their text.
    """
    if isinstance(error, msgspec.ValidationError):
        return _misfit(str(error), into, nouns)
    if isinstance(error, RecursionError):
        return ValueFault("", DEEP)
    if isinstance(error, UnicodeDecodeError):
        return ValueFault("", f"not UTF-8: {error.reason} at byte {error.start}")
    if isinstance(error, json.JSONDecodeError):
        text = f"{error.msg[:1].lower()}{error.msg[1:]}"
        return ValueFault("", f"not JSON: {text} at line {error.lineno}, column {error.colno}")
    if isinstance(error, msgspec.DecodeError):
        return _not_json(str(error))
    return ValueFault("", str(error))


def explain(error: Exception, into: type[Any] | None = None, whole: str = "") -> str:
    """Return the fault as a text; `whole` names the value that has the fault if no field has."""
    fault = fault_of(error, into)
    return str(fault) if fault.place or not whole else f"{whole}: {fault}"


def nearest_name(fault: ValueFault, into: type[Any]) -> str | None:
    """Return the field of `into`, at the fault's place, whose name is nearly the unknown name; None
    if no field is near.
    """
    from difflib import get_close_matches  # Only after a mistake: a broker keeps no such module.

    group: Any = into
    for name in filter(None, fault.place.split(".")):
        hint = get_type_hints(group).get(name)
        parts = (hint, *get_args(hint))
        group = next((part for part in parts if hasattr(part, "__struct_fields__")), None)
    near = get_close_matches(fault.unknown, getattr(group, "__struct_fields__", ()), 1)
    return near[0] if near else None


def _not_json(text: str) -> ValueFault:
    match = _MALFORMED.fullmatch(text)
    if match is not None:
        return ValueFault("", f"not JSON: {match[1]} at byte {match[2]}")
    if text == "Input data was truncated":
        return ValueFault("", "not JSON: the text ends too early")
    return _misfit(text, None, NOUNS)  # A number out of range, with its place.


def _misfit(text: str, into: type[Any] | None, nouns: Nouns) -> ValueFault:
    match = _PLACE.search(text)
    place = ""
    if match is not None:
        text = text[: match.start()]
        place = match[2].replace("[...]", "")  # A value of an object that may have any names.
        if match[1]:
            place = f"a name in {place or 'the object'}"
    if text.startswith("Object contains unknown field `"):
        name = text.split("`", 1)[1].rstrip("`")
        known = _listed(_fields(_at(into, place)))
        return ValueFault(
            place, f"unknown field {name}" + (f"; there are: {known}" if known else ""), name
        )
    if text.startswith("Object missing required field `"):
        name = text.split("`", 1)[1].rstrip("`")
        return ValueFault(place, f"field {name} is missing")
    if text.startswith("Invalid enum value "):
        value = text.removeprefix("Invalid enum value ")
        choices = _listed(_values(_at(into, place)))
        return ValueFault(
            place, f"{value} is none of {choices}" if choices else f"{value} is not valid"
        )
    if (expected := _EXPECTED.fullmatch(text)) is not None:
        return ValueFault(place, _expectation(expected[1], expected[2], expected[3], nouns))
    if text == "Invalid base64 encoded string":
        return ValueFault(place, "expected text in base64")
    return ValueFault(place, f"{text[:1].lower()}{text[1:]}")


def _expectation(wanted: str, actual: str | None, limit: str | None, nouns: Nouns) -> str:
    """Return an expectation in words: `int | null`, `str` and a limit such as `>= 1`."""
    *others, last = [nouns.get(kind, kind) for kind in wanted.split(" | ")]
    text = f"expected {', '.join(others)} or {last}" if others else f"expected {last}"
    if actual is not None:
        return (
            f"{text}, not {'a decimal number' if actual == 'float' else nouns.get(actual, actual)}"
        )
    if not limit:
        return text
    length = _LENGTH.fullmatch(limit)
    if length is not None:
        unit, units = _UNITS.get(wanted, ("entry", "entries"))
        bound = " ".join(filter(None, (_COMPARED.get(length[1] or ""), length[2])))
        if length[3]:
            return f"{text} of {bound} to {length[3]} {units}"
        return f"{text} of {bound} {unit if length[2] == '1' else units}"
    compared, _, number = limit.partition(" ")
    if compared in _COMPARED:
        of = "of " if compared in ("<=", ">=") else ""
        return f"{text} {of}{_COMPARED[compared]} {number.removesuffix('.0')}"
    pattern = limit.removeprefix("matching regex ")
    if pattern != limit:
        return f"{text} that matches {pattern}"
    return f"{text} {limit.replace(chr(39) + 's', ' is')}"  # "that's a multiple of 512"


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _LISTED_NAMES else ""


def _fields(kinds: list[msgspec.inspect.Type]) -> list[str]:
    structs = [kind for kind in kinds if isinstance(kind, msgspec.inspect.StructType)]
    return [field.encode_name for kind in structs for field in kind.fields]


def _values(kinds: list[msgspec.inspect.Type]) -> list[str]:
    values: list[object] = []
    for kind in kinds:
        if isinstance(kind, msgspec.inspect.LiteralType):
            values += kind.values
        elif isinstance(kind, msgspec.inspect.EnumType):
            values += [member.value for member in kind.cls]
    return [str(value) for value in values]


def _at(into: type[Any] | None, place: str) -> list[msgspec.inspect.Type]:
    """Return the types that are expected at a place of `into`; none if the place is not found."""
    if into is None:
        return []
    kinds = _alternatives(msgspec.inspect.type_info(into))
    for step in re.findall(r"[^.\[\]]+", place):
        kinds = [part for kind in kinds for part in _alternatives(_part(kind, step))]
    return kinds


def _part(kind: msgspec.inspect.Type, step: str) -> msgspec.inspect.Type | None:
    if isinstance(kind, msgspec.inspect.StructType):
        return next((field.type for field in kind.fields if field.encode_name == step), None)
    return getattr(kind, "item_type", None)


def _alternatives(kind: msgspec.inspect.Type | None) -> list[msgspec.inspect.Type]:
    """Return a type's alternatives, without the values of dicts: these have no step in a place."""
    if kind is None:
        return []
    if isinstance(kind, msgspec.inspect.UnionType):
        return [part for part_kind in kind.types for part in _alternatives(part_kind)]
    if isinstance(kind, msgspec.inspect.DictType):
        return [kind, *_alternatives(kind.value_type)]
    return [kind]
