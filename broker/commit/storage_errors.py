"""What an operator is told of refusals that clients hear of: which file it was, and why.

Clients are told neither more than `StorageError.told` nor each in the log: a full disk refuses
thousands of requests a second. Knows no topic and no protocol.
"""

import time
from collections.abc import Callable

import structlog

from storage.errors import DamagedLog, StorageError, StorageFull

# Between two lines of one kind: an operator sees that it goes on, and the log is no second load.
PAUSE_S = 10.0

EVENTS: dict[type[StorageError], str] = {
    StorageFull: "storage_full",
    DamagedLog: "damage_met",
}

log = structlog.get_logger()


class Refusals:
    """Logs the first refusal of a kind at once, and then at most one line every `PAUSE_S`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a clock in seconds."""
        self._now = now
        self._told: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def note(self, error: StorageError) -> None:
        """A request is refused for this; errors that are the client's own are not logged."""
        event = EVENTS.get(type(error))
        if event is None:
            return
        count = self._untold.pop(event, 0) + 1
        now = self._now()
        if now - self._told.get(event, -PAUSE_S) < PAUSE_S:
            self._untold[event] = count
            return
        self._told[event] = now
        log.error(event, reason=str(error), refused=count)
