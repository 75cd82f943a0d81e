"""`braidlog log`: show, check and repair a data directory. Needs no broker.

Data goes to standard output, everything else to standard error. Knows how to print the results of
storage.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from braidlog.broker.cli.confirming import Yes, confirm
from braidlog.broker.cli.failures import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_NOT_FOUND,
    EXIT_UNREADABLE,
    EXIT_USAGE,
    AdminError,
    Kinds,
    failing,
)
from braidlog.broker.cli.output import OutputOption
from braidlog.broker.cli.progress import progress

if TYPE_CHECKING:
    from braidlog.storage.tools.findings import Finding, VerifyReport
    from braidlog.storage.tools.repair_step import RepairPlan

log = App(name="log", help="Verify, dump and repair a data directory, without a broker.")

DataDirOption = Annotated[Path, Parameter(help="The broker's data directory.")]


@log.command
def verify(*, data_dir: DataDirOption, output: OutputOption = "table") -> int:
    """Check every byte of a data directory; exits with 1 if acknowledged data is wrong, with 3 if
    this user cannot read the directory.

    Beside a running broker, checks the data that the watermark slots report as on disk. Takes no
    lock and changes nothing.

    Example: braidlog log verify --data-dir ./data
    """
    from braidlog.storage.errors import StorageError
    from braidlog.storage.tools.verify import NoDataDir, Verifier

    findings: list[Finding] = []

    def tell(finding: Finding) -> None:
        if output == "json":
            findings.append(finding)
        else:
            print(finding_line(finding), flush=True)

    kinds = {EXIT_NOT_FOUND: NoDataDir, EXIT_UNREADABLE: StorageError}
    with failing(kinds), progress("verify") as advance:
        report = Verifier(data_dir, tell, advance).run()
    if output == "json":
        print(
            json.dumps(
                {**asdict(report), "findings": [asdict(finding) for finding in findings]}, indent=2
            )
        )
    elif output == "ndjson":
        print(json.dumps(asdict(report)))
    else:
        print(summary_line(report))
    return EXIT_FAILED if report.faults else EXIT_DONE


@log.command
def dump(
    place: Annotated[str, Parameter(name="TOPIC", help="TOPIC or TOPIC/PARTITION, see below.")],
    /,
    *,
    data_dir: DataDirOption,
    from_: Annotated[int, Parameter(name="--from", help="First offset wanted.")] = 0,
    count: Annotated[
        int | None, Parameter(help="At most so many batches, or records with --records.")
    ] = None,
    records: Annotated[bool, Parameter(help="The records, not the batches.", negative="")] = False,
    output: OutputOption = "table",
) -> None:
    """Print stored batches with their headers and places, or their records.

    A name with one or three parts is a topic, all partitions of it: orders, public/default/orders.
    With two or four parts the last is a partition: orders/0, public/default/orders/0. JSON is an
    array, NDJSON an object in each line. Beside a running broker the output ends at the watermark
    slot.

    Example: braidlog log dump public/default/orders/0 --data-dir ./data --from 100 --count 10
    """
    from braidlog.broker.cli.dump import Printer
    from braidlog.storage.errors import StorageError
    from braidlog.storage.log.files import FileGone
    from braidlog.storage.metadata.names import InvalidTopicName
    from braidlog.storage.tools.dump import NoSuchTopic, find_partitions

    if from_ < 0 or (count is not None and count < 0):
        raise AdminError("--from and --count are numbers from 0 on", EXIT_USAGE)
    kinds: dict[int, Kinds] = {
        EXIT_USAGE: InvalidTopicName,
        EXIT_NOT_FOUND: NoSuchTopic,
        EXIT_UNREADABLE: (StorageError, PermissionError),
    }
    with failing(kinds):
        try:
            parts = find_partitions(data_dir, place)
            printer = Printer(data_dir, records=records, output=output, left=count)
            for part in parts:
                printer.partition(part, from_)
            printer.end()
            sys.stdout.flush()
        except FileGone as error:
            text = f"the broker removed {error} meanwhile; try again"
            raise AdminError(text, EXIT_FAILED) from error


@log.command
def repair(
    place: Annotated[
        str | None, Parameter(name="TOPIC", help="Only TOPIC or TOPIC/PARTITION, as in dump.")
    ] = None,
    /,
    *,
    data_dir: DataDirOption,
    yes: Yes = False,
) -> int:
    """Repair damage: keep good records, report lost records, let the broker start and append again.

    No broker may run. Damaged data is kept in set-aside/; records keep their offsets, and lost
    records become a gap. Asks before changing anything; a killed repair can be run again.

    Example: braidlog log repair --data-dir ./data
    """
    from braidlog.storage.errors import StorageError
    from braidlog.storage.metadata.names import InvalidTopicName
    from braidlog.storage.tools.dump import NoSuchTopic
    from braidlog.storage.tools.repair import Repair
    from braidlog.storage.tools.verify import NoDataDir

    kinds: dict[int, Kinds] = {
        EXIT_USAGE: InvalidTopicName,
        EXIT_NOT_FOUND: (NoDataDir, NoSuchTopic),
        EXIT_FAILED: StorageError,
    }
    with failing(kinds), ExitStack() as at_end:
        with progress("look") as advance:
            repairing = Repair(data_dir, advance)
            at_end.callback(repairing.close)  # Releases the lock, also after an interrupt.
            plan = repairing.plan(place)
        return apply_plan(plan, yes=yes)


def apply_plan(plan: RepairPlan, *, yes: bool) -> int:
    """Show the plan, ask, and apply the plan; returns the exit code. Raises StorageError."""
    for text in plan.warnings:
        print(f"warning: {text}", file=sys.stderr)
    for text in plan.refusals:
        print(f"not repaired: {text}", file=sys.stderr)
    code = EXIT_FAILED if plan.refusals else EXIT_DONE
    if not plan.steps:
        print("there is nothing to repair" if code == EXIT_DONE else "nothing was changed")
        return code
    for step in plan.steps:
        print("\n".join(step.lines), flush=True)
    confirm("Do this?", yes=yes)
    for step in plan.steps:
        step.apply()
    print(f"{len(plan.steps)} repairs done; now `braidlog log verify` should find no fault")
    return code


def finding_line(finding: Finding) -> str:
    """Return a finding as text for people: severity, log, place, offsets and reason."""
    from braidlog.broker.cli.dump import offsets_text

    place = f"{finding.path} at byte {finding.file_pos}"
    if finding.offset is None:
        return f"{finding.level}: {finding.log}: {place}: {finding.reason}"
    offsets = offsets_text(finding.offset, finding.next_offset)
    return f"{finding.level}: {finding.log}: {place}, {offsets}: {finding.reason}"


def summary_line(report: VerifyReport) -> str:
    """Return the result of a verification as a line."""
    logs = report.logs
    records, size = sum(log.records for log in logs), sum(log.size_bytes for log in logs)
    text = f"{len(logs)} logs, {sum(log.batches for log in logs)} batches, {records} records, "
    text += f"{size} bytes: {report.faults} faults, {report.warnings} warnings"
    if unopened := sum(log.unopened for log in logs):
        text += f"; no codec here opens {unopened} bodies, whose checksums are right"
    if report.broker_pid:
        text += f"; process {report.broker_pid} runs a broker there, so each log was checked up to"
        text += " its watermark slot"
    return text
