"""JSON as text: its depth, its elements, and the same without blanks. Knows no schema.

A value that came as JSON is kept as the client wrote it: large numbers and `1.10` included.
"""

import re

DEPTH_MAX = 100  # Levels of nested arrays and objects.

# Possessive quantifiers: a string of megabytes is one step, without memory for backtracking.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)
_STRUCTURE = re.compile(_STRING + rb"|[\[\]{},]", re.DOTALL)
_BLANKS = re.compile(rb"(" + _STRING + rb")|[ \t\r\n]+", re.DOTALL)


def is_deep(text: bytes) -> bool:
    """Whether valid JSON goes deeper than DEPTH_MAX."""
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
    """An array or object has more elements than are accepted."""


def elements(text: bytes, most: int) -> list[bytes]:
    """The elements of a valid JSON array, or the members of an object, as they are written.

    This runs in small steps of Python code: in a thread it leaves other threads their turns, which
    parsing megabytes in C does not. Raises TooMany.
    """
    found: list[bytes] = []
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
            found.append(element)
        if len(found) > most:
            raise TooMany
        start = token.end()
    return found


def compact(text: bytes) -> bytes:
    """Valid JSON without blanks between its tokens."""
    text = text.strip(b" \t\r\n")
    if not any(blank in text for blank in (b" ", b"\t", b"\r", b"\n")):
        return text
    return _BLANKS.sub(lambda match: match[1] or b"", text)
