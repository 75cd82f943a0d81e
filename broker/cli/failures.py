"""Failure of a command: a line for the user, and the exit code for the kind of failure.

Imports little: a broker that runs keeps this module in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_INTERRUPTED = 0, 1, 2, 4, 130
EXIT_UNREACHABLE = EXIT_UNREADABLE = 3  # No broker, or no data, can be reached.

Kinds = type[Exception] | tuple[type[Exception], ...]


class AdminError(Exception):
    """A failed command: a line for the user, and the exit code for the kind of failure."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def failing(kinds: Mapping[int, Kinds]) -> Iterator[None]:
    """Turn errors of these types into AdminError; each exit code has its types of errors."""
    try:
        yield
    except Exception as error:
        for exit_code, types in kinds.items():
            if isinstance(error, types):
                raise AdminError(str(error), exit_code) from error
        raise


def fail(text: str, code: int) -> int:
    """Print a line on standard error; return the exit code."""
    print(f"braidlog: {' '.join(text.split())}", file=sys.stderr)
    return code
