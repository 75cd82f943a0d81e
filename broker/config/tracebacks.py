"""Tracebacks as plain text of bounded size.

A bug deep in a recursion, or a repeated bug, must not hold the loop or fill the log. Values of
variables are left out, because they may be a client's data.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Final

# Frames per error: the outer frames, and the frames nearest to the raise.
OUTER_FRAMES_MAX: Final = 10
INNER_FRAMES_MAX: Final = 20
# Errors of a chain, counted from the last error, and the first errors of a group.
CHAIN_MAX: Final = 5
GROUP_MAX: Final = 3
GROUP_DEPTH_MAX: Final = 5  # Nested groups: trio makes a group for each nursery.
ERRORS_MAX: Final = 20  # Of all errors together: some 2 ms.
MESSAGE_CHARS_MAX: Final = 1000  # An error may quote a client's data.
LINE_CHARS_MAX: Final = 200  # Of source code; our own lines have 100.

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def traceback_text(error: BaseException) -> str:
    """Return the error with its frames, its causes first, as Python prints them."""
    return "".join(_Writer().lines(error, 0)).rstrip("\n")


class _Writer:
    """Writes a text and counts its errors."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def lines(self, error: BaseException, depth: int) -> Iterator[str]:
        chain = self._chain(error)
        for number, (cause, link) in enumerate(reversed(chain)):
            if number == 0 and link:
                yield "(earlier exceptions are left out)\n"
            if number:
                yield link
            yield from _frames(cause.__traceback__)
            yield f"{_name(cause)}: {_message(cause)}\n"
            if isinstance(cause, BaseExceptionGroup):
                yield from self._members(cause, depth)

    def _chain(self, error: BaseException) -> list[tuple[BaseException, str]]:
        """Return the error and its causes, each with its relation to the next error."""
        chain: list[tuple[BaseException, str]] = []
        cause: BaseException | None = error
        while cause is not None and len(chain) < CHAIN_MAX and self._remember(cause):
            before, link = cause.__cause__, _CAUSE
            if before is None and not cause.__suppress_context__:
                before, link = cause.__context__, _CONTEXT
            chain.append((cause, link if before is not None else ""))
            cause = before
        return chain

    def _remember(self, error: BaseException) -> bool:
        """Remember an error; False for a known error or beyond the limit."""
        is_new = id(error) not in self._seen and len(self._seen) < ERRORS_MAX
        self._seen.add(id(error))
        return is_new

    def _members(self, group: BaseExceptionGroup[BaseException], depth: int) -> Iterator[str]:
        count = len(group.exceptions)
        shown = group.exceptions[:GROUP_MAX] if depth < GROUP_DEPTH_MAX else ()
        for number, member in enumerate(shown, 1):
            yield f"  | {number} of {count}:\n"
            for text in self.lines(member, depth + 1):
                yield "".join(f"  | {line}" for line in text.splitlines(keepends=True))
        if len(shown) < count:
            yield f"  | ({count - len(shown)} of {count} are left out)\n"


def _frames(trace: TracebackType | None) -> Iterator[str]:
    outer: list[tuple[FrameType, int]] = []
    inner: deque[tuple[FrameType, int]] = deque(maxlen=INNER_FRAMES_MAX)
    count = 0
    for place in traceback.walk_tb(trace):
        count += 1
        if len(outer) < OUTER_FRAMES_MAX:
            outer.append(place)
        else:
            inner.append(place)
    if count:
        yield "Traceback (most recent call last):\n"
    yield from _places(outer)
    left_out = count - len(outer) - len(inner)
    if left_out:
        yield f"  ({left_out} frames are left out)\n"
    yield from _places(inner)


def _places(frames: list[tuple[FrameType, int]] | deque[tuple[FrameType, int]]) -> Iterator[str]:
    for frame in traceback.StackSummary.extract(iter(frames)):
        yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n'
        if frame.line:
            yield f"    {frame.line[:LINE_CHARS_MAX]}\n"


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # As the interpreter does: the error's `__str__` may be buggy too.
        return "<its text cannot be made>"
    if len(text) <= MESSAGE_CHARS_MAX:
        return text
    return f"{text[:MESSAGE_CHARS_MAX]}... ({len(text)} characters)"
