"""`python -m conformance [--only WORD ...] [--address DOOR=HOST:PORT ...] [--json FILE]`: the
conformance run.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from conformance.runner import FAIL, PASS, SKIPPED, Outcome, find_cases, label, run_cases, to_json
from conformance.server import RunningBroker

COLOURS = {PASS: "green", FAIL: "red", SKIPPED: "yellow"}


def main() -> int:
    """Exit code 0 if nothing failed, 1 otherwise."""
    arguments = _parser().parse_args()
    modules = find_cases(arguments.only)
    if not modules:
        print(f"no case is named like {arguments.only}", file=sys.stderr)
        return 2
    if arguments.address:
        addresses = dict(item.split("=", 1) for item in arguments.address)
        outcomes = _show(run_cases(modules, addresses))
    else:
        with RunningBroker() as broker:
            outcomes = _show(run_cases(modules, broker.addresses))
    _matrix(outcomes)
    if arguments.json:
        arguments.json.write_text(to_json(outcomes))
    return int(any(outcome.result == FAIL for outcome in outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--address", action="append", default=[], metavar="DOOR=HOST:PORT")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def _show(outcomes: Iterator[Outcome]) -> list[Outcome]:
    done = []
    for outcome in outcomes:
        clients = " > ".join(outcome.clients)
        print(f"{outcome.result:8}{outcome.case} [{clients}] {outcome.seconds:.1f} s", flush=True)
        done.append(outcome)
    return done


def _matrix(outcomes: list[Outcome]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table("case", "clients", "result", "why")
    for outcome in outcomes:
        colour = COLOURS[outcome.result]
        clients = " > ".join(label(name) for name in outcome.clients)
        table.add_row(outcome.case, clients, f"[{colour}]{outcome.result}[/]", outcome.reason)
    console.print(table)
    counts = {word: sum(o.result == word for o in outcomes) for word in (PASS, FAIL, SKIPPED)}
    console.print(", ".join(f"{count} {word}" for word, count in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
