"""A call shared by all tasks that want the result at the same time. Knows no broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


@dataclass(slots=True)
class _Turn(Generic[T]):
    """A call and its result: empty, or a tuple of a single value."""

    result: tuple[T] | tuple[()] = ()


class Gathered(Generic[T]):
    """Runs a single call at a time. Tasks that ask meanwhile share the next call, so no result is
    older than the request.
    """

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        """`call` runs in a task that asks, and is cancelled with that task."""
        self._call = call
        self._gathering: _Turn[T] | None = None  # Not begun.
        self._calling = trio.Lock()

    async def __call__(self) -> T:
        """Return the result of the call. Raises the call's errors, in the task that
        made the call.
        """
        turn = self._gathering
        if turn is None:
            turn = self._gathering = _Turn()
        async with self._calling:  # First come, first served: the turn's first one calls.
            if not turn.result:
                if self._gathering is turn:
                    self._gathering = None
                turn.result = (await self._call(),)
        return turn.result[0]
