"""`python -m conformance.bench [--quick] [--only NAME ...] [--json FILE] [--compare FILE]`.

Limits and workloads take turns in the same run. Every figure is the median over the rounds. Its
ratio is the median of the ratios to the limit measured in the same round.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from conformance.bench.append_path import append_ratios
from conformance.bench.goals import is_met
from conformance.bench.limits import measure_limits
from conformance.bench.sample import BenchRound, BenchSample, Workload
from conformance.bench.starting import start_times
from conformance.bench.workloads import WORKLOADS
from conformance.ending import end_on_signals
from conformance.server import RunningBroker

# Log size for the start times: the size of DESIGN's promise, or a small part for a quick run.
LOG_BYTES, LOG_BYTES_QUICK = 1 << 30, 1 << 24

# From this share of a core on, the load generator limits the rate, not the broker.
CLIENT_LIMITED_CORES = 0.9
MET = {True: "yes", False: "NO", None: ""}


@dataclass(slots=True)
class WorkloadResult:
    """A workload over all rounds."""

    name: str
    about: str
    value: float
    unit: str
    minimum: float
    maximum: float
    ratio: float | None
    ratio_of: str
    goal: str
    is_met: bool | None
    cpu_us_per_message: float | None
    cpu_ratio: float | None  # processor time of the compared way, over this workload's
    broker_cores: float
    client_cores: float
    rounds: int


def main() -> int:
    """Return 0 when every workload ran."""
    arguments = _parser().parse_args()
    rounds, seconds = (1, 0.5) if arguments.quick else (arguments.rounds, arguments.seconds)
    chosen = [w for w in WORKLOADS if not arguments.only or w.name in arguments.only]
    started = time.perf_counter()
    with RunningBroker() as broker:
        ready_s = time.perf_counter() - started
        idle_mb = broker.resident_bytes() / 1e6
        limits, samples = _measure(broker, chosen, rounds, seconds)
        loaded_mb = broker.resident_bytes() / 1e6
        append = append_ratios(broker.folder)
    starts = {"empty": ready_s}
    if not arguments.only:
        log_bytes = LOG_BYTES_QUICK if arguments.quick else LOG_BYTES
        with tempfile.TemporaryDirectory(prefix="braidlog-") as folder:
            starts |= start_times(Path(folder), log_bytes)
    results = [_summary(w, samples[w.name], limits) for w in chosen]
    report = {
        "limits": {name: statistics.median(values) for name, values in limits.items()},
        "append_over_pwritev": {str(size): ratio for size, ratio in append.items()},
        "start_s": starts,
        "resident_mb": {"idle": idle_mb, "after": loaded_mb},
        "workloads": [asdict(result) for result in results],
    }
    earlier = json.loads(arguments.compare.read_text()) if arguments.compare else None
    _show(report, earlier)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m conformance.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round: does it run at all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one workload in one round")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier --json file")
    return parser


def _measure(
    broker: RunningBroker, chosen: list[Workload], rounds: int, seconds: float
) -> tuple[dict[str, list[float]], dict[str, list[BenchSample]]]:
    limits: dict[str, list[float]] = {}
    samples: dict[str, list[BenchSample]] = {w.name: [] for w in chosen}
    round_ = BenchRound(broker, seconds)
    for number in range(rounds):
        now = round_.limits = measure_limits(broker.data_dir.parent, min(1.0, seconds / 2))
        for name, value in now.items():
            limits.setdefault(name, []).append(value)
        for workload in chosen:
            print(f"round {number + 1} of {rounds}: {workload.name}", file=sys.stderr)
            samples[workload.name].append(workload.run(round_))
    return limits, samples


def _ratios(samples: list[BenchSample], limits: dict[str, list[float]]) -> list[float]:
    """Return each round's ratio to the limit measured in the same round."""
    of, factor = samples[0].of, samples[0].factor
    if not of:
        return []
    limit_values = [1000 / rate for rate in limits["S"]] if of == "1000/S" else limits[of]
    return [
        sample.value / (limit * factor) for sample, limit in zip(samples, limit_values, strict=True)
    ]


def _cpu_ratios(samples: list[BenchSample], limits: dict[str, list[float]]) -> list[float]:
    of = samples[0].cpu_of
    pairs = zip(samples, limits[of], strict=True) if of else ()
    return [limit / sample.cpu_us for sample, limit in pairs if sample.cpu_us]


def _summary(
    workload: Workload, samples: list[BenchSample], limits: dict[str, list[float]]
) -> WorkloadResult:
    values = [sample.value for sample in samples]
    cpu = [sample.cpu_us for sample in samples if sample.cpu_us is not None]
    first = samples[0]
    value, ratio = statistics.median(values), _median(_ratios(samples, limits))
    return WorkloadResult(
        workload.name,
        workload.about,
        value,
        first.unit,
        min(values),
        max(values),
        ratio,
        first.of if first.factor == 1 else f"{first.factor:.0f} x {first.of}",
        workload.goal,
        is_met(workload.goal, value, ratio, _median(cpu)),
        _median(cpu),
        _median(_cpu_ratios(samples, limits)),
        statistics.median(sample.broker_cores for sample in samples),
        statistics.median(sample.client_cores for sample in samples),
        len(samples),
    )


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _show(report: dict[str, Any], earlier: dict[str, Any] | None) -> None:
    console = Console(width=None if sys.stdout.isatty() else 210)
    console.print("limits: " + ", ".join(f"{k} {v:,.0f}" for k, v in report["limits"].items()))
    append = [f"{v:.2f} for {k} B" for k, v in report["append_over_pwritev"].items()]
    memory, starts = report["resident_mb"], report["start_s"]
    console.print(
        f"append path over bare pwritev: {', '.join(append)}"
        f"; resident MB: {memory['idle']:.0f} idle, {memory['after']:.0f} after"
    )
    console.print("start: " + ", ".join(f"{name} {value:,.2f}" for name, value in starts.items()))
    before = {row["name"]: row for row in earlier["workloads"]} if earlier else {}
    table = Table("workload", "what", "median", "unit", "min", "max", "ratio", "of", "goal")
    for title in ("met", "CPU us/msg", "CPU ratio", "broker cores", "client cores"):
        table.add_column(title)
    if earlier:
        table.add_column("ratio before")
        table.add_column("CPU before")
    for row in report["workloads"]:
        table.add_row(*_cells(row, before.get(row["name"]) if earlier else None))
    console.print(table)
    console.print("* the load generator was the limit")


def _cells(row: dict[str, Any], old: dict[str, Any] | None) -> list[str]:
    limited = "*" if row["client_cores"] >= CLIENT_LIMITED_CORES else ""
    cells = [row["name"], row["about"], _number(row["value"]) + limited, row["unit"]]
    cells += [_number(row["minimum"]), _number(row["maximum"]), _number(row["ratio"])]
    cells += [row["ratio_of"], row["goal"], MET[row["is_met"]]]
    cells += [_number(row["cpu_us_per_message"]), _number(row["cpu_ratio"])]
    cells += [_number(row["broker_cores"]), _number(row["client_cores"])]
    if old is not None:
        cells += [_number(old["ratio"]), _number(old["cpu_us_per_message"])]
    return cells


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
