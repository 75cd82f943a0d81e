"""JSON as text: how deep it goes, and the same without blanks. Knows no schema.

A value that came as JSON is kept as the client wrote it: large numbers and `1.10` included.
"""

import re

DEPTH_MAX = 100  # Of arrays and objects in each other.

_STRING = rb'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)
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


def compact(text: bytes) -> bytes:
    """Valid JSON without blanks between its tokens."""
    text = text.strip(b" \t\r\n")
    if not any(blank in text for blank in (b" ", b"\t", b"\r", b"\n")):
        return text
    return _BLANKS.sub(lambda match: match[1] or b"", text)
