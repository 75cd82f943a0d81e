"""`python -m conformance.soak`: a steady mixed load, with the log's size limited by retention, and
a sample of the broker's memory every ten seconds.

    python -m conformance.soak --minutes 120 --samples soak.tsv --report docs/reports/soak.md

The exit code is 1 if the median of the last ten minutes is more than 2 MB above that of minutes 10
to 20, if a client fails, or if the log is damaged afterwards.
"""

import argparse
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from conformance.clients.raw.kafka import KafkaWire
from conformance.ending import end_on_signals
from conformance.hostile.judge import check_log, open_files
from conformance.server import RunningBroker
from conformance.soak.loads import LOADS, SoakLoad, topics

MB = 1_000_000
SAMPLE_S = 10.0
RENEW_S = 30.0  # Lifetime of a client's connections.
GROWTH_BYTES_MAX = 2 * MB
WARM_MINUTES, WINDOW_MINUTES = 10, 10
# Segments of 256 KiB, four segments per topic: full within ten minutes.
SETTINGS = (
    "log.segment_bytes=256KiB",
    "log.retention_bytes=1MiB",
    "log.retention_check_ms=2000",
)


@dataclass(slots=True)
class SoakSample:
    """Measurements at a point in time."""

    minutes: float
    resident_bytes: int
    log_bytes: int
    sockets: int
    rounds: int


@dataclass
class SoakClients:
    """The clients of a soak, a thread each; a context manager."""

    broker: RunningBroker
    pace: float = 1.0  # factor on the loads' rates
    rounds: int = 0
    failures: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(load,), daemon=True) for load in LOADS
        ]

    def __enter__(self) -> "SoakClients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, load: SoakLoad) -> None:
        number, pause_s = 0, 1 / (load.rate * self.pace)
        try:
            while not self._over.is_set():
                with ExitStack() as held:
                    one_round = load.begin(self.broker, held)
                    renew_at = time.monotonic() + RENEW_S
                    while time.monotonic() < renew_at and not self._over.wait(pause_s):
                        one_round(number)
                        number += 1
                        self.rounds += 1
        except Exception as error:  # Raised later by the main thread's check.
            self.failures.append(error)


def soak(
    broker: RunningBroker,
    seconds: float,
    seen: Callable[[SoakSample], None],
    *,
    pace: float = 1.0,
    sample_s: float = SAMPLE_S,
) -> None:
    """Load the broker for `seconds`, and pass each sample to `seen`. Raises a client's error."""
    with KafkaWire(broker.address("kafka")) as wire:
        for topic in topics():
            wire.create(topic)
    begun = time.monotonic()
    with SoakClients(broker, pace) as clients:
        while (passed := time.monotonic() - begun) < seconds:
            if clients.failures:
                raise clients.failures[0]
            log_bytes = _size_of(broker.data_dir)
            resident, sockets = broker.resident_bytes(), open_files(broker)
            seen(SoakSample(passed / 60, resident, log_bytes, sockets, clients.rounds))
            time.sleep(sample_s)
    check_log(broker)


def main(arguments: list[str]) -> int:
    """Run the soak; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conformance.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--pace", type=float, default=1.0, help="of how often clients do anything")
    parser.add_argument("--samples", type=Path, help="a file of tab-separated values to write")
    parser.add_argument("--report", type=Path, help="a Markdown file to write")
    options = parser.parse_args(arguments)
    samples: list[SoakSample] = []

    def seen(sample: SoakSample) -> None:
        samples.append(sample)
        if options.samples is not None:
            with open(options.samples, "a") as file:
                file.write(_row(sample) + "\n")

    with RunningBroker(settings=SETTINGS) as broker:
        soak(broker, options.minutes * 60, seen, pace=options.pace)
    text, growth = result_text(samples)
    print(text)
    if options.report is not None:
        options.report.write_text(text)
    return 0 if growth <= GROWTH_BYTES_MAX else 1


def result_text(samples: list[SoakSample]) -> tuple[str, float]:
    """Return the result as Markdown, and the growth of memory in bytes."""
    end = samples[-1].minutes
    first = [
        sample
        for sample in samples
        if WARM_MINUTES <= sample.minutes < WARM_MINUTES + WINDOW_MINUTES
    ] or samples
    last = [sample for sample in samples if sample.minutes >= end - WINDOW_MINUTES]
    before, after = (
        statistics.median(sample.resident_bytes for sample in part) for part in (first, last)
    )
    lines = [
        "# A steady mixed load",
        "",
        f"{end:.0f} minutes, Python {platform.python_version()}, {platform.machine()}:"
        f" {samples[-1].rounds} rounds of {len(LOADS)} clients of all protocols, whose connections",
        "and some of whose topics came and went; retention held the size of the log.",
        "",
        "| | minutes 10 to 20 | last ten minutes |",
        "| --- | --- | --- |",
        f"| resident memory, median | {before / MB:.1f} MB | {after / MB:.1f} MB |",
        f"| files of the log | {_log_mb(first):.0f} MB | {_log_mb(last):.0f} MB |",
        "",
    ]
    return "\n".join(lines), after - before


def _log_mb(samples: list[SoakSample]) -> float:
    return statistics.median(sample.log_bytes for sample in samples) / MB


def _row(sample: SoakSample) -> str:
    counts = (sample.resident_bytes, sample.log_bytes, sample.sockets, sample.rounds)
    return "\t".join([f"{sample.minutes:.2f}", *map(str, counts)])


def _size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder, without those deleted meanwhile."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.stat(os.path.join(place, name)).st_size
    return size


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))
