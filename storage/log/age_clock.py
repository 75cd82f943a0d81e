"""The time of day for computing ages of records, although the wall clock may be set.

Retention, message TTL, backlog age and compaction drop what is older than a limit. A wall clock
that jumps ahead makes every record look old. `AgeClock` compares the wall clock with a steady clock
and leaves out each jump ahead until the limit has passed since that jump. Knows no record.
"""

import time
from collections.abc import Callable
from typing import Final

JUMP_US_MIN: Final = 100_000  # A smaller difference is a clock that is slewed, or a slow thread.
JUMPS_MAX: Final = 64  # Jumps that are remembered; the oldest two become a single jump after that.


def steady_us() -> int:
    """Microseconds of a clock that nobody sets; it goes on while the machine sleeps, where the
    system has such a clock.
    """
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic_ns() if boot_time is None else time.clock_gettime_ns(boot_time)) // 1000


class AgeClock:
    """The wall clock without its latest jumps ahead.

    Guarantee: a record that was stamped with the wall clock less than a limit ago, by the steady
    clock, is never older than the limit by `now_us`, except for `JUMP_US_MIN`. The clock sees a
    jump only at a `look`, so the owner looks once per commit round.
    """

    def __init__(
        self, wall_us: Callable[[], int], steady_clock_us: Callable[[], int] = steady_us
    ) -> None:
        self._wall_us = wall_us
        self._steady_us = steady_clock_us
        self._difference_us = wall_us() - steady_clock_us()
        self._jumps: list[tuple[int, int]] = []  # (steady time when it was seen, microseconds).

    def wall_us(self) -> int:
        """The wall clock as it is."""
        return self._wall_us()

    def look(self) -> None:
        """Compare the two clocks, and remember a jump ahead."""
        self._look(self._wall_us(), self._steady_us())

    def now_us(self, limit_us: int) -> int:
        """The time of day that ages are counted from, if `limit_us` is the age that matters."""
        wall_us, steady = self._wall_us(), self._steady_us()
        self._look(wall_us, steady)
        return wall_us - sum(size for at, size in self._jumps if steady - at < limit_us)

    def _look(self, wall_us: int, steady: int) -> None:
        jump_us = wall_us - steady - self._difference_us
        if -JUMP_US_MIN < jump_us < JUMP_US_MIN:
            return
        self._difference_us += jump_us
        if jump_us < 0:  # A record that was written before looks younger than it is.
            return
        self._jumps.append((steady, jump_us))
        if len(self._jumps) > JUMPS_MAX:
            (_, first_us), (at, second_us) = self._jumps[:2]
            self._jumps[:2] = [(at, first_us + second_us)]
