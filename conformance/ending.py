"""Lets a run that is ended by a signal stop the servers that it started."""

import signal
import sys
from types import FrameType


def end_on_signals() -> None:
    """Exit on SIGTERM and SIGHUP as Ctrl-C does: through every context manager. By default the
    process ends at once, and its brokers and stores run on.
    """

    def end(number: int, _: FrameType | None) -> None:
        for one in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(one, signal.SIG_IGN)  # A second signal must not cut this short.
        sys.exit(128 + number)

    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, end)
