"""How long one turn of one task holds the event loop, in processor time. Knows no task by name.

A turn is what a task does between two waits, or one pass over the sockets that are ready; while it
lasts nobody else is served. Garbage collection inside it counts. Processor time, not wall time: so
a busy machine makes no turn longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import trio

from braidlog.broker.config.logging import ThrottledLog
from braidlog.broker.metrics import Histogram
from braidlog.broker.runtime.garbage import SearchTime

# Processor time is read no more often than this: it is a system call. A turn may be charged up to
# this much too much, for the short turns before it.
FINE_S = 0.001
_now = time.perf_counter
PRODUCT = ("broker.", "protocols.", "storage.")
PASS = "braidlog.broker.runtime.poller.Poller.make_pass"  # in place of a task's name


@dataclass(slots=True, frozen=True)
class LongTurn:
    """A turn that held the loop for longer than it may."""

    task: str  # the function that the task runs
    ends_at: str  # module, line and function in which it waited next; "" if the task ended
    seconds: float  # of the processor
    collecting_s: float = 0.0  # of these, seconds of the search for garbage


class LoopTurns(trio.abc.Instrument):
    """Measures every turn; add it to a trio run from inside that run."""

    def __init__(
        self,
        turns: Histogram,
        on_long: Callable[[LongTurn], None],
        *,
        long_s: float,
        searches: SearchTime | None = None,
    ) -> None:
        """`turns` counts every turn; `on_long` is called with those of `long_s` or more."""
        self._searches = searches or SearchTime()
        self._searched_s = self._searches.seconds
        self._turns = turns
        self._counts = turns.counts
        self._on_long = on_long
        self._long_s = long_s
        self._asked_at = time.perf_counter()
        self._processor = time.thread_time()

    def pass_ended(self) -> None:
        """A pass of the poller ends, which is a turn."""
        self.after_task_step(None)

    def after_task_step(self, task: trio.lowlevel.Task | None) -> None:  # hot: see make bench
        """A turn ends, and the next one may begin."""
        now = _now()
        if now - self._asked_at < FINE_S:
            self._counts[0] += 1
            return
        self._asked_at = now
        processor = time.thread_time()
        seconds = processor - self._processor
        self._processor = processor
        self._turns.observe(seconds)
        if seconds >= self._long_s:
            searching_s = self._searches.seconds - self._searched_s
            name, place = (PASS, "") if task is None else (task.name, _place(task))
            self._on_long(LongTurn(name, place, seconds, searching_s))
        self._searched_s = self._searches.seconds


@contextmanager
def measuring_turns(
    turns: Histogram,
    log: ThrottledLog,
    long_ms: float | None,
    pass_listeners: list[Callable[[], None]],
) -> Iterator[None]:
    """Measure the turns of the running loop meanwhile, and log those of `long_ms` or more; with
    None do neither. The poller calls `pass_listeners` at the end of each of its passes.
    """
    if long_ms is None:
        yield
        return
    with SearchTime() as searches:
        on_long = partial(log_long_turn, log)
        instrument = LoopTurns(turns, on_long, long_s=long_ms / 1000, searches=searches)
        trio.lowlevel.add_instrument(instrument)
        pass_listeners.append(instrument.pass_ended)
        try:
            yield
        finally:
            pass_listeners.remove(instrument.pass_ended)
            trio.lowlevel.remove_instrument(instrument)


def log_long_turn(log: ThrottledLog, turn: LongTurn) -> None:
    """One line that names the task."""
    log.warning(
        "loop_held",
        cause=turn.task,
        task=turn.task,
        ends_at=turn.ends_at,
        processor_ms=round(turn.seconds * 1000),
        collecting_ms=round(turn.collecting_s * 1000),
    )


def _place(task: trio.lowlevel.Task) -> str:
    """Where in our own code the task waits now."""
    place = ""
    for frame, line in task.iter_await_frames():
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(PRODUCT):
            place = f"{module}:{line} {frame.f_code.co_name}"
    return place
