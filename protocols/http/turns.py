"""Iterates over many partitions without holding up the other listeners. Knows no route."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from braidlog.broker.errors import NotOwner, PartitionNotFound, TopicNotFound
from braidlog.broker.runtime.turns import PER_TURN, in_turns
from braidlog.protocols.http.limits import PIECE_MESSAGES, TURN_MESSAGES

if TYPE_CHECKING:
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.runtime.poller import Poller
    from braidlog.broker.topics.topic import Topic

SORTED_TOGETHER = 2000  # Topics sorted by name in one turn: two milliseconds.
# Errors of a topic that was deleted, lost partitions or moved to another broker during a walk over
# many topics: the walk leaves out the topic, as if the topic had changed before.
CHANGED = (TopicNotFound, PartitionNotFound, NotOwner)
T = TypeVar("T")


class Turns:
    """A count of partitions over several loops: other tasks get a turn after every PER_TURN of
    them.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = PER_TURN

    async def count(self) -> None:
        """Count a partition, or an item of as much work."""
        self._left -= 1
        if not self._left:
            self._left = PER_TURN
            await trio.lowlevel.checkpoint()


async def between_messages(number: int, poller: Poller) -> None:
    """Let other tasks run if a turn is due after `number` messages of a request."""
    if number % TURN_MESSAGES == 0:
        await trio.lowlevel.checkpoint()
    elif number % PIECE_MESSAGES == 0:
        await poller.give_way()


async def first_topics(
    topics: Iterable[Topic], wanted: Callable[[Topic], bool], count: int
) -> list[Topic]:
    """Return the first `count` topics by name that are `wanted`."""
    return await first_by(
        topics, lambda topic: topic.name.full if wanted(topic) else None, count, SORTED_TOGETHER
    )


async def first_by(
    items: Iterable[T], key: Callable[[T], Any], count: int, together: int = PER_TURN
) -> list[T]:
    """Return the first `count` items by their keys; an item whose key is None is left out. Other
    tasks get a turn after each piece of `together` items.

    Sorting 50,000 topics at once would hold the loop for a tenth of a second.
    """
    every = tuple(items)
    best: list[tuple[Any, T]] = []
    for start in range(0, len(every), together):
        keyed = ((key(item), item) for item in every[start : start + together])
        best += [pair for pair in keyed if pair[0] is not None]
        best.sort(key=itemgetter(0))
        del best[count:]
        await trio.lowlevel.checkpoint()
    return [item for _, item in best]


async def backlog_of(subscription: Subscription) -> int:
    """Return the subscription's backlog in records, summed over all partitions."""
    count = len(subscription.topic.partitions)
    if count < PER_TURN:  # A third of the time of the loop below.
        return sum(map(subscription.backlog, range(count)))
    total = 0
    async for index in in_turns(range(count)):
        total += subscription.backlog(index)
    return total
