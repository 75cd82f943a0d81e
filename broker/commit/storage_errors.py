"""What an operator is told of refusals that clients hear of: which file it was, and why.

Clients are told neither more than `StorageError.told` nor each in the log: a full disk refuses
thousands of requests a second. Knows no topic and no protocol.
"""

import time
from collections.abc import Callable

from broker.config.logging import ThrottledLog
from storage.errors import DamagedLog, StorageError, StorageFull

EVENTS: dict[type[StorageError], str] = {
    StorageFull: "storage_full",
    DamagedLog: "damage_met",
}


class Refusals:
    """Logs the first refusal of a kind at once, and then seldom."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a clock in seconds."""
        self._log = ThrottledLog(now)

    def note(self, error: StorageError) -> None:
        """A request is refused for this; errors that are the client's own are not logged."""
        event = EVENTS.get(type(error))
        if event is not None:
            self._log.error(event, cause=event, reason=str(error))
