"""`python -m conformance.tree [--seeds N] [--first N] [--report FILE]`: random operations of many
sessions on ZooKeeper's nodes, over cut connections, SIGKILLs of the broker and expired sessions,
against a model: results, order, versions and all other numbers, watches (each event once, before
the answer that shows the change), ephemeral nodes and the names of sequential nodes.

The exit code is 1 at the first difference.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from conformance.ending import end_on_signals
from conformance.server import ANY_PORT, RunningBroker
from conformance.tree.machine import SETTINGS, TreeMachine, TreesDiffer

LISTEN = {"kafka": ANY_PORT, "zookeeper": ANY_PORT}
STEPS = 120
KILLS = 2  # Of the broker, for each seed.
EXPIRES_EVERY = 5  # Seeds: each expired session takes seconds.


def run(broker: RunningBroker, seed: int, steps: int, kills: int) -> Counter[str]:
    """Make the steps of a seed; return how often each step was made. Raises TreesDiffer."""
    machine = TreeMachine(broker, seed)
    killed_at = set(machine.random.sample(range(steps), kills))
    for number in range(steps):
        machine.step()
        if number in killed_at:
            machine.kill()
    if seed % EXPIRES_EVERY == 0:
        machine.expire()
    machine.leave()
    return machine.counts


def main(arguments: list[str]) -> int:
    """Run all seeds; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conformance.tree", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each seed")
    parser.add_argument("--kills", type=int, default=KILLS, help="of each seed")
    parser.add_argument("--report", type=Path, metavar="FILE", help="kept up to date on the way")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    begun = time.monotonic()
    with RunningBroker(listen=LISTEN, others=False, settings=SETTINGS) as broker:
        for done in range(1, options.seeds + 1):
            seed = options.first + done - 1
            try:
                counts += run(broker, seed, options.steps, options.kills)
            except TreesDiffer as difference:
                print(f"seed {seed}: {difference}", flush=True)
                return 1
            if options.report is not None:
                options.report.write_text(_report(options.first, done, counts, begun))
            if done % 10 == 0 or done == options.seeds:
                print(f"{done} seeds, {counts.total()} steps, no difference", flush=True)
    return 0


def _report(first: int, done: int, counts: Counter[str], begun: float) -> str:
    minutes = (time.monotonic() - begun) / 60
    rows = [f"| {step.replace('_', ' ')} | {count} |" for step, count in sorted(counts.items())]
    head = f"Seeds {first} to {first + done - 1}: no difference, in {minutes:.0f} minutes."
    command = "`python -m conformance.tree` (`conformance/README.md`)."
    lines = ["# ZooKeeper's tree against a model", "", f"{command} {head}", ""]
    return "\n".join([*lines, "| step | times |", "| --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))
