"""The polls that wait for messages (W): counted by connection and in all, and cancelled by their
numbers. Knows no command.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import trio

from braidlog.protocols.iggy.errors import ErrorCode, Refusal

POLLS_MAX: Final = 256  # Of a connection; a client has one for each partition.
# Of all connections: a waiting poll takes 8 KB. Beyond, a connection may have only a few.
ALL_POLLS_MAX: Final = 2_048
POLLS_MIN: Final = 8
# Partitions that the polls of a connection wait for, and those of all connections: a record wakes
# every poll that waits for its partition, and the poll then looks at all of its partitions.
PLACES_MAX: Final = 2_000  # Two fetches of as many partitions as a request may name.
ALL_PLACES_MAX: Final = 16_384
PLACES_MIN: Final = 64


@dataclass(frozen=True, slots=True)
class PollSize:
    """A number of polls, and of the partitions that they wait for."""

    polls: int
    places: int


OWN_ROOM: Final = PollSize(POLLS_MAX, PLACES_MAX)
FEW_ROOM: Final = PollSize(POLLS_MIN, PLACES_MIN)
ALL_ROOM: Final = PollSize(ALL_POLLS_MAX, ALL_PLACES_MAX)


class PollCount:
    """The number of waiting polls of all connections, and of their partitions."""

    def __init__(self, limit: PollSize = ALL_ROOM) -> None:
        """Beyond `limit`, a connection may have only a few."""
        self._limit = limit
        self.count = 0
        self._places = 0

    def add(self, places: int) -> None:
        """Count a further poll."""
        self.count += 1
        self._places += places

    def remove(self, places: int) -> None:
        """Count a poll no longer."""
        self.count -= 1
        self._places -= places

    def own_max(self, places: int) -> PollSize:
        """Return the most that a connection may have, with a further poll of so many places."""
        is_short = self.count >= self._limit.polls or self._places + places > self._limit.places
        return FEW_ROOM if is_short else OWN_ROOM


class DeferredPolls:
    """The waiting polls of a connection, by their request numbers."""

    def __init__(self, in_all: PollCount) -> None:
        self._in_all = in_all
        self._scopes: dict[int, trio.CancelScope] = {}
        self._places: dict[int, int] = {}

    def add(self, number: int, places: int = 1) -> None:
        """Add a poll of so many partitions, which can be cancelled from now on. Raises Refusal."""
        count, waiting = len(self._scopes), sum(self._places.values())
        limit = self._in_all.own_max(places)
        if count >= limit.polls or waiting + places > limit.places or number in self._scopes:
            raise Refusal(
                ErrorCode.DEFERRED_POLLS_LIMIT_REACHED,
                f"{count} polls wait for {waiting} partitions already",
            )
        self._scopes[number] = trio.CancelScope()
        self._places[number] = places
        self._in_all.add(places)

    @contextmanager
    def waiting(self, number: int) -> Iterator[None]:
        """Let the poll of that number, added before, be cancelled within the block."""
        try:
            with self._scopes[number]:
                yield
        finally:
            del self._scopes[number]
            self._in_all.remove(self._places.pop(number))

    def cancel(self, number: int) -> None:
        """Cancel a poll, which then has no answer; no effect if the poll is answered already."""
        scope = self._scopes.get(number)
        if scope is not None:
            scope.cancel()
