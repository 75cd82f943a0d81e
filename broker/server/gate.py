"""Admits work that costs memory, as much at a time as there is room for, in the order of arrival.

Knows no protocol and no unit: bytes, or what a request names.
"""

from __future__ import annotations

from collections.abc import Callable

import trio


class Gate:
    """Guarantees that at most `most` is inside, and that nobody overtakes one that waits."""

    def __init__(self, most: int, make_room: Callable[[], object] = lambda: None) -> None:
        """`make_room` is called when a caller has to wait; `missing` is then what it lacks."""
        self.held = 0
        self._most = most
        self._make_room = make_room
        self._turn = trio.StrictFIFOLock()
        self._freed = trio.lowlevel.ParkingLot()
        self._wanted = 0  # by the one whose turn it is

    @property
    def missing(self) -> int:
        """How much has to leave before the next one can enter; 0 if nobody waits."""
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
        """Give that much back."""
        self.held -= size
        self._freed.unpark_all()
