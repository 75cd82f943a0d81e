"""Processor time of each turn of the event loop. Knows no task by name.

A turn is a task's work between two waits, or a pass over the ready sockets. During a turn no other
client is served. Garbage collection inside a turn counts. The measure is processor time, not wall
time, so a busy machine makes no turn longer.

Between two turns of a busy loop, a collection keeps the number of young objects small: it is a turn
of its own.
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
from braidlog.broker.runtime.garbage import BUSY_SEARCH_S, SearchTime, search_if_many

# Processor time is read no more often than this, because a read is a system call. A turn may
# include up to this much of the short turns before.
FINE_S = 0.001
_now = time.perf_counter
PRODUCT = "braidlog."
# In place of a task's name.
PASS = "braidlog.broker.runtime.poller.EpollPoller.make_pass"
SEARCH = "braidlog.broker.runtime.garbage.search_if_many"


@dataclass(slots=True, frozen=True)
class LongTurn:
    """A turn that held the loop for too long."""

    task: str  # the task's function
    ends_at: str  # module, line and function of the task's next wait; "" if the task ended
    seconds: float  # of processor time
    collecting_s: float = 0.0  # the part of `seconds` for garbage collection


class LoopTurns(trio.abc.Instrument):
    """Measures every turn. Add an instance to a trio run from inside the run."""

    def __init__(
        self,
        turns: Histogram,
        on_long: Callable[[LongTurn], None],
        *,
        long_s: float,
        searches: SearchTime | None = None,
    ) -> None:
        """Count every turn in `turns`, and call `on_long` with each turn of `long_s` or more."""
        self._searches = searches or SearchTime()
        self._searched_s = self._searches.seconds
        self._turns = turns
        self._counts = turns.counts
        self._on_long = on_long
        self._long_s = long_s
        self._asked_at = time.perf_counter()
        self._processor = self._looked_at = time.thread_time()  # Of processor time.

    def pass_ended(self) -> None:
        """End a turn of the poller, which is a pass."""
        self.after_task_step(None)

    def after_task_step(self, task: trio.lowlevel.Task | None) -> None:  # hot: see make bench
        """End a turn; the next turn may begin."""
        now = _now()
        if now - self._asked_at < FINE_S:
            self._counts[0] += 1
            return
        self._end_turn(now, task)
        if self._processor - self._looked_at >= BUSY_SEARCH_S:  # An idle loop makes few objects.
            self._looked_at = self._processor
            if search_if_many():
                self._end_turn(_now(), None, SEARCH)

    def _end_turn(self, now: float, task: trio.lowlevel.Task | None, name: str = PASS) -> None:
        """Measure the turn of a task, or of `name` if there is no task."""
        self._asked_at = now
        processor = time.thread_time()
        seconds = processor - self._processor
        self._processor = processor
        self._turns.observe(seconds)
        if seconds >= self._long_s:
            searching_s = self._searches.seconds - self._searched_s
            name, place = (name, "") if task is None else (task.name, _place(task))
            self._on_long(LongTurn(name, place, seconds, searching_s))
        self._searched_s = self._searches.seconds


@contextmanager
def measuring_turns(
    turns: Histogram,
    log: ThrottledLog,
    long_ms: float | None,
    pass_listeners: list[Callable[[], None]],
) -> Iterator[None]:
    """Measure the turns of the running loop meanwhile, log turns of `long_ms` or more, and collect
    many young objects between turns; with None do none of these. The poller calls `pass_listeners`
    at the end of each pass.
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
    """Log a line that names the task."""
    log.warning(
        "loop_held",
        cause=turn.task,
        task=turn.task,
        ends_at=turn.ends_at,
        processor_ms=round(turn.seconds * 1000),
        collecting_ms=round(turn.collecting_s * 1000),
    )


def _place(task: trio.lowlevel.Task) -> str:
    """Return the place in Braidlog's code at which the task waits now."""
    place = ""
    for frame, line in task.iter_await_frames():
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(PRODUCT):
            place = f"{module}:{line} {frame.f_code.co_name}"
    return place
