"""A limit of 50 ms of processor time for a turn of the event loop.

The test with a longer turn fails, both for a broker inside the test and for a broker in its own
process. A virtual machine may count its host's work as processor time: a turn of 88 ms that never
came again was seen once in ten thousand tests. So a test that fails for its turns runs once more,
and fails if they are too long again (`addopts` in `pyproject.toml`).
"""

import gc
import json
import os
import re
import time
from collections.abc import Callable

from braidlog.broker.metrics import TURN_BUCKETS, Histogram
from braidlog.broker.runtime.loop_turns import PRODUCT, LongTurn, LoopTurns

TURN_S_MAX = 0.05


def limit_at(load: float, cores: int) -> float:
    """Return the longest allowed turn in seconds.

    Beside other load the same work takes more processor time, because caches and cores are shared:
    five times as much was seen at a load of 16 on two cores.
    """
    return TURN_S_MAX * max(1.0, load / cores)


def limit_now() -> float:
    """Return the longest allowed turn at this moment."""
    return limit_at(os.getloadavg()[0], os.cpu_count() or 1)


# (beginning of `LongTurn.task`, place of the turn's end, reason for a longer turn).
ALLOWED: list[tuple[str, str, str]] = []


def is_allowed(task: str, ends_at: str) -> bool:
    """Return True if the turn is on the list."""
    return any(task.startswith(name) and re.search(place, ends_at) for name, place, _ in ALLOWED)


class LongTurns(AssertionError):
    """Turns took too long. pytest uses this name: `--only-rerun` in `pyproject.toml`."""


class Watch(LoopTurns):
    """Finds long turns of the test's own tasks in the present trio run.

    Full garbage collections are exempt here: they walk over all modules of the tests. In a broker's
    own process they count.
    """

    def __init__(self, limit_s: Callable[[], float] = limit_now) -> None:
        super().__init__(Histogram(TURN_BUCKETS), self._on_long_turn, long_s=TURN_S_MAX)
        self._limit_s = limit_s
        self.found: list[LongTurn] = []
        self._collections: list[tuple[float, float]] = []  # begin and end, processor time
        gc.callbacks.append(self._on_collection)

    def close(self) -> None:
        """Stop watching. Raises LongTurns if a turn was too long."""
        gc.callbacks.remove(self._on_collection)
        if self.found:
            raise LongTurns(f"turns of more than {self._limit_s()} s: {self.found}")

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        now = time.thread_time()
        if info["generation"] == 2:
            if phase == "start":
                self._collections.append((now, now))
            else:
                self._collections[-1] = (self._collections[-1][0], now)

    def _on_long_turn(self, turn: LongTurn) -> None:
        begun = time.thread_time() - turn.seconds
        collecting = sum(end - start for start, end in self._collections if start >= begun)
        self._collections.clear()
        is_ours = turn.task.startswith(PRODUCT) and not is_allowed(turn.task, turn.ends_at)
        if is_ours and turn.seconds - collecting >= self._limit_s():
            self.found.append(turn)


def logged(lines: list[str], limit_s: Callable[[], float] = limit_now) -> list[str]:
    """Return the lines of a broker's log about long turns, except the allowed turns."""
    found = []
    for line in lines:
        if '"loop_held"' in line:
            told = json.loads(line)
            is_long = told["processor_ms"] >= 1000 * limit_s()
            if is_long and not is_allowed(told["task"], told["ends_at"]):
                found.append(line)
    return found
