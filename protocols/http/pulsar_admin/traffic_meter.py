"""Rates of counters in Pulsar's statistics: averages a second between requests for statistics.

Nothing is counted between the requests. Knows keys and counts, not the counted things.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 10.0  # Samples are at least this far apart.
SAMPLED_MAX: Final = 20_000  # Keys with samples; the least used goes first.


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    counts: Sequence[int]


class TrafficMeter:
    """The samples of counters that were looked at lately.

    A rate is the average since the last look that is at least WINDOW_S ago; at the first look,
    since the counting began.
    """

    def __init__(
        self, now_us: Callable[[], int], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`now_us` is the time since 1970."""
        self._now_us = now_us
        self._clock_s = clock_s
        self._begun_s = clock_s()
        self._samples: OrderedDict[Hashable, tuple[_Sample, _Sample]] = OrderedDict()

    def rates(self, key: Hashable, counts: Sequence[int], begun_us: int) -> list[float]:
        """Return the rate a second of each count; 0 for a count that fell. The counts began at 0 at
        that time since 1970, or at the start of the meter if that was later.
        """
        now_s = self._clock_s()
        older, newer = self._samples.get(key) or self._first(counts, now_s, begun_us)
        if now_s - newer.at_s >= WINDOW_S:
            older, newer = newer, _Sample(now_s, counts)
        self._samples[key] = older, newer
        self._samples.move_to_end(key)
        if len(self._samples) > SAMPLED_MAX:
            self._samples.popitem(last=False)
        seconds = max(now_s - older.at_s, 1.0)
        pairs = zip(counts, older.counts, strict=True)
        return [max(count - before, 0) / seconds for count, before in pairs]

    def _first(self, counts: Sequence[int], now_s: float, begun_us: int) -> tuple[_Sample, _Sample]:
        age_s = max(self._now_us() - begun_us, 0) / 1_000_000
        begun = _Sample(max(self._begun_s, now_s - age_s), [0] * len(counts))
        return begun, _Sample(now_s, counts)
