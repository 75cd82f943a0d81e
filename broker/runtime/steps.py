"""Functions that seldom wait, written once: a plain call as long as nothing has to be awaited.

A function in steps is a generator. It yields each coroutine to be awaited, not begun, receives the
result of that coroutine, and returns its own result. A function in steps cannot `await`, so up to
the first wait it may run outside of its task. The steps behind a `PlainWait`, which may be yielded
as well, may run outside of a task, too. Knows no event loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from types import GeneratorType
from typing import Any, TypeVar

T = TypeVar("T")


class PlainWait(ABC):
    """A wait that calls a function at its end, so that no task is needed; a task may await it too.

    The steps that yield a plain wait close it behind the wait, however the wait ends.
    """

    __slots__ = ()

    @abstractmethod
    def call_at_end(self, call: Callable[[], None] | None) -> None:
        """Call this function once the wait has ended, soon if it has; with None call nothing. The
        function neither waits nor raises.
        """

    @abstractmethod
    def close(self) -> None:
        """Wait no longer. Does nothing if closed."""

    @abstractmethod
    def __await__(self) -> Generator[Any, Any, None]:
        """Wait in a task, in place of a call."""


Wait = Coroutine[Any, Any, Any] | PlainWait
Steps = Generator[Wait, Any, T]


class Suspended(Coroutine[Any, Any, None]):
    """The rest of steps that have met a `PlainWait`: a coroutine that a caller can also go on with
    in plain calls.

    In plain calls: `call_at_end`, and once called `go_on`. `send` begins the coroutine; afterwards
    the rest is a coroutine to its end.
    """

    __slots__ = ("_rest", "_steps", "_wait")

    def __init__(self, steps: Steps[None], wait: PlainWait) -> None:
        self._steps = steps
        self._wait = wait
        self._rest: Coroutine[Any, Any, None] | None = None

    def call_at_end(self, call: Callable[[], None]) -> None:
        """See PlainWait."""
        self._wait.call_at_end(call)

    def go_on(self) -> Coroutine[Any, Any, None] | None:
        """Run from the end of the wait up to the next wait; returns as `begin`."""
        return begin(self._steps)

    def send(self, value: Any) -> Any:  # noqa: ANN401 - as Coroutine
        """See Coroutine."""
        return self._as_coroutine().send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - as Coroutine
        """See Coroutine."""
        if self._rest is None:
            self._steps.close()
        return self._as_coroutine().throw(*error)

    def close(self) -> None:
        """See Coroutine. The steps release their resources."""
        self._steps.close()
        if self._rest is not None:
            self._rest.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._as_coroutine().__await__()

    def _as_coroutine(self) -> Coroutine[Any, Any, None]:
        if self._rest is None:
            self._wait.call_at_end(None)
            self._rest = _go_on(self._steps, self._wait)
        return self._rest


def begin(steps: Steps[None]) -> Coroutine[Any, Any, None] | None:  # hot: see make bench
    """Run up to the first wait. Return None at the end, otherwise the rest, to be awaited; the rest
    is `Suspended` if the wait needs no task.
    """
    for waiting in steps:
        if isinstance(waiting, PlainWait):
            return Suspended(steps, waiting)
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
