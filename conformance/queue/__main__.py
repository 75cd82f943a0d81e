"""`python -m conformance.queue [--records N] [--kills N] [--report FILE]`: one queue.

Members of a Kafka share group (Java), Pulsar Shared consumers (C++ and Java) and HTTP consumers
read one subscription. Producers of Kafka, Pulsar (batched) and HTTP have filled the topic. Workers
are killed (SIGKILL), and every tenth kill is the broker's. `--python` replaces the workers in Java
by confluent-kafka's share members and Pulsar's Python client: for machines without Maven.

The judge demands: a value is held by one consumer at a time; none is received after its
acknowledgement was answered; in the end each value is acknowledged or, at the limit of deliveries,
in the dead letter topic; a member's delivery count is at least the number of deliveries that the
judge saw since the last start of the broker, and at most the limit.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from conformance.programs.running import NotBuilt
from conformance.queue import java_workers
from conformance.queue.judge import Judge
from conformance.queue.topic import backlog, dead_letters, prepare, produce
from conformance.queue.worker import GROUP
from conformance.server import RunningBroker

WORKERS: Final = (
    *("java-share", "java-share", "java-share"),
    *("pulsar", "pulsar", "java-pulsar"),
    *("http", "http"),
)
PYTHON_WORKERS: Final = tuple(kind.removeprefix("java-") for kind in WORKERS)
TOPIC: Final = "queue"
ADDRESSES: Final = {
    "share": ("kafka", ""),
    "pulsar": ("pulsar", "pulsar://"),
    "http": ("http", "http://"),
}
BROKER_KILLS: Final = 10  # Every so many kills are the broker's.
KILL_EVERY_S: Final = 0.7
QUIET_S: Final = 120.0  # Without any event, the run has failed.
SHOWN: Final = 20


@dataclass(slots=True)
class Worker:
    """A worker process."""

    kind: str
    process: subprocess.Popen[bytes]
    errors: IO[bytes]  # Standard error.


class QueueRun:
    """A broker with workers."""

    def __init__(self, broker: RunningBroker, topic: str, seed: int) -> None:
        self.broker = broker
        self.judge = Judge()
        self.workers: dict[int, Worker] = {}
        self.kills = 0
        self._topic = topic
        self._random = random.Random(seed)
        self._number = 0
        self._readers: list[threading.Thread] = []

    def _command(self, kind: str) -> list[str]:
        """Return the command of a worker. Raises NotBuilt."""
        protocol = kind.removeprefix("java-")
        listener, prefix = ADDRESSES[protocol]
        address = prefix + self.broker.addresses[listener]
        if kind != protocol:
            return java_workers.command(protocol, address, self._topic, GROUP)
        module = [sys.executable, "-m", "conformance.queue.worker"]
        return [*module, protocol, address, self._topic]

    def start(self, kind: str) -> None:
        """Start a worker."""
        self._number += 1
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `_end`)
        process = subprocess.Popen(self._command(kind), stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        self.workers[self._number] = Worker(kind, process, errors)
        if kind.endswith("pulsar"):
            self.judge.ahead.add(self._number)
        reader = threading.Thread(target=self.judge.read, args=(self._number, process.stdout))
        reader.start()
        self._readers.append(reader)

    def replace_ended(self) -> None:
        """Start a worker for each that has ended."""
        for number, worker in list(self.workers.items()):
            if worker.process.poll() is not None:
                self.judge.failed[number] = f"{worker.kind}: {self._end(number)}"
                self.start(worker.kind)

    def _end(self, number: int) -> str:
        """End a worker; return the last line of its standard error."""
        worker = self.workers.pop(number)
        worker.process.kill()
        worker.process.wait()
        self.judge.ends[number] = time.monotonic_ns()
        with worker.errors as errors:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()
        texts = [line for line in lines if not line.startswith("\t")]  # Java's calls begin so.
        return texts[-1] if texts else "without a text"

    def kill(self) -> None:
        """Kill a worker, or the broker."""
        self.kills += 1
        if self.kills % BROKER_KILLS == 0:
            self.judge.kills.append(time.monotonic_ns())
            self.broker.kill()
            self.broker.start()
            self.judge.starts.append(time.monotonic_ns())
            return
        number = self._random.choice(list(self.workers))
        kind = self.workers[number].kind
        # From here on others may get the records that the worker holds.
        self.judge.ends[number] = time.monotonic_ns()
        self._end_at(number)
        self.start(kind)

    def _end_at(self, number: int) -> None:
        at = self.judge.ends[number]
        self._end(number)
        self.judge.ends[number] = at

    def stop(self) -> None:
        """End all workers."""
        for number in list(self.workers):
            self._end(number)
        for reader in self._readers:
            reader.join()


def run(
    records: int, kills: int, seed: int, folder: Path, workers: Sequence[str] = WORKERS
) -> tuple[list[str], str]:
    """Run; return the faults and a line of figures. Raises NotBuilt."""
    if any(kind.startswith("java-") for kind in workers):
        java_workers.build()
    with RunningBroker(folder, listen={"iggy": "off"}) as broker:
        prepare(broker, TOPIC)
        values = produce(broker, TOPIC, records)
        going = QueueRun(broker, TOPIC, seed)
        begun = quiet_since = time.monotonic()
        try:
            for kind in workers:
                going.start(kind)
            seen, next_kill = 0, begun + KILL_EVERY_S
            while backlog(broker, TOPIC):
                time.sleep(0.1)
                going.replace_ended()
                events = len(going.judge.events)
                if events != seen:
                    seen, quiet_since = events, time.monotonic()
                if time.monotonic() > quiet_since + QUIET_S:
                    break
                if going.kills < kills and time.monotonic() >= next_kill:
                    going.kill()
                    next_kill = time.monotonic() + KILL_EVERY_S
        finally:
            going.stop()
        seconds = time.monotonic() - begun
        going.judge.dead = dead_letters(broker)
        faults = going.judge.verdict(values)
        faults[:SHOWN] = [
            f"{fault}: {going.judge.history(fault.partition(':')[0])}" for fault in faults[:SHOWN]
        ]
    received = sum(event[1] == "R" for event in going.judge.events)
    line = f"{records} records, {received} deliveries, {len(going.judge.dead)} dead letters"
    line += f", {going.kills} kills, {seconds:.0f} s, {' '.join(workers)}"
    for error, count in Counter(going.judge.failed.values()).most_common(SHOWN):
        line += f"\n{count} workers ended: {error[:200]}"
    return faults, line


def main() -> int:
    """Run, and print the faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", action="store_true", help="no worker in Java")
    parser.add_argument("--report", type=Path, help="a Markdown file to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="braidlog-") as folder:
        workers = PYTHON_WORKERS if options.python else WORKERS
        try:
            faults, line = run(options.records, options.kills, options.seed, Path(folder), workers)
        except NotBuilt as error:
            print(f"no workers in Java: {error}", file=sys.stderr)
            return 1
    text = "\n".join([line, f"{len(faults)} faults", *faults[:SHOWN]])
    print(text)
    if options.report:
        options.report.write_text(f"# One queue\n\n{text}\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
