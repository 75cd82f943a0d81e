"""Runs the remaining work after a change, in pieces.

A deleted topic may have ten thousand consumers and producers to notify. Knows no client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import structlog
import trio

log = structlog.get_logger()

# Steps between two checkpoints: notifying a client takes some 5 us, detaching a thousand consumers
# of a dispatcher 100 us.
STEPS_TOGETHER: Final = 100


class Closing:
    """A queue of steps, run in order. The consumers and producers to close bound its length."""

    def __init__(self) -> None:
        self._left: deque[Iterator[None]] = deque()
        self._arrived = trio.lowlevel.ParkingLot()

    def add(self, steps: Iterator[None]) -> None:
        """Run these steps soon; other tasks run between them."""
        self._left.append(steps)
        self._arrived.unpark_all()

    async def run(self) -> None:
        """Run added steps until cancelled."""
        while True:
            while self._left:
                self._go_on(self._left[0])
                await trio.lowlevel.checkpoint()
            await self._arrived.park()

    def _go_on(self, steps: Iterator[None]) -> None:
        try:
            for _ in range(STEPS_TOGETHER):
                next(steps)
        except StopIteration:
            self._left.popleft()
        except Exception:  # A bug loses the rest of these steps, and nothing else.
            log.exception("closing_failed")
            self._left.popleft()
