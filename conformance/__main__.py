"""`make conformance`: every case with every real client, as a matrix.

By default, the program starts a broker. With `--kafka HOST:PORT` and similar options, the cases run
against other servers, including real Kafka, Pulsar and Iggy servers. Cells that need a protocol
without an address are skipped. With `--cluster`, three brokers share a store and each protocol uses
another broker.
"""

import argparse
import datetime
import sys
import time
from importlib import metadata
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from conformance.clients import iggy_programs
from conformance.clients.driver_processes import Drivers
from conformance.cluster.matrix import ClusterUnavailable, is_for_several, three_brokers
from conformance.ending import end_on_signals
from conformance.report import MatrixRun, from_json, to_html, to_json, to_markdown
from conformance.runner import (
    FAIL,
    PASS,
    SKIPPED,
    CaseOutcome,
    cells,
    client_label,
    find_cases,
    run_one,
)
from conformance.server import RunningBroker

COLOURS = {PASS: "green", FAIL: "red", SKIPPED: "yellow"}
PROTOCOLS = {"kafka": "kafka", "pulsar": "pulsar", "iggy": "iggy", "rest": "http"}


def main() -> int:
    """Return 0 if nothing failed, 1 if a cell failed, 2 if no cell was chosen."""
    arguments = _parser().parse_args()
    if arguments.shown is not None:
        _write(from_json(arguments.shown.read_text()), arguments)
        return 0
    chosen = cells(find_cases(arguments.only), arguments.cell)
    if arguments.client:
        chosen = [case for case in chosen if set(case[1]) <= set(arguments.client)]
    if not chosen:
        print(f"no cell is named like {arguments.cell or arguments.only}", file=sys.stderr)
        return 2
    listed = {
        listener: address
        for option, listener in PROTOCOLS.items()
        if (address := getattr(arguments, option)) is not None
    }
    started = time.monotonic()
    if arguments.cluster:
        subject = f"Braidlog {metadata.version('braidlog')}, three brokers"
        chosen = [case for case in chosen if is_for_several(case[0])]
        try:
            with three_brokers() as addresses:
                outcomes = _run(chosen, addresses)
        except ClusterUnavailable as reason:
            print(f"--cluster: {reason}", file=sys.stderr)
            return 2
    elif listed:
        listeners = ", ".join(f"{listener} at {address}" for listener, address in listed.items())
        subject = arguments.subject or listeners
        outcomes = _run(chosen, listed)
    else:
        subject = f"Braidlog {metadata.version('braidlog')}"
        with RunningBroker(settings=iggy_programs.SETTINGS) as broker:
            outcomes = _run(chosen, broker.addresses)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    run = MatrixRun(today, subject, time.monotonic() - started, outcomes)
    _write(run, arguments)
    Console().print(f"{run.summary()} in {run.seconds:.0f} s")
    return int(run.count(FAIL) > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="cases like it")
    parser.add_argument("--cell", default="", metavar="CASE:CLIENTS", help="one cell")
    parser.add_argument(
        "--client", action="append", default=[], metavar="NAME", help="cells of these clients alone"
    )
    for option in PROTOCOLS:
        parser.add_argument(f"--{option}", metavar="HOST:PORT", help=f"a {option} server to ask")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="ask three brokers over PostgreSQL and SeaweedFS; not with frames made by hand",
    )
    parser.add_argument("--subject", metavar="NAME", help="what the report calls the broker asked")
    parser.add_argument(
        "--beside",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="JSON of other runs",
    )
    parser.add_argument(
        "--shown", type=Path, metavar="FILE", help="run nothing: show the run of that JSON"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the matrix as a page")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write docs/conformance.md")
    return parser


def _run(
    chosen: list[tuple[ModuleType, tuple[str, ...]]], addresses: dict[str, str]
) -> list[CaseOutcome]:
    """Run the cells in sequence; print a line per cell, and a bar on a terminal."""
    outcomes = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, transient=True, disable=not sys.stdout.isatty())
    with Drivers() as drivers, progress:
        task = progress.add_task("cells", total=len(chosen))
        for module, names in chosen:
            outcome = run_one(module, names, addresses, drivers)
            outcomes.append(outcome)
            progress.console.print(_line(outcome), highlight=False, soft_wrap=True)
            progress.advance(task)
    return outcomes


def _line(outcome: CaseOutcome) -> str:
    colour = COLOURS[outcome.result]
    clients = " > ".join(client_label(name) for name in outcome.clients)
    why = f"  {outcome.reason}" if outcome.reason else ""
    return (
        f"[{colour}]{outcome.result:8}[/]{outcome.case} ({clients}) {outcome.seconds:.1f} s"
        + why.replace("[", r"\[")
    )


def _write(run: MatrixRun, arguments: argparse.Namespace) -> None:
    beside = [from_json(path.read_text()) for path in arguments.beside]
    if arguments.json is not None:
        arguments.json.write_text(to_json(run))
    for path, write in ((arguments.html, to_html), (arguments.markdown, to_markdown)):
        if path is not None:
            path.write_text(write(run, beside))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
