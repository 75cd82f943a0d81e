"""`python -m conformance.bench.start_stop [--partitions N] [--turns N] [--report FILE]`: start and
stop times of a broker with very many partitions, each with a record.

Measured after a clean stop and after a SIGKILL in the middle of appends to all partitions. A broker
without topics is measured first.

Times are those of the process: from the process start until every listener accepts, and from
SIGTERM until the process ends. The processor time of a start stands beside them: other load changes
it less. The exit code is 1 if a median is above the goal for an idle machine.
"""

import argparse
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from conformance.bench.process import cpu_seconds, in_background
from conformance.ending import end_on_signals
from conformance.server import RunningBroker

# Per topic: a single request creates them, another request appends a record to each.
TOPIC_PARTITIONS = 10_000
WANTED_S = {"start after a stop": 3.0, "start after a kill": 3.0, "stop": 2.0}
PROCESSOR = "processor time of a start after a stop"
SETTLED_S = 1.0  # Wait between a start and the reading of the memory.
LOAD_S = 0.5  # Appends until the kill.
PATIENCE_S = 600.0


def main(arguments: Sequence[str]) -> int:
    """Run all measurements; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.bench.start_stop", description=__doc__
    )
    parser.add_argument("--partitions", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--report", type=Path, help="a Markdown file to write")
    options = parser.parse_args(arguments)
    text = empty()
    seen = measure(options.partitions, options.turns)
    text += row_text(options.partitions, seen)
    print(text)
    if options.report is not None:
        options.report.write_text(text)
    return int(any(statistics.median(seen[step]) > most for step, most in WANTED_S.items()))


def empty() -> str:
    """Return a line about a broker without topics: the start time and memory."""
    with RunningBroker() as broker:  # The first start creates the data directory.
        broker.stop()
        took_s = _timed(broker.start)
        time.sleep(SETTLED_S)
        used_s, taken_mb = cpu_seconds(broker.pid), broker.resident_bytes() / 1e6
    return (
        f"Without topics: a start takes {took_s:.2f} s, {used_s:.2f} s of the processor, and"
        f" {taken_mb:.0f} MB of memory.\n\n"
    )


def measure(partitions: int, turns: int) -> dict[str, list[float]]:
    """Return the seconds of each start and stop. Raises AssertionError if a record is lost."""
    seen: dict[str, list[float]] = {step: [] for step in (*WANTED_S, PROCESSOR)}
    with RunningBroker() as broker:
        topics = _make(broker, partitions)
        for _ in range(turns):
            seen["stop"].append(_timed(broker.stop))
            seen["start after a stop"].append(_timed(broker.start))
            seen[PROCESSOR].append(cpu_seconds(broker.pid))
            with in_background([lambda: _append_on(broker, topics)]):
                time.sleep(LOAD_S)
                broker.kill()
            seen["start after a kill"].append(_timed(broker.start))
            for topic, count in topics.items():
                stored = _ask(broker, "GET", f"/api/v1/topics/public/default/{topic}")
                held = [partition["high_watermark"] for partition in stored["partitions"]]
                assert len(held) == count and min(held) >= 1, f"{topic} has lost records"
    return seen


def wanted(step: str) -> str:
    """Return the goal on an idle machine, or "" without a goal."""
    return f"{WANTED_S[step]:.0f} s" if step in WANTED_S else ""


def row_text(partitions: int, seen: dict[str, list[float]]) -> str:
    """Return the table."""
    rows = [
        f"| {step} | {statistics.median(times):.2f} s | {min(times):.2f} to {max(times):.2f} s |"
        f" {wanted(step)} |"
        for step, times in seen.items()
    ]
    head = [f"{partitions} partitions, {len(seen['stop'])} turns.", ""]
    return "\n".join(
        [*head, "| | median | range | wanted |", "| --- | --- | --- | --- |", *rows, ""]
    )


def _make(broker: RunningBroker, partitions: int) -> dict[str, int]:
    """Create the topics, a record per partition; return each topic's number of partitions."""
    topics: dict[str, int] = {}
    while partitions > 0:
        name, count = f"wide-{len(topics)}", min(partitions, TOPIC_PARTITIONS)
        _ask(broker, "PUT", f"/api/v1/topics/public/default/{name}", {"partitions": count})
        topics[name] = count
        _append(broker, name, count)
        partitions -= count
    return topics


def _append(broker: RunningBroker, topic: str, count: int) -> None:
    messages = [{"value": "v", "partition": index} for index in range(count)]
    answer = _ask(broker, "POST", f"/topics/public/default/{topic}", {"messages": messages})
    assert all(result["error"] is None for result in answer["messageIds"]), "a record was refused"


def _append_on(broker: RunningBroker, topics: dict[str, int]) -> None:
    with suppress(OSError):  # The broker was killed.
        while True:
            for topic, count in topics.items():
                _append(broker, topic, count)


def _ask(broker: RunningBroker, method: str, path: str, body: object = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{broker.url}{path}", data, head, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        document: dict[str, Any] = json.load(answer)
        return document


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))
