"""Shared code of the Python programs of current clients: the records, and lines of JSON."""

import base64
import json

HEADERS = [("a", b"1"), ("a", b"2"), ("b", b"")]
RECORDS = [
    (b"k0", b"v0", []),
    (None, b"v1", []),
    (b"k2", None, []),
    (b"", b"", []),
    (b"k4", b"v4", HEADERS),
    (b"k5", b"x" * 5000, []),
]


def say(**fields):
    """Print a line for the caller of the program."""
    print(json.dumps(fields), flush=True)


def say_record(partition, offset, key, value, headers):
    """Print a received record."""

    def text(data):
        return None if data is None else base64.b64encode(data).decode()

    named = [[name, text(value)] for name, value in headers or ()]
    say(partition=partition, offset=offset, key=text(key), value=text(value), headers=named)
