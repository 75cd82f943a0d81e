"""Many simulated states, unit by unit, so that a long run can be interrupted and resumed.

A unit has all states of a seed. Tests run a few units, `python -m conformance.simulation` many.
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
# Truncation units until each byte of the tail was cut once.
TRUNCATION_UNITS = 256

# Failures with text in a progress file; all are counted.
TOLD_MAX = 50


def truncation_unit(seed: int, folder: str) -> Iterator[str | None]:
    """Yield the results at every 256th place in the tail of a log, at other places with the next
    seed.
    """
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
class CampaignProgress:
    """The progress of a run: the seed of the next unit, and the findings so far."""

    kind: str
    first_seed: int
    next_seed: int
    states: int = 0
    seconds: float = 0.0
    failed: int = 0
    failures: list[str] = field(default_factory=list)

    def note(self, seed: int, number: int, fault: str | None) -> None:
        """Count a state."""
        self.states += 1
        if fault is not None:
            self.failed += 1
            if len(self.failures) < TOLD_MAX:
                self.failures.append(f"seed {seed}, state {number}: {fault}")

    def save(self, path: str) -> None:
        """Write the progress to a file atomically."""
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=1)
        os.replace(path + ".new", path)

    @classmethod
    def load(cls, path: str) -> "CampaignProgress":
        """Return the progress that `save` wrote."""
        with open(path, encoding="utf-8") as file:
            return cls(**json.load(file))


def run_unit(progress: CampaignProgress, unit: Unit, folder: str) -> None:
    """Run the next unit, and count its states."""
    began, seed = time.monotonic(), progress.next_seed
    number = 0
    try:
        for number, fault in enumerate(unit(seed, folder), 1):
            progress.note(seed, number, fault)
    except Exception as error:  # The undisturbed workload failed: the unit has no more states.
        progress.note(seed, number + 1, f"workload: {type(error).__name__}: {error}")
    progress.next_seed += 1
    progress.seconds += time.monotonic() - began


def run(
    progress: CampaignProgress, states: int, folder: str, unit: Unit | None = None
) -> Iterator[CampaignProgress]:
    """Run whole units until there are at least `states` states; yield after each unit.

    `unit` is that of the progress's kind unless given.
    """
    while progress.states < states:
        run_unit(progress, unit or KINDS[progress.kind], folder)
        yield progress
