"""Work of a connection that may wait, in order per producer and per consumer. Knows no command.

Each lane is a task of the connection, so that PING is always answered at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from braidlog.broker.access.acting import work_for
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.pulsar.limits import LANE_MAX, LANES_MAX

if TYPE_CHECKING:
    from braidlog.broker.server.connection import Connection

Lane = tuple[str, int]  # A kind, and the id of a producer, a consumer, a watcher or a request.
Work = Callable[[], Awaitable[None]]


class Lanes:
    """The lanes of a connection. The work in a lane is done one after the other."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: dict[Lane, deque[Work]] = {}
        self._ended = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """True if LANES_MAX lanes have work: then nothing more is read from the client."""
        return len(self._waiting) >= LANES_MAX

    async def room(self) -> None:
        """Wait until fewer than LANES_MAX lanes have work."""
        while self.is_full:
            await self._ended.park()

    def in_order(self, lane: Lane, work: Work) -> None:
        """Do work that may wait in a task, after earlier work of the same lane.

        Raises ProtocolError if more than LANE_MAX commands wait in the lane.
        """
        waiting = self._waiting.get(lane)
        if waiting is None:
            self._waiting[lane] = deque([work])
            self._connection.nursery.start_soon(self._work_off, lane)
        elif len(waiting) < LANE_MAX:
            waiting.append(work)
        else:
            raise ProtocolError(f"more than {LANE_MAX} commands wait for one {lane[0]}")

    def promptly(self, lane: Lane, work: Callable[[], None]) -> None:
        """Do work that does not wait: now, or after the present work of that lane."""
        if lane not in self._waiting:
            work()
            return

        async def later() -> None:
            work()

        self.in_order(lane, later)

    async def _work_off(self, lane: Lane) -> None:
        work_for(self._connection)  # It may be the poller that starts this task.
        waiting = self._waiting[lane]
        try:
            while waiting:
                await waiting[0]()
                waiting.popleft()
        finally:  # Work left when the connection ends would hold its client, which holds us.
            waiting.clear()
            del self._waiting[lane]
            self._ended.unpark_all()
