"""Iterates over many items without holding up the other connections. Knows no protocol."""

from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

import trio

PER_TURN: Final = 200  # Partitions: one or a few milliseconds of the loop.
T = TypeVar("T")


async def in_turns(items: Iterable[T], per_turn: int = PER_TURN) -> AsyncIterator[T]:
    """Yield the same items; other tasks get a turn after every `per_turn` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % per_turn == 0:
            await trio.lowlevel.checkpoint()
