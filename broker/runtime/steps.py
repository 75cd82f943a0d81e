"""Functions that seldom wait, written once: a plain call as long as nothing has to be awaited.

A function in steps is a generator. It yields each coroutine to be awaited, not begun, receives the
result of that coroutine, and returns its own result. A function in steps cannot `await`, so up to
the first wait it may run outside of its task. Knows no event loop.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import GeneratorType
from typing import Any, TypeVar

T = TypeVar("T")

Wait = Coroutine[Any, Any, Any]
Steps = Generator[Wait, Any, T]


def begin(steps: Steps[None]) -> Coroutine[Any, Any, None] | None:  # hot: see make bench
    """Run up to the first wait. Return None at the end, otherwise the rest, to be awaited."""
    for waiting in steps:
        return _go_on(steps, waiting)
    return None


async def run(steps: Steps[T]) -> T:
    """Run all steps, awaiting each wait; return the result."""
    try:
        waiting = next(steps)
    except StopIteration as over:
        result: T = over.value
        return result
    return await _go_on(steps, waiting)


def run_now(steps: Steps[T]) -> T | None:  # hot: see make bench
    """Run all steps and return the result; give up and return None at the first wait."""
    try:
        waiting = next(steps)
    except StopIteration as over:
        result: T = over.value
        return result
    waiting.close()
    steps.close()
    return None


def step_into(result: T | Steps[T] | Coroutine[Any, Any, T]) -> Steps[T]:
    """Return a handler's result, whether the handler is a plain function, a function in steps, or a
    coroutine function.
    """
    if isinstance(result, GeneratorType):
        result = yield from result
    elif isinstance(result, Coroutine):
        result = yield result
    return result  # type: ignore[return-value]  # mypy does not narrow the union.


async def _go_on(steps: Steps[T], waiting: Wait) -> T:
    try:
        while True:
            try:
                result = await waiting
            except BaseException as error:  # Also cancelled: the steps release their resources.
                waiting = steps.throw(error)
            else:
                waiting = steps.send(result)
                result = None  # The result may be large, and the next wait long.
    except StopIteration as over:
        end: T = over.value
        return end
