"""`python -m conformance.bench.peers --load BIN --kafka NAME=HOST:PORT,PID --pulsar NAME=...`

Braidlog, synced and written, beside other brokers that run already, by load generators that know
nothing of any of them. Brokers take turns within a round; every figure is the median over the
rounds, with the broker's processor time for a message. BIN is a generator of Kafka requests that
takes `raw|sync -addr A -topic T -version V -seconds S [-mix] [-size N] [-conns N]` and prints one
line of JSON with `msg_per_s`, and `p50_ms` and `p999_ms` for `sync`.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from conformance.bench import mixed, pulsar_load
from conformance.bench.process import cpu_seconds
from conformance.server import RunningBroker

WARM_UP_S = 10.0  # Of each broker before anything counts: a JIT needs it.
LIBRDKAFKA_BYTES = 100
IN_FLIGHT = 1000
MIXED_BLOCKS = 20

Figures = dict[str, float]


@dataclass(slots=True)
class Server:
    """A broker that answers one protocol at an address."""

    name: str
    protocol: str
    address: str
    pid: int
    version: int  # of Kafka's Produce: 0 with message sets, 3 with record batches
    topics: Iterator[int] = field(default_factory=itertools.count)

    def topic(self) -> str:
        """A fresh name."""
        return f"peers-{os.getpid()}-{next(self.topics):04d}"

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address in parts."""
        host, _, port = self.address.rpartition(":")
        return host, int(port)


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work, done by one generator."""

    name: str
    protocol: str
    run: Callable[[Server, float], tuple[int, Figures]]  # messages, and what else it tells


def generator(binary: str, *arguments: str) -> Callable[[Server, float], tuple[int, Figures]]:
    """A run of BIN with these arguments."""

    def run(server: Server, seconds: float) -> tuple[int, Figures]:
        command = [binary, arguments[0], "-addr", server.address, "-topic", server.topic()]
        command += ["-version", str(server.version), "-seconds", str(seconds), *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        told = json.loads(done.stdout.splitlines()[-1])
        figures = {key: told[key] for key in ("p50_ms", "p999_ms") if key in told}
        return told["messages"], figures | {"rate": told["msg_per_s"]}

    return run


def librdkafka(server: Server, seconds: float) -> tuple[int, Figures]:
    """Messages of random bytes by confluent-kafka, with its defaults and acks of all."""
    settings: dict[str, str | int] = {"bootstrap.servers": server.address, "acks": "all"}
    if server.version == 0:
        settings |= {"api.version.request": "false", "broker.version.fallback": "0.8.2.1"}
    producer, topic = Producer(settings), server.topic()
    values = [os.urandom(LIBRDKAFKA_BYTES) for _ in range(1000)]
    started, sent = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        for value in values:
            try:
                producer.produce(topic, value)
            except BufferError:
                producer.poll(0.1)
                continue
            sent += 1
        producer.poll(0)
    assert producer.flush(60) == 0
    return sent, {"rate": sent / (time.perf_counter() - started)}


def pulsar_sends(server: Server, seconds: float) -> tuple[int, Figures]:
    """Unbatched SENDs that differ, from prepared frames."""
    blocks = mixed.pulsar_blocks(100, pulsar_load.BLOCK, MIXED_BLOCKS)
    started = time.perf_counter()
    sent = pulsar_load.blocks_in_flight(
        server.host_and_port, server.topic(), blocks, seconds, IN_FLIGHT
    )
    return sent, {"rate": sent / (time.perf_counter() - started)}


def rows(load: str | None) -> list[Row]:
    """What is measured; without a generator of Kafka requests, less."""
    found = [
        Row("librdkafka, 100 B", "kafka", librdkafka),
        Row("Pulsar unbatched, 100 B, 1,000 in flight", "pulsar", pulsar_sends),
    ]
    if load is not None:
        sync = ("sync", "-size", "100", "-conns")
        found += [
            Row("raw produce, 100 B, mixed", "kafka", generator(load, "raw", "-mix")),
            Row("raw produce, 100 B, equal (a limit)", "kafka", generator(load, "raw")),
            Row(
                "raw produce, 1 KB, mixed", "kafka", generator(load, "raw", "-mix", "-size", "1000")
            ),
            Row("1 synchronous producer", "kafka", generator(load, *sync, "1")),
            Row("100 synchronous producers", "kafka", generator(load, *sync, "100")),
        ]
    return found


def measure(server: Server, row: Row, seconds: float) -> Figures:
    """One run."""
    before = cpu_seconds(server.pid)
    messages, figures = row.run(server, seconds)
    return figures | {"cpu_us": (cpu_seconds(server.pid) - before) * 1e6 / max(messages, 1)}


def table(results: dict[tuple[str, str], list[Figures]]) -> str:
    """Markdown, a line for each row and broker."""
    lines = [
        "| work | broker | a second | CPU us | p50 ms | p99.9 ms |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (row, server), runs in results.items():
        cells = [row, server]
        for name, digits in (("rate", 0), ("cpu_us", 2), ("p50_ms", 2), ("p999_ms", 1)):
            values = [run[name] for run in runs if name in run]
            cells.append(f"{statistics.median(values):,.{digits}f}" if values else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def given(protocol: str, text: str) -> Server:
    """A broker as the command line names it: NAME=HOST:PORT,PID, with a version for Kafka's."""
    name, _, rest = text.partition("=")
    address, pid, *version = rest.split(",")
    return Server(name, protocol, address, int(pid), int(version[0]) if version else 0)


def own(mode: str, broker: RunningBroker) -> list[Server]:
    """Braidlog at each of its listeners that something else can be compared with."""
    name = f"Braidlog, {mode}"
    return [
        Server(name, protocol, broker.addresses[protocol], broker.pid, 0)
        for protocol in ("kafka", "pulsar")
    ]


def main() -> int:
    """Exit code 0 when everything ran."""
    parser = argparse.ArgumentParser(prog="python -m conformance.bench.peers", description=__doc__)
    parser.add_argument("--load", metavar="BIN")
    parser.add_argument("--kafka", action="append", default=[], metavar="NAME=HOST:PORT,PID[,3]")
    parser.add_argument("--pulsar", action="append", default=[], metavar="NAME=HOST:PORT,PID")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, metavar="SECONDS")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    results: dict[tuple[str, str], list[Figures]] = {}
    with ExitStack() as stack:
        servers = [given("kafka", one) for one in arguments.kafka]
        servers += [given("pulsar", one) for one in arguments.pulsar]
        for mode in ("synced", "written"):
            settings = [f"log.durability={mode}"]
            servers += own(mode, stack.enter_context(RunningBroker(settings=settings)))
        work = [
            (row, one)
            for row in rows(arguments.load)
            for one in servers
            if row.protocol == one.protocol
        ]
        warmed: set[str] = set()
        for number, (row, server) in itertools.product(range(arguments.rounds), work):
            if server.address not in warmed:
                warmed.add(server.address)
                measure(server, row, arguments.warm_up)
            print(f"round {number + 1}: {row.name}: {server.name}", file=sys.stderr)
            runs = results.setdefault((row.name, server.name), [])
            runs.append(measure(server, row, arguments.seconds))
    print(table(results))
    if arguments.json:
        named = [
            {"work": row, "broker": name, "runs": runs} for (row, name), runs in results.items()
        ]
        arguments.json.write_text(json.dumps(named, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
