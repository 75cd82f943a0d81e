"""Common parts of the commands that run programs of Kafka's clients: options, and the broker."""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from conformance.server import RunningBroker
from conformance.today.programs import Program

Row = TypeVar("Row")


def run_programs(
    doc: str | None,
    programs: Sequence[Program],
    rows_of: Callable[[list[Program], str], Iterator[Row]],
    settings: Sequence[str] = (),
) -> tuple[list[Row], Path | None]:
    """Run the chosen programs; return their rows, and the path of the report.

    The broker is the command line's, or a new broker with these settings.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--only", action="append", help="a client's name, with or without version")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a broker that is there already")
    parser.add_argument("--report", type=Path, help="a Markdown file to write")
    options = parser.parse_args()
    chosen = [
        program
        for program in programs
        if not options.only
        or {program.name, f"{program.name}-{program.version}"} & set(options.only)
    ]
    if options.kafka:
        return list(rows_of(chosen, options.kafka)), options.report
    listen = {"kafka": "127.0.0.1:0"}
    with (
        tempfile.TemporaryDirectory() as folder,
        RunningBroker(Path(folder), listen=listen, others=False, settings=settings) as running,
    ):
        rows = list(rows_of(chosen, running.addresses["kafka"]))
        running.stop()
        running.verify()
    return rows, options.report
