"""Progress of long work: a line on a terminal with share, rate and time left; nothing elsewhere.

The only escape codes of the command line are here. Knows no work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TextIO

REFRESH_S = 0.1
ERASE = "\r\x1b[K"
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

Unit = Literal["bytes", "records", "objects", "shards"]
Advance = Callable[[int, int], None]  # Takes the amount done, and the whole amount (0: unknown).


class ProgressBar:
    """The line of a piece of work."""

    def __init__(
        self,
        label: str,
        unit: Unit,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = label
        self._unit = unit
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._shown = -REFRESH_S

    def advance(self, done: int, total: int) -> None:
        """Show the amount done and the whole amount; 0 for an unknown amount."""
        now = self._clock()
        if now - self._shown < REFRESH_S:
            return
        self._shown = now
        rate = done / max(now - self._began, REFRESH_S)
        parts = [self._what, self._amount(done)]
        if total:
            total = max(done, total)
            parts = [self._what, f"{100 * done // total:3} %"]
            parts.append(f"{self._amount(done)} of {self._amount(total)}")
        parts.append(f"{self._amount(int(rate))}/s")
        if total and rate:
            parts.append(f"{_duration((total - done) / rate)} left")
        self._stream.write(f"{ERASE}{'  '.join(parts)}")
        self._stream.flush()

    def erase(self) -> None:
        """Remove the line."""
        self._stream.write(ERASE)
        self._stream.flush()

    def _amount(self, number: int) -> str:
        if self._unit != "bytes":
            return f"{number:,} {self._unit}"
        size, power = float(number), 0
        while size >= 1024 and power < len(UNITS) - 1:
            size, power = size / 1024, power + 1
        return f"{size:.{1 if power else 0}f} {UNITS[power]}"


@contextmanager
def progress(label: str, unit: Unit = "bytes", *, hidden: bool = False) -> Iterator[Advance]:
    """Yield a function of the amount done and the whole amount; show both if standard error is a
    terminal and not `hidden`.
    """
    stream = sys.stderr
    if hidden or not stream.isatty():
        yield lambda done, total: None
        return
    shown = ProgressBar(label, unit, stream)
    try:
        yield shown.advance
    finally:
        shown.erase()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
