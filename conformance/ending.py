"""Stops a run's servers when a signal ends the run."""

import signal
import sys
from types import FrameType


def end_on_signals() -> None:
    """Exit on SIGTERM and SIGHUP like Ctrl-C: through every context manager.

    By default these signals end the process at once, and its brokers and stores run on.
    """

    def end(number: int, _: FrameType | None) -> None:
        for signal_number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(
                signal_number, signal.SIG_IGN
            )  # A second signal must not interrupt the cleanup.
        sys.exit(128 + number)

    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, end)
