"""Memory for what waits to be sent, shared by all connections. Knows no socket and no protocol.

Whoever builds a large answer asks first and is told how large it may be. While there is plenty, one
connection may hold much; when half is used, each new answer gets a small share, and connections
whose peers take nothing are ended, the largest first. So peers that do not read cost the others
neither memory nor time.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

import trio

from broker.limits import OUTBOX_BYTES_MAX, OUTPUT_BYTES_ALL_MAX, OUTPUT_SHARE_BYTES_MIN

# A single answer may take one such part of what is free, so that some others find room too.
PART_OF_FREE = 16


class ReadAhead(Protocol):
    """What was read for a client that has not asked for it yet."""

    def drop(self) -> None:
        """Forget it; it is read again when it is wanted."""


class OutputBudget:
    """Counts bytes in outboxes, in answers under way and in what was read ahead. One per broker.

    Guarantees: `reserve` lets nobody begin an answer for which less than OUTPUT_SHARE_BYTES_MIN is
    free. Only it and `some_free` wait.
    """

    def __init__(self, bytes_max: int = OUTPUT_BYTES_ALL_MAX) -> None:
        self.used = 0
        self.read_ahead: set[ReadAhead] = set()
        self._bytes_max = bytes_max
        self._freed = trio.lowlevel.ParkingLot()
        self._waiting = 0  # for `_freed`

    @property
    def is_short(self) -> bool:
        """Whether more than half is used: time to be strict."""
        return self.used > self._bytes_max // 2

    @property
    def is_spent(self) -> bool:
        """Whether everybody has to wait for more."""
        return self.used + OUTPUT_SHARE_BYTES_MIN > self._bytes_max

    @property
    def share(self) -> int:
        """Unsent bytes at which a connection takes no more work."""
        return OUTPUT_SHARE_BYTES_MIN if self.is_short else OUTBOX_BYTES_MAX

    def charge(self, size: int) -> None:
        """Count this many more bytes as held; fewer if negative."""
        self.used += size
        if size < 0 and self._waiting and not self.is_spent:
            self._freed.unpark_all()

    def drop_read_ahead(self) -> None:
        """Give up what can be read again."""
        for ahead in tuple(self.read_ahead):
            ahead.drop()

    async def reserve(self, wanted: int) -> Reservation:
        """Room for an answer of up to `wanted` bytes: `Reservation.size` says how much of it.

        At least OUTPUT_SHARE_BYTES_MIN or all that is wanted; waits until there is that much.
        """
        if wanted > 0:
            await self.some_free()
        return self.reserve_now(wanted)

    def reserve_now(self, wanted: int) -> Reservation:
        """The same for whoever has waited already, or wants nothing."""
        return Reservation(self, self.allowance(wanted) if wanted > 0 else 0)

    async def some_free(self) -> None:
        """Wait while everything is used."""
        while self.is_spent:
            self._waiting += 1
            try:
                await self._freed.park()
            finally:
                self._waiting -= 1

    def allowance(self, wanted: int) -> int:
        """How large an answer that is made now may be."""
        free = self._bytes_max - self.used
        part = OUTPUT_SHARE_BYTES_MIN if self.is_short else free // PART_OF_FREE
        return min(wanted, max(part, OUTPUT_SHARE_BYTES_MIN))


class Reservation:
    """Bytes of the budget that an answer under way holds; a context manager that gives them
    back.
    """

    __slots__ = ("_budget", "size")

    def __init__(self, budget: OutputBudget, size: int) -> None:
        self._budget = budget
        self.size = size
        budget.used += size

    def keep(self, size: int) -> None:
        """Hold this many bytes from now on."""
        if size != self.size:
            self._budget.charge(size - self.size)
            self.size = size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.keep(0)
