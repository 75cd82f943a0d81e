"""Compare the Parquet's records with the records that stock clients read, for each writer.

Each side is a sum of row hashes, so that no side has to be in memory. The hash is Python's own,
with 64 bits and a random key per process: its cost per row is a small part of a client's.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from conformance.exports.reading import Row, exported_rows, views
from conformance.exports.writing import write_all
from conformance.server import RunningBroker


@dataclass(slots=True)
class Sum:
    """Number of rows and the sum of their hashes, which does not depend on the order."""

    rows: int = 0
    total: int = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows to the sum."""
        count = total = 0
        for row in rows:
            total += hash(row)
            count += 1
        self.rows += count
        self.total += total


def compare(records: int, seed: int) -> list[str]:
    """Return a line per topic and client. Raises AssertionError if the two sides differ."""
    print("seed", seed, flush=True)
    lines = []
    with tempfile.TemporaryDirectory(prefix="braidlog-") as scratch, RunningBroker() as broker:
        began = time.monotonic()
        counts = write_all(broker, records, random.Random(seed))
        lake = Path(scratch) / "lake"
        command = [sys.executable, "-m", "braidlog.broker.cli.main", "export", *counts]
        command += ["--to", str(lake), "--data-dir", str(broker.data_dir)]
        lines.append(
            f"{sum(counts.values()):,} records written in {time.monotonic() - began:,.0f} s"
        )
        began = time.monotonic()
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        lines.append(f"one export of all topics in {time.monotonic() - began:,.0f} s")
        for topic, count in counts.items():
            for view in views(topic):
                print(f"reading {topic} by {view.client}: {count}", flush=True)
                began = time.monotonic()
                read, exported = Sum(), Sum()
                read.add(view.consumed(broker, topic, count))
                consumed_s = time.monotonic() - began
                exported.add(exported_rows(lake, topic, view))
                seconds = f"{consumed_s:,.0f} s and {time.monotonic() - began - consumed_s:,.0f} s"
                assert read.rows == count, f"{topic}: the client read {read.rows} of {count}"
                assert read == exported, f"{topic}: {read} was read, {exported} is in the files"
                lines.append(f"{topic}: {count:,} rows as {view.client} reads them ({seconds})")
    return lines
