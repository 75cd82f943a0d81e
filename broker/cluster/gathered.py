"""One call for all tasks that want its result at the same time. Knows no broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


@dataclass(slots=True)
class _Turn(Generic[T]):
    """One call, and what it gave: nothing yet, or a tuple of one."""

    result: tuple[T] | tuple[()] = ()


class Gathered(Generic[T]):
    """One call is under way at a time. Tasks that ask meanwhile share the next one, so that no
    result is older than the question.
    """

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        """`call` runs in one of the tasks that ask, and may be cancelled with it."""
        self._call = call
        self._gathering: _Turn[T] | None = None  # Not begun.
        self._calling = trio.Lock()

    async def __call__(self) -> T:
        """The result of the call. Raises what it raises, in the task that made it."""
        turn = self._gathering
        if turn is None:
            turn = self._gathering = _Turn()
        async with self._calling:  # First come, first served: the turn's first one calls.
            if not turn.result:
                if self._gathering is turn:
                    self._gathering = None
                turn.result = (await self._call(),)
        return turn.result[0]
