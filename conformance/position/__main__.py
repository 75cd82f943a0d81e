"""`python -m conformance.position [--runs N] [--first N] [--report FILE]`: random steps of all
protocols on a shared position, with stops and kills of the broker between them, compared with the
model.

A run's steps depend only on its number; the disk content at a kill also depends on the machine.
"""

import argparse
import datetime
import sys
from collections import Counter
from pathlib import Path

from conformance.position.machine import PositionMachine, PositionsDiffer
from conformance.position.sharing import SharingMachine
from conformance.server import RunningBroker

STEPS = 40
KILL_CHANCE, RESTART_CHANCE = 0.05, 0.02


def run(broker: RunningBroker, number: int, steps: int, *, kills: bool) -> Counter[str]:
    """Return how often each step was made on a new topic. Raises PositionsDiffer.

    The topic has a single partition or, in every other run, several partitions that an Iggy group
    shares.
    """
    if number % 2:
        machine: PositionMachine = SharingMachine(broker, f"position-{number}", number)
    else:
        machine = PositionMachine(broker, f"position-{number}", number)
    try:
        for _ in range(steps):
            machine.step()
            chance = machine.random.random()
            if kills and chance < KILL_CHANCE:
                machine.kill()
            elif kills and chance < KILL_CHANCE + RESTART_CHANCE:
                machine.restart()
    finally:
        machine.leave()
    return Counter(step.partition(" in partition ")[0] for step in machine.steps)


def main() -> int:
    """Return 1 if broker and model differ."""
    parser = argparse.ArgumentParser(prog="python -m conformance.position", description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each run")
    parser.add_argument("--report", type=Path, metavar="FILE", help="kept up to date on the way")
    arguments = parser.parse_args()
    step_counts: Counter[str] = Counter()
    differences: list[str] = []
    with RunningBroker() as broker:
        for done in range(1, arguments.runs + 1):
            number = arguments.first + done - 1
            try:
                step_counts += run(broker, number, arguments.steps, kills=True)
            except PositionsDiffer as difference:
                differences.append(f"run {number}: {difference}")
            print(f"run {number}: {len(differences)} differences", flush=True)
            if arguments.report:
                arguments.report.write_text(
                    _report(arguments.first, done, step_counts, differences)
                )
    return int(bool(differences))


def _report(first: int, done: int, step_counts: Counter[str], differences: list[str]) -> str:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        "# One position, four protocols",
        "",
        f"`python -m conformance.position --first {first} --runs {done}`, {today}:"
        f" {step_counts.total()} steps, {len(differences)} differences between the broker and the"
        " model (`conformance/position/model.py`). Iggy's calls are those of dialects D2 and W,"
        " by chance. After each step Kafka's OffsetFetch, Iggy's stored offset in both dialects"
        " and HTTP's cursor (acknowledged ranges, backlog, mark-delete) are compared"
        " in every partition, and which member of an Iggy group, of either dialect, has which.",
        "",
        "| step | times |",
        "| --- | --- |",
        *(f"| {name} | {times} |" for name, times in step_counts.most_common()),
        "",
        *differences,
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
