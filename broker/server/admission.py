"""Limits the open connections of all listeners together. Knows no protocol.

A listener with a server counts here too: `admit` for each accepted connection, `leave` at the end.
"""

from __future__ import annotations

import resource
from collections.abc import Callable

from braidlog.broker.config.logging import ThrottledLog
from braidlog.broker.limits import CONNECTIONS_MAX, FILES_FOR_OTHERS
from braidlog.broker.metrics import Metrics
from braidlog.storage.log.descriptors import idle_handles_max


def connections_max() -> int:
    """Return CONNECTIONS_MAX, or fewer if this process may not open so many files: idle log files
    and FILES_FOR_OTHERS come first.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, max(files - idle_handles_max() - FILES_FOR_OTHERS, files // 4))


class Admission:
    """Counts open connections."""

    def __init__(
        self,
        metrics: Metrics,
        log: ThrottledLog,
        *,
        limit: Callable[[], int] = connections_max,
    ) -> None:
        self.open = 0
        self._metrics = metrics
        self._log = log
        self._limit = limit

    def admit(self, protocol: str, listener: str) -> bool:
        """Count a new connection; return False if the connection must be closed at once."""
        if self.open >= self._limit():
            self._log.error(
                "connection_refused",
                cause=listener,
                listener=listener,
                reason=f"{self.open} connections are open",
            )
            return False
        self.open += 1
        self._metrics.number("braidlog_connections", protocol).inc()
        self._metrics.number("braidlog_open_connections", protocol).inc()
        return True

    def leave(self, protocol: str) -> None:
        """Note the end of an admitted connection."""
        self.open -= 1
        self._metrics.number("braidlog_open_connections", protocol).dec()
