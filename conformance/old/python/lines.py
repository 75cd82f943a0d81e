"""Shared code of the Python programs of old clients, in the syntax of Python 3.6."""

import base64
import json
import sys

RECORDS = [(b"k0", b"v0"), (None, b"v1"), (b"k2", b"v2"), (b"k5", b"x" * 5000)]


def say(**fields):
    """Print a line for the caller of the program."""
    print(json.dumps(fields))
    sys.stdout.flush()


def say_record(offset, key, value):
    """Print a received record."""

    def text(data):
        return None if data is None else base64.b64encode(data).decode()

    say(offset=offset, key=text(key), value=text(value))


def run(commands):
    """Run the requested command."""
    commands[sys.argv[1]](*sys.argv[2:])
