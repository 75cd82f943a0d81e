"""The work of a turn of the event loop, counted in function calls.

A turn with more than TURN_CALLS_MAX calls fails the test, on any machine and under any load: the
same test makes the same calls again. Counting costs half as much time again, so a test is counted
only if a turn of the product took long before: it raises LongTurns, and pytest runs it once more
(`addopts` in `pyproject.toml`). Long work inside one call of C is not counted. The hostile and
scale runs measure processor time (`conformance/hostile/judge.py`, `conformance/bench/scale.py`).
"""

import cProfile

import trio

from braidlog.broker.metrics import TURN_BUCKETS, Histogram
from braidlog.broker.runtime.garbage import SearchTime
from braidlog.broker.runtime.loop_turns import PRODUCT, LongTurn, LoopTurns

SUSPICIOUS_S = 0.05  # Processor time of a turn after which the test is counted.
# Usual turns make up to 30,000 calls; a POLL of 20,000 tiny Iggy messages makes 320,000 short calls
# in some 45 ms, the longest turn that is known.
TURN_CALLS_MAX = 400_000


class LongTurns(AssertionError):
    """Turns took long, so the test has to be counted: `--only-rerun` in `pyproject.toml`."""


class TooManyCalls(AssertionError):
    """A turn of the event loop does too much work."""


class SlowTurns(LoopTurns):
    """Looks for turns of the product that took long. Garbage collection does not count."""

    def __init__(self) -> None:
        self._collecting = SearchTime()
        self._collecting.__enter__()
        super().__init__(
            Histogram(TURN_BUCKETS),
            self._on_long_turn,
            long_s=SUSPICIOUS_S,
            searches=self._collecting,
        )
        self._found: list[LongTurn] = []

    def close(self) -> None:
        """Stop looking. Raises LongTurns if a turn took long."""
        self._collecting.__exit__(None, None, None)
        if self._found:
            raise LongTurns(f"turns to be counted: {self._found}")

    def _on_long_turn(self, turn: LongTurn) -> None:
        if turn.task.startswith(PRODUCT) and turn.seconds - turn.collecting_s >= SUSPICIOUS_S:
            self._found.append(turn)


class CountedTurns(trio.abc.Instrument):
    """Counts the function calls of each turn of the product's tasks, those of C included."""

    def __init__(self, calls_max: int = TURN_CALLS_MAX) -> None:
        self._calls_max = calls_max
        self._profiler = cProfile.Profile()
        self._found: list[tuple[str, int]] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        if task.name.startswith(PRODUCT):
            self._profiler.enable()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        if task.name.startswith(PRODUCT):
            self._profiler.disable()
            calls = sum(entry.callcount for entry in self._profiler.getstats())
            self._profiler.clear()
            if calls > self._calls_max:
                self._found.append((task.name, calls))

    def close(self) -> None:
        """Raises TooManyCalls if a turn made too many calls."""
        if self._found:
            raise TooManyCalls(f"turns with more than {self._calls_max} calls: {self._found}")


def watch(run_number: int) -> SlowTurns | CountedTurns:
    """Return the instrument for a test's run: the second run is counted."""
    return SlowTurns() if run_number == 1 else CountedTurns()
