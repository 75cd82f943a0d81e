"""The clocks of a broker: the time of day, and a clock that nobody sets."""

from __future__ import annotations

import time
from typing import Protocol

from braidlog.storage.log.age_clock import steady_us


class Clock(Protocol):
    """The clocks that a broker reads."""

    def now_us(self) -> int:
        """Return the wall-clock time in microseconds since 1970."""

    def steady_us(self) -> int:
        """Return microseconds of a clock that nobody sets."""


class SystemClock:
    """The clocks of the machine. Implements `Clock`."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def steady_us(self) -> int:
        return steady_us()
