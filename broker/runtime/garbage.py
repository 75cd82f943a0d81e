"""Bounds the time of Python's cyclic garbage collections. A collection visits every object of a
generation, and holds the event loop meanwhile. Knows no task except its own.

No collection visits more than LOOKED_AT_MAX objects, however many live. Once a full collection has
left more than KEPT_MAX objects, `gc.freeze` removes these objects from later collections. Frozen
objects are still freed when nothing refers to them; a cycle among frozen objects stays, so code
that deletes an object has to break the object's cycles.

Python's own rule has no bound. The count of young objects goes down for each freed object of any
age: while as many objects are freed as created, young objects gather uncounted, without limit. So a
task also collects the young generation every SEARCH_S, and a busy loop looks for many young objects
more often (`search_if_many`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import trio

# Number of new objects before a young collection, of young collections before a middle collection,
# and of middle collections before a full collection: after 10,000, 20,000 and 30,000 objects. A
# receive turn makes thousands of short-lived objects and no cycles: Python's default of 700 cost a
# tenth of the processor here. Tracebacks and ended connections are cycles: a collection that frees
# more than some 20,000 objects at once takes tens of milliseconds.
GC_THRESHOLDS = (10_000, 0, 0)
KEPT_MAX = 5_000  # Objects that a full collection may leave for the next.
OLD_MAX = 10_000  # A collection with more old objects becomes a full collection.
# Objects left by a full collection, plus those that Python creates before the next. A visit takes
# 60 to 300 ns, depending on the processor's caches; 1,600 ns while other programs used the memory.
LOOKED_AT_MAX = 50_000
SEARCH_S = 0.2
# Thousands of waiting requests that end and begin again make 60,000 objects within a single pass
# over the ready tasks: so many took 57 ms. The loop counts the young objects after so much
# processor time, so an idle loop seldom does; the count takes some 50 us while there are as many
# as YOUNG_MAX.
BUSY_SEARCH_S = 0.004
YOUNG_MAX = 10_000
# Generations of a collection, which includes all younger generations.
YOUNG, MIDDLE, FULL = 0, 1, 2


class SearchTime:
    """Processor time of garbage collections; a context manager that listens to `gc.callbacks`."""

    def __init__(self) -> None:
        self.seconds = 0.0  # all collections so far
        self._begun = 0.0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._on_search)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._on_search)

    def _on_search(self, phase: str, info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._begun = now
        else:
            self.seconds += now - self._begun


@contextmanager
def short_searches() -> Iterator[None]:
    """Exclude all present objects from later collections, and keep collections short meanwhile."""
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
    """Collect nothing meanwhile: for creating many lasting objects before the broker serves
    clients.
    """
    gc.disable()
    try:
        yield
    finally:
        _leave_all_out()
        gc.enable()


async def search_regularly() -> None:
    """Collect every SEARCH_S until cancelled."""
    while True:
        await trio.sleep(SEARCH_S)
        search()


def search() -> None:
    """Collect the young generation, whose surviving objects are old then; collect the old objects
    as well if there are many.
    """
    gc.collect(FULL if len(gc.get_objects(FULL)) > OLD_MAX else MIDDLE)


def search_if_many() -> bool:
    """Collect if there are more than YOUNG_MAX young objects, and return True then."""
    is_due = len(gc.get_objects(YOUNG)) > YOUNG_MAX
    if is_due:
        search()
    return is_due


def _leave_all_out() -> None:
    gc.freeze()
    # There is nothing to collect, so this is quick. Python delays a full collection until the
    # number of new objects is a quarter of the objects that the last full collection left, even if
    # those were frozen since.
    gc.collect()


def _leave_out(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == FULL and len(gc.get_objects(FULL)) > KEPT_MAX:
        gc.freeze()
