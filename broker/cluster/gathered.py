"""A call that many want at the same time, made once for all of them. Knows no broker."""

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
    """One call is under way at a time. Those who ask meanwhile share the next one, so that what
    they get is no older than their question.
    """

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        """`call` asks; whoever it is made for may be cancelled in it."""
        self._call = call
        self._gathering: _Turn[T] | None = None  # Not begun.
        self._calling = trio.Lock()

    async def __call__(self) -> T:
        """What the call gives. Raises what it raises, to the one that made it."""
        turn = self._gathering
        if turn is None:
            turn = self._gathering = _Turn()
        async with self._calling:  # First come, first served: the turn's first one calls.
            if not turn.result:
                if self._gathering is turn:
                    self._gathering = None
                turn.result = (await self._call(),)
        return turn.result[0]
