"""Python's search for cycles of garbage, kept short: it looks at every object that it may find, and
holds the event loop meanwhile. Knows no task but the one that searches.

No search looks at more than LOOKED_AT_MAX objects, whatever lives: what a full search has left goes
out of the later ones (`gc.freeze`) as soon as it is more than KEPT_MAX, which happens once for so
many objects that came to stay. Such objects still go when nobody holds them; a cycle among them
stays, so that what is deleted has to come apart by itself.

Python's own rule does not bound it. Its count of young objects goes down for each one that ends, of
whatever age: where as many come as go, they stay young and uncounted, however many. So the young
ones are searched every SEARCH_S, too: a piece of that work at a time.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import trio

# Objects made before Python looks for cycles among them, and how many such looks lead to one at the
# older ones, and of these to a full one: after 10,000, 20,000 and 50,000. A receive turn makes
# thousands of short-lived objects and no cycles: Python's own 700 cost a tenth of the processor
# here. Tracebacks and ended connections are cycles: what is met and freed at once has to stay below
# some 20,000 objects, or it takes tens of milliseconds.
GC_THRESHOLDS = (10_000, 0, 1)
KEPT_MAX = 5_000  # Objects that a full search may leave for the next one.
OLD_MAX = 10_000  # Older objects at a regular look at them, or a full search follows.
# What a full search has left, and what Python lets come before the next. An object takes 60 to
# 300 ns, by how much of it the processor has at hand; 1,600 were seen where others used the memory.
LOOKED_AT_MAX = 60_000
SEARCH_S = 0.2  # Clients that come by the thousand make some 50,000 objects a second.
MIDDLE, FULL = 1, 2  # Generations that a search may look at, with all younger ones.


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
        else:
            self.seconds += now - self._begun


@contextmanager
def short_searches() -> Iterator[None]:
    """Leave what there is out of all searches from now on, and meanwhile keep them short."""
    before = gc.get_threshold()
    gc.collect()
    _leave_all_out()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.callbacks.append(_leave_out)
    try:
        yield
    finally:
        gc.callbacks.remove(_leave_out)
        gc.set_threshold(*before)


@contextmanager
def no_searches() -> Iterator[None]:
    """For what makes a great many objects that stay, before anybody is served."""
    gc.disable()
    try:
        yield
    finally:
        _leave_all_out()
        gc.enable()


async def search_regularly() -> None:
    """Search every SEARCH_S, without end."""
    while True:
        await trio.sleep(SEARCH_S)
        search_young()
        if has_many_old():
            await trio.lowlevel.checkpoint()  # A turn of its own.
            gc.collect()


def search_young() -> None:
    """Search what was made since the last time; what is left of it is old."""
    gc.collect(MIDDLE)


def has_many_old() -> bool:
    """Whether a full search is due."""
    return len(gc.get_objects(FULL)) > OLD_MAX


def _leave_all_out() -> None:
    gc.freeze()
    # Of nothing, so quick. Python puts off a full search until a quarter as many objects have come
    # as the one before has left, those that were taken out since included.
    gc.collect()


def _leave_out(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == FULL and len(gc.get_objects(FULL)) > KEPT_MAX:
        gc.freeze()
