"""Admits work that costs memory, as much at a time as there is room for, in the order of arrival.
Knows no protocol and no unit: bytes, or entries of a request.
"""

from __future__ import annotations

from collections.abc import Callable

import trio


class FairSemaphore:
    """Guarantees that at most `most` is inside, and that no caller overtakes a waiting caller."""

    def __init__(self, most: int, make_room: Callable[[], object] = lambda: None) -> None:
        """Take `make_room`, which is called when a caller has to wait; `missing` is
        then the lack.
        """
        self.held = 0
        self._most = most
        self._make_room = make_room
        self._turn = trio.StrictFIFOLock()
        self._freed = trio.lowlevel.ParkingLot()
        self._wanted = 0  # by the caller at the head of the queue

    @property
    def missing(self) -> int:
        """Size that has to leave before the next caller can enter; 0 if no caller waits."""
        return max(self.held + self._wanted - self._most, 0) if self._wanted else 0

    def enter_now(self, size: int) -> bool:
        """Enter if that needs no wait. If True, call `leave` later."""
        if self._turn.locked() or self.held + size > self._most:
            return False
        self.held += size
        return True

    async def enter(self, size: int) -> None:
        """Enter once there is room, with a size of at most `most`. Call `leave` later."""
        async with self._turn:
            self._wanted = size
            try:
                if self.missing:
                    self._make_room()
                while self.missing:
                    await self._freed.park()
                self.held += size
            finally:
                self._wanted = 0

    def leave(self, size: int) -> None:
        """Return that much room."""
        self.held -= size
        self._freed.unpark_all()
