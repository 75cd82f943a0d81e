"""Many simulated states, unit by unit, so that a long run can be broken off and resumed.

A unit is everything that one seed gives. Tests run a few, `python -m conformance.simulation` many.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from conformance.simulation.damage import TAIL_BYTES, flips, truncations
from conformance.simulation.failing import failures
from conformance.simulation.histories import histories
from conformance.simulation.power import Scenario

Unit = Callable[[int, str], Iterator[str | None]]

FLIPS_EACH = 250
# So many units of truncations have cut at each byte of the tail once.
TRUNCATION_UNITS = 256

# Failures that a progress file holds in words; all are counted.
TOLD_MAX = 50


def truncation_unit(seed: int, folder: str) -> Iterator[str | None]:
    """Every 256th place in the tail of one log, another one with the next seed."""
    cuts = range(seed % TRUNCATION_UNITS + 1, TAIL_BYTES + 1, TRUNCATION_UNITS)
    return truncations(seed, folder, cuts)


KINDS: dict[str, Unit] = {
    "power": lambda seed, folder: Scenario(seed, folder).run(),
    "flips": lambda seed, folder: flips(seed, folder, FLIPS_EACH),
    "truncations": truncation_unit,
    "histories": lambda seed, folder: histories(seed, folder),
    "failures": lambda seed, folder: failures(seed, folder),
}


@dataclass(slots=True)
class Progress:
    """How far a run has come: the seed of the next unit, and what was found so far."""

    kind: str
    first_seed: int
    next_seed: int
    states: int = 0
    seconds: float = 0.0
    failed: int = 0
    failures: list[str] = field(default_factory=list)

    def note(self, seed: int, number: int, found: str | None) -> None:
        """Count one state."""
        self.states += 1
        if found is not None:
            self.failed += 1
            if len(self.failures) < TOLD_MAX:
                self.failures.append(f"seed {seed}, state {number}: {found}")

    def save(self, path: str) -> None:
        """Write it down, whole or not at all."""
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=1)
        os.replace(path + ".new", path)

    @classmethod
    def load(cls, path: str) -> "Progress":
        """What `save` wrote."""
        with open(path, encoding="utf-8") as file:
            return cls(**json.load(file))


def run_unit(progress: Progress, unit: Unit, folder: str) -> None:
    """Run the next unit, and count its states."""
    began, seed = time.monotonic(), progress.next_seed
    number = 0
    try:
        for number, found in enumerate(unit(seed, folder), 1):
            progress.note(seed, number, found)
    except Exception as error:  # The undisturbed workload failed: the unit has no more states.
        progress.note(seed, number + 1, f"workload: {type(error).__name__}: {error}")
    progress.next_seed += 1
    progress.seconds += time.monotonic() - began


def run(
    progress: Progress, states: int, folder: str, unit: Unit | None = None
) -> Iterator[Progress]:
    """Run whole units until there are at least so many states; yields after each.

    `unit` is that of the progress's kind unless given.
    """
    while progress.states < states:
        run_unit(progress, unit or KINDS[progress.kind], folder)
        yield progress
