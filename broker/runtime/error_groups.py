"""Errors in groups: the errors inside, and the frames that their tracebacks keep alive."""

from __future__ import annotations

from collections.abc import Generator, Sequence


def leaves(error: BaseException) -> Generator[BaseException, None, None]:
    """Yield the errors in a group, nested groups included."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def forget_frames(errors: Sequence[BaseException]) -> None:
    """Drop the tracebacks of logged errors and of their causes: a frame in a traceback often refers
    to the error again.
    """
    left: list[BaseException | None] = list(errors)
    while left:
        error = left.pop()
        if error is None:
            continue
        error.__traceback__ = None
        left += (error.__context__, error.__cause__)
        error.__context__ = error.__cause__ = None
        if isinstance(error, BaseExceptionGroup):
            left += error.exceptions
