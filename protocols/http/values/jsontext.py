"""JSON as text: its depth, its elements, and removal of blanks. Knows no schema.

A value that came as JSON keeps the client's spelling, including large numbers and `1.10`.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

DEPTH_MAX = 100  # Levels of nested arrays and objects.

# Possessive quantifiers: a string of megabytes is a single step, without memory for backtracking.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)
_STRUCTURE = re.compile(_STRING + rb"|[\[\]{},]", re.DOTALL)
# A colon in a string may be an escape; the backslash before may itself be escaped.
_ESCAPED_COLON = re.compile(rb"(?<!\\)((?:\\\\)*)\\u003[aA]")
_BLANKS = re.compile(rb"(" + _STRING + rb")|[ \t\r\n]+", re.DOTALL)


def is_deep(text: bytes) -> bool:
    """Return True if valid JSON is deeper than DEPTH_MAX."""
    if text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return False
    depth = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif first in b"]}":
            depth -= 1
    return False


class TooMany(ValueError):
    """An array or object has more elements than the limit."""


def elements(text: bytes, most: int) -> list[bytes]:
    """Return the elements of a valid JSON array, or the members of an object, as written.

    Runs in small steps of Python code: in a worker thread other threads get their turns, which
    parsing megabytes in C does not allow. Raises TooMany.
    """
    elements_found: list[bytes] = []
    depth = start = 0
    for token in _STRUCTURE.finditer(text):
        first = text[token.start()]
        if first in b"[{":
            depth += 1
            if depth == 1:
                start = token.end()
        elif first in b"]}":
            depth -= 1
        if first == ord('"') or (depth > 1 or (depth == 1 and first != ord(","))):
            continue
        element = text[start : token.start()].strip()
        if element:
            elements_found.append(element)
        if len(elements_found) > most:
            raise TooMany
        start = token.end()
    return elements_found


class RepeatedName(ValueError):
    """A JSON object has two members of the same name."""


# Depth of `check_names`: everywhere, only in an object, or only in the objects of an array. The
# values of numbers do not matter here.
EVERYWHERE: Final = msgspec.json.Decoder(float_hook=str)
OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
OBJECTS: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def has_every_member(text: bytes, value: object) -> bool:
    """Return True if `value`, decoded from this JSON, surely has all members; False if only
    `check_names` can tell.

    The encoding of the value has as many colons, in strings too, unless a member is missing.
    """
    return b"\\u003" not in text and msgspec.json.encode(value).count(b":") == text.count(b":")


def check_names(text: bytes, within: msgspec.json.Decoder[Any] = EVERYWHERE) -> None:
    """Check that no object in this JSON names a member twice: readers would keep either member.

    Raises RepeatedName, msgspec.DecodeError, RecursionError.
    """
    text = _ESCAPED_COLON.sub(rb"\1:", text)
    if not has_every_member(text, within.decode(text)):
        raise RepeatedName("an object names a field twice")


def unescaped(text: bytes) -> bytes | None:
    """Return the content of valid JSON that is a string without escapes; None for all else."""
    if text[:1] == b'"' == text[-1:] and b"\\" not in text:
        return text[1:-1]
    return None


def compact(text: bytes) -> bytes:
    """Return valid JSON without blanks between its tokens."""
    text = text.strip(b" \t\r\n")
    if not any(blank in text for blank in (b" ", b"\t", b"\r", b"\n")):
        return text
    return _BLANKS.sub(lambda match: match[1] or b"", text)
