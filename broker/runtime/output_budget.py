"""Memory for output, shared by all connections. Knows no socket and no protocol.

The rule for every protocol: memory for an answer, or for a read ahead, is reserved before the read
begins. While memory is plentiful, a connection may hold much; when half is used, each new answer
gets a small share, and connections with peers that take nothing are ended, the largest first.

The last quarter is kept for peers that read: a connection with unsent bytes waits before that
quarter, a connection without unsent bytes takes small answers from the quarter. So peers that do
not read cost the others neither memory nor time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, Self

import trio

from braidlog.broker.limits import (
    OUTBOX_BYTES_MAX,
    OUTPUT_BYTES_ALL_MAX,
    OUTPUT_LAST_BYTES,
    OUTPUT_SHARE_BYTES_MIN,
)

# A single answer may take this part of the free bytes, so that other answers find room too.
PART_OF_FREE = 16


class ReadAhead(Protocol):
    """Records that were read before the client asked for them."""

    def drop(self) -> None:
        """Forget it; it is read again when it is wanted."""


# Awaits a wait for memory. Raises where the wait is in vain: the client has left.
Waits = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


async def just_wait(act: Callable[[], Awaitable[None]]) -> None:
    """Wait without a limit: the caller is cancelled when the client leaves."""
    await act()


class OutputBudget:
    """Counts bytes in outboxes, in unfinished answers and in records read ahead. One per broker.

    Guarantees: `reserve` begins no answer for which less than OUTPUT_LAST_BYTES is free. Only
    `reserve`, `room`, `wait_for_room` and `OutputReservation.grow` wait.
    """

    def __init__(self, bytes_max: int = OUTPUT_BYTES_ALL_MAX) -> None:
        self.used = 0
        self.read_ahead: set[ReadAhead] = set()
        self._bytes_max = bytes_max
        self._before_last = bytes_max - bytes_max // 4
        self._slow = trio.lowlevel.ParkingLot()  # For connections with unsent bytes.
        self._ready = trio.lowlevel.ParkingLot()  # For all others.
        self._large_turn = trio.StrictFIFOLock()
        self._large = trio.lowlevel.ParkingLot()  # For the record whose turn it is.
        self._large_bytes = 0  # Bytes that this record needs.
        self._awaited_bytes = 0  # Bytes of all answers that wait in `room`.

    @property
    def is_short(self) -> bool:
        """True if more than half is used, or large answers wait: time to be strict."""
        return self.used + self._large_bytes + self._awaited_bytes > self._bytes_max // 2

    def is_spent(self, unsent_bytes: int = 0) -> bool:
        """Return True if a connection with this number of unsent bytes has to wait."""
        if unsent_bytes:
            return self.used + OUTPUT_SHARE_BYTES_MIN > self._before_last
        return self.used + OUTPUT_LAST_BYTES > self._bytes_max

    @property
    def share(self) -> int:
        """Number of unsent bytes at which a connection accepts no more work."""
        return OUTPUT_SHARE_BYTES_MIN if self.is_short else OUTBOX_BYTES_MAX

    def charge(self, size: int) -> None:
        """Count `size` more bytes as held; fewer if negative."""
        self.used += size
        if size < 0 and (self._ready or self._slow or self._large):
            self._wake()

    def sent(self) -> None:
        """Note that a connection has no unsent bytes any more: the connection may be waiting."""
        if self._slow and not self.is_spent():
            self._slow.unpark_all()

    def _wake(self) -> None:
        if not self.is_spent():
            self._ready.unpark_all()
        if self._large_bytes:
            self._large.unpark_all()
        elif self._slow and not self.is_spent(1):
            # Wake as many as fit: the others would wait again, behind later connections.
            free = self._before_last - self.used
            self._slow.unpark(count=free // OUTPUT_SHARE_BYTES_MIN)

    def drop_read_ahead(self) -> None:
        """Drop records that can be read again."""
        for ahead in tuple(self.read_ahead):
            ahead.drop()

    async def reserve(
        self, wanted: int, copies: int = 1, waits: Waits = just_wait
    ) -> OutputReservation:
        """Reserve room for an answer of up to `wanted` bytes; `OutputReservation.size` is the
        granted part.

        The grant is at least OUTPUT_LAST_BYTES, or all that is wanted. The call waits until there
        is that much, and so does the reservation when it grows, by way of `waits`.
        """
        while wanted > 0 and self.is_spent():
            await waits(self.wait_for_room)
        return self.reserve_now(wanted, copies, waits)

    def reserve_now(
        self, wanted: int, copies: int = 1, waits: Waits = just_wait
    ) -> OutputReservation:
        """Reserve for an answer that has waited already, or wants no bytes."""
        return OutputReservation(self, self.allowance(wanted) if wanted > 0 else 0, copies, waits)

    async def wait_for_room(self, unsent_bytes: Callable[[], int] = lambda: 0) -> None:
        """Wait while a connection with this number of unsent bytes has to."""
        while self.is_spent(unsent := unsent_bytes()):
            await (self._slow if unsent else self._ready).park()

    def allowance(self, wanted: int) -> int:
        """Return the largest size of an answer that is made now."""
        if self.used + OUTPUT_SHARE_BYTES_MIN > self._before_last:
            return min(wanted, OUTPUT_LAST_BYTES)
        free = self._bytes_max - self.used
        part = OUTPUT_SHARE_BYTES_MIN if self.is_short else free // PART_OF_FREE
        return min(wanted, max(part, OUTPUT_SHARE_BYTES_MIN))

    async def room(self, size: int) -> None:
        """Wait until an answer of `size` bytes leaves the last quarter free; an unused budget has
        room for any answer.
        """
        if self.has_room(size):
            return
        self._awaited_bytes += size
        try:
            while not self.has_room(size):
                await self._slow.park()
        finally:
            self._awaited_bytes -= size

    def has_room(self, size: int) -> bool:
        """Return True if `room` would not wait."""
        return not self.used or self.used + size <= self._before_last

    def fits(self, size: int) -> bool:
        """Return True if this number of bytes is free; any number fits an unused budget."""
        return self.used + size <= self._bytes_max or not self.used

    def large_size(self, size: int) -> int:
        """Return the bytes to reserve for a record of this size: never more than can
        become free.
        """
        return min(size, self._before_last)

    async def large(self, size: int) -> None:
        """Wait until `size` bytes are free for a single record, and count them: first come, first
        served. While a record waits, all other answers are small, so that memory becomes free.
        """
        async with self._large_turn:
            self._large_bytes = size
            try:
                while not self.fits(size):
                    await self._large.park()
                self.used += size
            finally:
                self._large_bytes = 0
        self._wake()


class OutputReservation:
    """Bytes of the budget that an unfinished answer holds; a context manager that returns the
    bytes.
    """

    __slots__ = ("_budget", "_expected", "_waits", "copies", "size")

    def __init__(
        self, budget: OutputBudget, size: int, copies: int = 1, waits: Waits = just_wait
    ) -> None:
        """Take `copies`, the number of copies of a record in memory while the answer is made."""
        self._budget = budget
        self._waits = waits
        self._expected = 0  # Bytes of the next record, already held.
        self.copies = copies
        self.size = size
        budget.used += size

    def keep(self, size: int) -> None:
        """Hold this number of bytes from now on."""
        if size != self.size:
            self._budget.charge(size - self.size)
            self.size = size

    def grow_now(self, record_bytes: int, copies: int = 0) -> bool:
        """Hold memory for a large record, too, if that needs no wait. `copies` is for stored bytes
        that are not in memory as often as those of a record; 0: as often.
        """
        size = self._budget.large_size(record_bytes * (copies or self.copies))
        if not self._budget.fits(size):
            return False
        self.keep(self.size + size)
        return True

    async def grow(self, record_bytes: int, copies: int = 0) -> None:
        """Also hold memory for a large record, once there is enough. The held bytes are returned
        before the wait: answers that hold memory while waiting could wait for each other for ever.
        """
        self.keep(0)
        size = self._budget.large_size(record_bytes * (copies or self.copies))
        await self._waits(partial(self._take_large, size))

    async def _take_large(self, size: int) -> None:
        await self._budget.large(size)
        self.size = size

    async def expect(self, record_bytes: int) -> None:
        """Hold memory for the next record, of up to this many bytes."""
        if not self._expected:
            if not self.grow_now(record_bytes):
                await self.grow(record_bytes)
            self._expected = record_bytes

    def hold_built(self, record_bytes: int) -> bool:
        """Hold memory for the large record that was built; 0: the record is small. Return False if
        that needs a wait: then drop the record, `expect` the record and make it again.
        """
        expected, self._expected = self._expected, 0
        if not expected:
            return not record_bytes or self.grow_now(record_bytes)
        large_size, copies = self._budget.large_size, self.copies
        unused = large_size(expected * copies) - large_size(record_bytes * copies)
        self.keep(self.size - max(unused, 0))
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.keep(0)
