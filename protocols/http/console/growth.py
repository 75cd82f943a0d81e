"""The change of groups' lags since an earlier look: does a lag grow? Knows no page."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

GROWTH_KEYS_MAX = 10_000  # Lags remembered, some 200 bytes each; only of pages that were looked at.
SPACING_S = 4.0  # A lag older than this replaces the lag to compare with.


@dataclass(slots=True)
class _Looks:
    """The lag to compare with, and the latest lag that is to replace it."""

    then_s: float
    then: int
    last_s: float
    last: int


class Growth:
    """The lags at earlier looks."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._looks: OrderedDict[Hashable, _Looks] = OrderedDict()

    def per_s(self, key: Hashable, lag: int) -> float | None:
        """Return the change of a lag per second since an earlier look; None at the first look."""
        now = self._clock_s()
        looks = self._looks.get(key)
        if looks is None:
            self._looks[key] = _Looks(now, lag, now, lag)
            if len(self._looks) > GROWTH_KEYS_MAX:
                self._looks.popitem(last=False)
            return None
        self._looks.move_to_end(key)
        if now - looks.last_s >= SPACING_S:
            looks.then_s, looks.then = looks.last_s, looks.last
            looks.last_s, looks.last = now, lag
        seconds = now - looks.then_s
        return (lag - looks.then) / seconds if seconds > 0 else None
