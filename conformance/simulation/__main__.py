"""`python -m conformance.simulation [--kind KIND] [--states N] [--seed S] [--resume FILE] [--report
FILE]`: many power losses, damages and failing calls.

With `--resume` the run continues from the file and updates the file; the run can be interrupted at
any time.
"""

import argparse
import os
import sys
from pathlib import Path

import structlog

from conformance.simulation.campaign import KINDS, CampaignProgress, run
from conformance.simulation.scratch import scratch

WHAT = {
    "power": "Simulated power losses: every prefix of the disk calls of random workloads, what no "
    "sync covered kept, lost, torn at 512 bytes or reordered by chance; recovered, compared, "
    "worked with, recovered again.",
    "flips": "Single bits turned over, anywhere in the files of data directories that random "
    "workloads left.",
    "truncations": "A log cut short at each byte of its last 64 KiB, after a clean stop and after "
    "a kill in turn.",
    "histories": "Writers, readers and groups of all protocols on one partition, over kills, power "
    "losses and full disks; the judge of histories (`conformance/history/checker.py`) over what "
    "they were told.",
    "failures": "Random workloads with one failing disk call (EIO, ENOSPC, EROFS, short writes, "
    "failed syncs and reads), at each call in turn.",
}


def main() -> int:
    """Return 1 when a promise was broken."""
    arguments = parser().parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    progress = CampaignProgress(arguments.kind, arguments.seed, arguments.seed)
    if arguments.resume and arguments.resume.exists():
        progress = CampaignProgress.load(str(arguments.resume))
    with scratch() as folder:
        for _ in run(progress, arguments.states, folder):
            if arguments.resume:
                progress.save(str(arguments.resume))
            print(f"{progress.states} states, {progress.failed} failed", flush=True)
    for failure in progress.failures:
        print(failure)
    if arguments.report:
        arguments.report.write_text(report(progress))
    return int(progress.failed > 0)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(
        prog="python -m conformance.simulation", description=__doc__
    )
    arguments.add_argument("--kind", choices=sorted(KINDS), default="power")
    arguments.add_argument("--states", type=int, default=2000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--resume", type=Path, metavar="FILE")
    arguments.add_argument("--report", type=Path, metavar="FILE")
    return arguments


def report(progress: CampaignProgress) -> str:
    """Return the run as a page."""
    seeds = f"{progress.first_seed} to {progress.next_seed - 1}"
    system = os.uname()
    python = ".".join(map(str, sys.version_info[:3]))
    lines = [
        f"# Simulation: {progress.kind}",
        "",
        WHAT[progress.kind],
        "",
        "| | |",
        "| --- | --- |",
        f"| command | `python -m conformance.simulation --kind {progress.kind}"
        f" --states {progress.states} --seed {progress.first_seed}` |",
        f"| states | {progress.states:,} |",
        f"| seeds | {seeds} |",
        f"| duration | {progress.seconds / 60:.0f} minutes of one process |",
        f"| on | {system.sysname} {system.machine}, CPython {python} |",
        f"| result | {verdict(progress)} |",
        "",
        *[f"* {failure}" for failure in progress.failures],
    ]
    return "\n".join(lines).rstrip() + "\n"


def verdict(progress: CampaignProgress) -> str:
    """Return the result in words."""
    if progress.failed:
        return f"**{progress.failed:,} states broke a promise**"
    return "every promise kept in every state"


if __name__ == "__main__":
    sys.exit(main())
