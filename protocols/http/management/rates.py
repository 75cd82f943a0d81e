"""Rates of counters between an earlier and a later scrape: no samples in between.

Knows totals by name and key, not the counted things.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping

Totals = Mapping[str, Mapping[str, int]]  # By family, then by key.
RatesPerSecond = dict[str, dict[str, float]]

WINDOW_S = 60.0  # A rate covers about the last minute, as in Apache Pulsar.
SPACING_S = 10.0  # Between stored totals, however frequent the scrapes are.


class RateSamples:
    """The totals of earlier scrapes."""

    def __init__(self, now_s: float) -> None:
        """Start counting now, at 0."""
        self._samples: deque[tuple[float, Totals]] = deque([(now_s, {})])
        self._lock = threading.Lock()  # Two scrapes may be rendered at the same time.

    def rates(self, now_s: float, totals: Totals) -> RatesPerSecond:
        """Return the rate per second of each total, since about `WINDOW_S` ago or the first scrape
        after.

        The rate of a total that fell (a removed or reset counter) is 0.
        """
        with self._lock:
            samples = self._samples
            while len(samples) > 1 and now_s - samples[1][0] >= WINDOW_S:
                samples.popleft()
            then_s, before = samples[0]
            if now_s - samples[-1][0] >= SPACING_S:
                samples.append((now_s, totals))
        seconds = max(now_s - then_s, 1.0)
        return {
            family: {
                key: max(total - before.get(family, {}).get(key, 0), 0) / seconds
                for key, total in by_key.items()
            }
            for family, by_key in totals.items()
        }
