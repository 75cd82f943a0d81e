"""Keeps Python's searches for garbage cycles short: a search looks at every object that it covers,
and holds the event loop meanwhile. Knows no task but the one that searches.

No search looks at more than LOOKED_AT_MAX objects, however many live. Once a full search has left
more than KEPT_MAX, these are taken out of later searches (`gc.freeze`): once for every so many
objects that came to stay. Such objects are still freed when nothing refers to them; a cycle among
them stays, so what is deleted has to break its own cycles.

Python's own rule does not bound it. Its count of young objects goes down for each one freed, of
whatever age: while as many are freed as are made, young ones gather uncounted, without limit. So
the young ones are also searched every SEARCH_S, a piece of that work at a time.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import trio

# Objects made before Python searches them for cycles, how many such searches lead to one of older
# objects and how many of these to a full one: after 10,000, 20,000 and 50,000. A receive turn makes
# thousands of short-lived objects and no cycles: Python's own 700 cost a tenth of the processor
# here. Tracebacks and ended connections are cycles: a search that frees more than some 20,000
# objects at once takes tens of milliseconds.
GC_THRESHOLDS = (10_000, 0, 1)
KEPT_MAX = 5_000  # Objects that a full search may leave for the next one.
OLD_MAX = 10_000  # With more older objects at a regular look, a full search follows.
# What a full search has left, and what Python lets come before the next. An object takes 60 to
# 300 ns, by what the processor's caches hold; 1,600 while other programs used the memory.
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
    """Leave what exists now out of all searches from now on, and keep them short meanwhile."""
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
    """Search nothing meanwhile: for making very many lasting objects, before anybody is served."""
    gc.disable()
    try:
        yield
    finally:
        _leave_all_out()
        gc.enable()


async def search_regularly() -> None:
    """Search every SEARCH_S until cancelled."""
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
    # There is nothing to search, so this is quick. Python puts off a full search until a quarter as
    # many objects have come as the last one left, even if those were taken out since.
    gc.collect()


def _leave_out(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == FULL and len(gc.get_objects(FULL)) > KEPT_MAX:
        gc.freeze()
