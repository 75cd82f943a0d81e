"""Lets in what costs memory while it is served, as much at a time as there is room for, in order.

Knows no protocol and no unit: bytes, or what a request names.
"""

from __future__ import annotations

from collections.abc import Callable

import trio


class Gate:
    """Guarantees that no more than `most` is inside, and that nobody goes before one who waits."""

    def __init__(self, most: int, make_room: Callable[[], object] = lambda: None) -> None:
        """`make_room` is called when one has to wait, who lacks `missing` then."""
        self.held = 0
        self._most = most
        self._make_room = make_room
        self._turn = trio.StrictFIFOLock()
        self._freed = trio.lowlevel.ParkingLot()
        self._wanted = 0  # by the one whose turn it is

    @property
    def missing(self) -> int:
        """What has to leave before the next one can enter; 0 where nobody waits."""
        return max(self.held + self._wanted - self._most, 0) if self._wanted else 0

    def enter_now(self, size: int) -> bool:
        """Enter if nobody has to wait for it. `leave` is due then."""
        if self._turn.locked() or self.held + size > self._most:
            return False
        self.held += size
        return True

    async def enter(self, size: int) -> None:
        """Enter, at most `most`, once there is room. `leave` is due then."""
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
        """Take so much out again."""
        self.held -= size
        self._freed.unpark_all()
