"""A token bucket: a rate with a burst. Knows no client."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """A rate with a burst: the unused part of the last `burst_s` may be used at once."""

    __slots__ = ("_burst", "_clock_s", "_left", "_rate", "_seen_s")

    def __init__(self, rate: float, burst_s: float, clock_s: Callable[[], float]) -> None:
        """`rate` is per second."""
        self._rate = rate
        self._burst = rate * burst_s
        self._left = self._burst
        self._clock_s = clock_s
        self._seen_s = clock_s()

    def change_rate(self, rate: float, burst_s: float) -> None:
        """Go on at another rate, with the unused part of the former rate."""
        if rate != self._rate:
            self.spend(0)
            self._rate, self._burst = rate, rate * burst_s

    def left(self) -> float:
        """Return the amount that can be spent without debt; 0 or less in debt."""
        self.spend(0)
        return self._left

    def spend(self, amount: float) -> float:
        """Spend this amount, into debt if need be; return the seconds until the debt is paid."""
        now = self._clock_s()
        self._left = min(self._burst, self._left + (now - self._seen_s) * self._rate) - amount
        self._seen_s = now
        return max(0.0, -self._left / self._rate)
