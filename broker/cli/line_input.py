"""Lines of a file or of standard input, in the groups in which they arrive.

A line from a terminal or a slow program is handed on at once; a file comes in large groups. Knows
no message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator

from braidlog.broker.cli.failures import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, AdminError

READ_BYTES = 256 * 1024
# Longer than the largest record that a broker takes over HTTP, in base64 and with headers.
LINE_BYTES_MAX = 9 * 1024 * 1024
GROUP_LINES = 1000
GROUP_BYTES = 1024 * 1024
STANDARD_INPUT = "-"

Lines = list[bytes]


def groups_of_lines(
    source: str, advance: Callable[[int, int], None] = lambda done, total: None
) -> Iterator[Lines]:
    """Yield lines without their line ends; `advance` takes the bytes read and the file's size.

    Raises AdminError for a file that cannot be read and for a line that is too long.
    """
    try:
        file = sys.stdin.fileno() if source == STANDARD_INPUT else os.open(source, os.O_RDONLY)
    except FileNotFoundError as error:
        raise AdminError(f"{source}: {error.strerror}", EXIT_NOT_FOUND) from error
    except (OSError, ValueError) as error:
        raise AdminError(f"{source}: {_reason(error)}", EXIT_USAGE) from error
    try:
        size = os.fstat(file).st_size
        rest, done, number = b"", 0, 0
        while piece := os.read(file, READ_BYTES):
            done += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            number += len(lines)
            if len(rest) > LINE_BYTES_MAX:
                text = f"{source}: line {number + 1} is longer than {LINE_BYTES_MAX} bytes"
                raise AdminError(text, EXIT_FAILED)
            yield from grouped(lines)
            advance(done, size)
        if rest:
            yield [rest]
    except OSError as error:
        raise AdminError(f"{source}: {_reason(error)}", EXIT_FAILED) from error
    finally:
        if source != STANDARD_INPUT:
            os.close(file)


def grouped(lines: Iterable[bytes]) -> Iterator[Lines]:
    """Yield lines in groups of limited number and size."""
    group: Lines = []
    size = 0
    for line in lines:
        if group and (len(group) >= GROUP_LINES or size + len(line) > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(line)
        size += len(line)
    if group:
        yield group


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
