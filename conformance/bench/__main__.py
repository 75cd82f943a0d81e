"""`python -m conformance.bench [--quick] [--only NAME ...] [--json FILE] [--compare FILE]`.

Limits and workloads take turns in one run; every figure is the median over the rounds, its ratio is
the median of the ratios to the limit measured in the same round.
"""

import argparse
import json
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from conformance.bench.append_path import append_ratio
from conformance.bench.limits import measure_limits
from conformance.bench.process import resident_mb
from conformance.bench.workloads import WORKLOADS, Round, Sample, Workload
from conformance.server import RunningBroker


@dataclass(slots=True)
class Result:
    """One workload over all rounds."""

    name: str
    about: str
    value: float
    unit: str
    minimum: float
    maximum: float
    ratio: float
    ratio_of: str
    cpu_us_per_message: float | None
    rounds: int


def main() -> int:
    """Exit code 0 when every workload ran."""
    arguments = _parser().parse_args()
    rounds, seconds = (1, 0.5) if arguments.quick else (arguments.rounds, arguments.seconds)
    chosen = [w for w in WORKLOADS if not arguments.only or w.name in arguments.only]
    with RunningBroker() as broker:
        idle_mb = resident_mb(broker.pid)
        limits, samples, ratios = _measure(broker, chosen, rounds, seconds)
        loaded_mb = resident_mb(broker.pid)
        append = append_ratio(broker.data_dir.parent, rounds)
    results = [_summary(w, samples[w.name], ratios[w.name]) for w in chosen]
    report = {
        "limits": {name: statistics.median(values) for name, values in limits.items()},
        "append_over_pwritev": append,
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
) -> tuple[dict[str, list[float]], dict[str, list[Sample]], dict[str, list[float]]]:
    limits: dict[str, list[float]] = {}
    samples: dict[str, list[Sample]] = {w.name: [] for w in chosen}
    ratios: dict[str, list[float]] = {w.name: [] for w in chosen}
    round_ = Round(broker, seconds)
    for number in range(rounds):
        now = measure_limits(broker.data_dir.parent, min(1.0, seconds / 2))
        for name, value in now.items():
            limits.setdefault(name, []).append(value)
        for workload in chosen:
            print(f"round {number + 1} of {rounds}: {workload.name}", file=sys.stderr)
            sample = workload.run(round_)
            samples[workload.name].append(sample)
            ratios[workload.name].append(sample.value / (_limit(now, sample.of) * sample.factor))
    return limits, samples, ratios


def _limit(limits: dict[str, float], of: str) -> float:
    return 1000 / limits["S"] if of == "1000/S" else limits[of]


def _summary(workload: Workload, samples: list[Sample], ratios: list[float]) -> Result:
    values = [sample.value for sample in samples]
    cpu = [sample.cpu_us for sample in samples if sample.cpu_us is not None]
    first = samples[0]
    of = first.of if first.factor == 1 else f"{first.factor:.0f} x {first.of}"
    return Result(
        workload.name,
        workload.about,
        statistics.median(values),
        first.unit,
        min(values),
        max(values),
        statistics.median(ratios),
        of,
        statistics.median(cpu) if cpu else None,
        len(samples),
    )


def _show(report: dict[str, Any], earlier: dict[str, Any] | None) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print("limits: " + ", ".join(f"{k} {v:,.0f}" for k, v in report["limits"].items()))
    console.print(
        f"append path over bare pwritev: {report['append_over_pwritev']:.2f}; resident MB: "
        f"{report['resident_mb']['idle']:.0f} idle, {report['resident_mb']['after']:.0f} after"
    )
    before = {row["name"]: row for row in earlier["workloads"]} if earlier else {}
    table = Table("workload", "what", "median", "unit", "min", "max", "ratio", "of", "CPU us/msg")
    if earlier:
        table.add_column("ratio before")
    for row in report["workloads"]:
        cpu = row["cpu_us_per_message"]
        cells = [row["name"], row["about"], _number(row["value"]), row["unit"]]
        cells += [_number(row["minimum"]), _number(row["maximum"]), f"{row['ratio']:.2f}"]
        cells += [row["ratio_of"], "" if cpu is None else f"{cpu:.2f}"]
        if earlier:
            old = before.get(row["name"])
            cells.append(f"{old['ratio']:.2f}" if old else "")
        table.add_row(*cells)
    console.print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
