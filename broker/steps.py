"""Work that seldom waits, written once: plain as long as nothing has to be awaited.

A function in steps is a generator that yields each coroutine that has to be awaited, not begun, is
sent its result, and returns its own. It cannot `await`, so all of it may run outside of the task
that it works for, up to its first wait. Knows no event loop.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import GeneratorType
from typing import Any, TypeVar

T = TypeVar("T")

Wait = Coroutine[Any, Any, Any]
Steps = Generator[Wait, Any, T]


def begin(steps: Steps[None]) -> Coroutine[Any, Any, None] | None:  # hot: see make bench
    """Run up to the first wait. None when it is over; else the rest of it, to be awaited."""
    for waiting in steps:
        return _go_on(steps, waiting)
    return None


async def run(steps: Steps[T]) -> T:
    """All of it, awaiting what it waits for."""
    try:
        waiting = next(steps)
    except StopIteration as over:
        result: T = over.value
        return result
    return await _go_on(steps, waiting)


def run_now(steps: Steps[T]) -> T | None:  # hot: see make bench
    """All of it, if nothing has to be awaited; None, and it is given up, where something has."""
    try:
        waiting = next(steps)
    except StopIteration as over:
        result: T = over.value
        return result
    waiting.close()
    steps.close()
    return None


def step_into(result: T | Steps[T] | Coroutine[Any, Any, T]) -> Steps[T]:
    """A handler's result, in whichever of the three ways it is written: a plain function, one in
    steps, or a coroutine function.
    """
    if isinstance(result, GeneratorType):
        result = yield from result
    elif isinstance(result, Coroutine):
        result = yield result
    return result  # type: ignore[return-value]  # Not seen: neither of the two is left.


async def _go_on(steps: Steps[T], waiting: Wait) -> T:
    try:
        while True:
            try:
                result = await waiting
            except BaseException as error:  # A cancelled one too: what the steps hold is let go.
                waiting = steps.throw(error)
            else:
                waiting = steps.send(result)
    except StopIteration as over:
        end: T = over.value
        return end
