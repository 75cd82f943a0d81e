"""`python -m conformance.exports`: check that each record is in the Parquet once and unchanged.

    python -m conformance.exports --kills 10 --live 500 --records 10000000 --report FILE

The exit code is 1 at the first difference. With a report, each part is in the file as soon as the
part has ended.
"""

import argparse
import platform
import sys
import time
from pathlib import Path

from conformance.exports.comparing import compare
from conformance.exports.folder import FolderCounts
from conformance.exports.killing import killed_runs
from conformance.exports.living import live_runs


def main(arguments: list[str]) -> int:
    """Run the chosen parts; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conformance.exports", description=__doc__)
    parser.add_argument("--kills", type=int, default=0, help="SIGKILLs of all Spark processes")
    parser.add_argument("--live", type=int, default=0, help="runs beside a live writer, no JVM")
    parser.add_argument("--records", type=int, default=0, help="to compare with stock clients")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, help="a Markdown file to write")
    options = parser.parse_args(arguments)
    report = ExportReport(options.report)
    if options.live:
        began = time.monotonic()
        shown = live_runs(options.live)
        report.say(f"{options.live} runs of the job beside a live writer", shown, began)
    if options.kills:
        began = time.monotonic()
        shown = killed_runs(options.kills, options.seed)
        report.say(f"{options.kills} SIGKILLs of all of Spark's processes", shown, began)
    if options.records:
        began = time.monotonic()
        report.compared(compare(options.records, options.seed), began)
    return 0


class ExportReport:
    """Prints the findings, and stores them in a file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines = [
            "# The export, proven",
            "",
            f"`python -m conformance.exports`, Python {platform.python_version()}.",
            "",
        ]

    def say(self, step: str, shown: FolderCounts, began: float) -> None:
        """Report that a reader of the folder sees each record once."""
        self._add(
            f"* {step}: {shown.rows:,} rows in {shown.files:,} files, every offset once, none "
            f"missing, every file readable ({time.monotonic() - began:,.0f} s)."
        )

    def compared(self, lines: list[str], began: float) -> None:
        """Report equality with the rows of stock clients."""
        for line in lines:
            self._add(f"* {line}")
        self._add(f"* Written, read and exported in {time.monotonic() - began:,.0f} s.")

    def _add(self, line: str) -> None:
        print(line, flush=True)
        self._lines.append(line)
        if self._path is not None:
            self._path.write_text("\n".join(self._lines) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
