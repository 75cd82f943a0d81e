"""Tells systemd the state of the broker (sd_notify(3)): ready, stopping, alive.

Does nothing for a broker that no service manager started.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping

import structlog
import trio

ADDRESS, WATCHDOG, PROCESS = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
READY, STOPPING, ALIVE = b"READY=1", b"STOPPING=1", b"WATCHDOG=1"
ALIVE_TIMES = 3  # Messages in each interval of the watchdog: one late message ends no broker.

log = structlog.get_logger()


class Supervisor:
    """The service manager that the environment names, or none."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get(ADDRESS, "")
        # A name that begins with @ is in the abstract namespace (unix(7)).
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._interval_s = _interval_s(environment)

    def ready(self) -> None:
        """Tell that every listener accepts."""
        self._send(READY)

    async def run(self, stopping: trio.Event) -> None:
        """Tell regularly that the event loop runs, and once that the broker stops; until cancelled.
        Return at once without a service manager.
        """
        if not self._address:
            return
        pause_s = self._interval_s / ALIVE_TIMES if self._interval_s else math.inf
        is_stopping = False
        while True:
            if self._interval_s:
                self._send(ALIVE)
            if is_stopping:
                await trio.sleep(pause_s)
                continue
            with trio.move_on_after(pause_s):
                await stopping.wait()
                is_stopping = True
                self._send(STOPPING)

    def _send(self, message: bytes) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(message, self._address)
        except OSError as error:
            log.warning("supervisor_not_told", reason=error.strerror or str(error))


def _interval_s(environment: Mapping[str, str]) -> float:
    """Return the watchdog's interval in seconds; 0 without a watchdog for this process."""
    text = environment.get(WATCHDOG, "")
    process = environment.get(PROCESS, str(os.getpid()))
    return int(text) / 1e6 if text.isdecimal() and process == str(os.getpid()) else 0.0
