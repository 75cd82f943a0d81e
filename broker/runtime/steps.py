"""Functions that seldom wait, written once: a plain call as long as nothing has to be awaited.

A function in steps is a generator. It yields each coroutine to be awaited, not begun, is sent that
one's result, and returns its own. It cannot `await`, so up to its first wait it may run outside of
the task that it works for. Knows no event loop.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import GeneratorType
from typing import Any, TypeVar

T = TypeVar("T")

Wait = Coroutine[Any, Any, Any]
Steps = Generator[Wait, Any, T]


def begin(steps: Steps[None]) -> Coroutine[Any, Any, None] | None:  # hot: see make bench
    """Run up to the first wait. Returns None if that was all, else the rest, to be awaited."""
    for waiting in steps:
        return _go_on(steps, waiting)
    return None


async def run(steps: Steps[T]) -> T:
    """Run all of it, awaiting each wait; return its result."""
    try:
        waiting = next(steps)
    except StopIteration as over:
        result: T = over.value
        return result
    return await _go_on(steps, waiting)


def run_now(steps: Steps[T]) -> T | None:  # hot: see make bench
    """Run all of it and return its result; give up and return None at the first wait."""
    try:
        waiting = next(steps)
    except StopIteration as over:
        result: T = over.value
        return result
    waiting.close()
    steps.close()
    return None


def step_into(result: T | Steps[T] | Coroutine[Any, Any, T]) -> Steps[T]:
    """Return a handler's result, however it is written: as a plain function, one in steps, or a
    coroutine function.
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
            except BaseException as error:  # Cancelled too: the steps release what they hold.
                waiting = steps.throw(error)
            else:
                waiting = steps.send(result)
                result = None  # It may be large, and the next wait long.
    except StopIteration as over:
        end: T = over.value
        return end
