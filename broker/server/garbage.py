"""Python's search for cycles of garbage, kept short: a full one looks at every object there is, and
holds the event loop meanwhile. Knows no task.

What a full search that took long has left is taken out of the later ones (`gc.freeze`): modules,
topics, subscriptions. Such objects still go when nobody holds them; a cycle among them stays. That
happens once for some 100,000 objects more, and connections that live at that moment are few.
"""

from __future__ import annotations

import gc
import time
from types import TracebackType
from typing import Self

# Objects made before Python looks for cycles among them, and how many such looks lead to one at the
# older ones, and of these to a full one. A receive turn makes thousands of short-lived objects and
# no cycles: Python's own 700 cost a tenth of the processor here. Tracebacks and ended connections
# are cycles: what is met and freed at once has to stay below some 20,000 objects, or it takes tens
# of milliseconds.
GC_THRESHOLDS = (10_000, 1, 10)
FREEZE_S = 0.015  # A full search that takes so long is followed by shorter ones.
FULL = 2  # The generation of a full search.


class SearchTime:
    """Processor time of the searches for garbage; a context manager, which listens meanwhile."""

    def __init__(self) -> None:
        self.seconds = 0.0  # all searches so far
        self._begun = 0.0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._on_search)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        gc.callbacks.remove(self._on_search)

    def _on_search(self, phase: str, info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._begun = now
            return
        took = now - self._begun
        self.seconds += took
        if info["generation"] == FULL and took >= FREEZE_S:
            gc.freeze()


def search_seldom() -> None:
    """Leave what there is out of all searches from now on, and search for garbage as seldom as a
    broker wants it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
