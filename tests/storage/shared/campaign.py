"""`python -m tests.storage.shared.campaign [--seeds N] [--first SEED] [--report FILE]`: many seeds
of the simulation of the shared store, in a single process.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from tests.storage.shared.simulation import Violation, run_seed

STEPS = 1000
TOLD_EVERY = 500


def main():
    """Return 1 when an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.storage.shared.campaign")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--report", type=Path, metavar="FILE")
    options = parser.parse_args()
    # A single thread runs at a time: passing the turn costs half as much within a core.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    counts, violations, acked = {}, [], 0
    begun = time.process_time()
    for number, seed in enumerate(range(options.first, options.first + options.seeds), 1):
        try:
            world = run_seed(seed, STEPS)
        except Violation as violation:
            violations.append(str(violation))
            print(violation, flush=True)
            continue
        acked += len(world.acked)
        for name, count in world.counts.items():
            counts[name] = counts.get(name, 0) + count
        if number % TOLD_EVERY == 0:
            print(f"{number} seeds, {len(violations)} violations", flush=True)
    counts["acknowledged records"] = acked
    page = report(options, counts, violations, time.process_time() - begun)
    print(page)
    if options.report:
        options.report.write_text(page)
    return int(bool(violations))


def report(options, counts, violations, seconds):
    """Return the run as a page."""
    python = ".".join(map(str, sys.version_info[:3]))
    command = f"{options.seeds} --first {options.first}"
    happened = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    result = f"**{len(violations)} violations**" if violations else "0 violations"
    lines = [
        "# Simulation of the shared store",
        "",
        "Three brokers over one ledger and one object store in memory, a step at a time in an order"
        " that the seed decides; any call may fail, be late or be done without an answer, and any"
        " broker be killed or fenced; topics are deleted and made again. Publisher, takeover,"
        " shards, packer and sweeper are the"
        " product's. What must hold: docs/cluster.md; what a run without each rule does:"
        " `tests/storage/shared/test_simulation.py`.",
        "",
        "| | |",
        "| --- | --- |",
        f"| command | `python -m tests.storage.shared.campaign --seeds {command}` |",
        f"| seeds | {options.seeds:,} of {STEPS:,} steps |",
        f"| happened | {happened} |",
        f"| processor time | {seconds / 60:.0f} minutes of one process |",
        f"| on | {os.uname().sysname} {os.uname().machine}, CPython {python} |",
        f"| result | {result} |",
        "",
        *[f"* {violation}" for violation in violations],
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
