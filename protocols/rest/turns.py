"""Walking over many partitions without holding up the other listeners. Knows no route."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from broker.subscriptions.subscriptions import Subscription

TURN = 200  # Partitions between two checkpoints: a millisecond of the loop, or a few.
T = TypeVar("T")


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The same items, with a turn for everybody else after some."""
    for number, item in enumerate(items, 1):
        yield item
        if number % TURN == 0:
            await trio.lowlevel.checkpoint()


async def backlog_of(subscription: Subscription) -> int:
    """Records that a subscription has still to read, in all partitions."""
    total = 0
    async for index in in_turns(range(len(subscription.topic.partitions))):
        total += subscription.backlog(index)
    return total
