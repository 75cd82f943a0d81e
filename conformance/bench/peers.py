"""`python -m conformance.bench.peers --load BIN --kafka NAME=HOST:PORT,PID --pulsar NAME=...`

Braidlog, synced and written, beside other brokers that run already, by independent load generators.
Brokers take turns within a round. Every figure is the median over the rounds, with the broker's
processor time per message. The goals of `peer_goals.py` are judged: a Kafka with "flushed" in its
NAME syncs before each acknowledgement; other brokers run as shipped. BIN is a generator of Kafka
requests with the arguments `raw|sync|fetch -addr A -topic T -version V -seconds S [-mix] [-size N]
[-conns N]`. BIN prints a line of JSON with `messages`, `msg_per_s`, and for `sync` `p50_ms` and
`p999_ms`. The classpaths of Kafka's and Pulsar's own performance tools add rows for these tools
(`peer_tools.py`). `--only` selects the rows whose names contain a given part.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from conformance.bench import mixed, pulsar_load
from conformance.bench import peer_goals as goals
from conformance.bench.latency import publish_to_receive
from conformance.bench.limits import syncs_per_second
from conformance.bench.many import one_in_flight
from conformance.bench.peer_rows import SAID_MAX, Figures, PeerRow, PeerServer, RowFailed, Run
from conformance.bench.peer_tools import tool_rows
from conformance.bench.process import cpu_seconds
from conformance.clients.raw.pulsar import PulsarWire
from conformance.server import RunningBroker

WARM_UP_S = 10.0  # Per broker, not measured: a JIT compiler needs this time.
LIBRDKAFKA_BYTES = 100
IN_FLIGHT = 1000
MIXED_BLOCKS = 20
RECEIVE_RATE = 1000
# Fill time of the fetched data: a fetch run must not reach the end, where fetches wait.
FILL_S, FETCH_S = "3", "0.4"

OWN = "Braidlog, "  # before the mode


def generator(binary: str, *arguments: str) -> Run:
    """Return a run of BIN with these arguments."""

    def run(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
        command = [binary, arguments[0], "-addr", server.address, "-topic", topic]
        command += ["-version", str(server.version), "-seconds", str(seconds), *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RowFailed(f"{binary} ended with {done.returncode}: {done.stderr[-SAID_MAX:]}")
        report = json.loads(done.stdout.splitlines()[-1])
        figures = {key: report[key] for key in ("p50_ms", "p999_ms") if key in report}
        return report["messages"], figures | {"rate": report["msg_per_s"]}

    return run


def fetches(name: str, binary: str, size: int) -> PeerRow:
    """Return a row that reads prepared records from the beginning."""
    fill = generator(binary, "raw", "-mix", "-size", str(size), "-seconds", FILL_S)

    def prepare(server: PeerServer, topic: str, _seconds: float) -> None:
        fill(server, topic, 0)

    return PeerRow(name, "kafka", generator(binary, "fetch", "-seconds", FETCH_S), prepare)


def librdkafka(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
    """Produce messages of random bytes with confluent-kafka, with its defaults and acks=all."""
    settings: dict[str, str | int] = {"bootstrap.servers": server.address, "acks": "all"}
    if server.version == 0:
        settings |= {"api.version.request": "false", "broker.version.fallback": "0.8.2.1"}
    producer = Producer(settings)
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


def pulsar_sends(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
    """Send prepared unbatched SENDs that differ."""
    blocks = mixed.pulsar_blocks(100, pulsar_load.BLOCK, MIXED_BLOCKS)
    started = time.perf_counter()
    sent = pulsar_load.blocks_in_flight(server.host_and_port, topic, blocks, seconds, IN_FLIGHT)
    return sent, {"rate": sent / (time.perf_counter() - started)}


def pulsar_synchronous(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
    """Send with a hundred producers on a topic, each with a single message in flight."""
    frame = pulsar_load.send_frame(0, os.urandom(100))
    with ExitStack() as stack:
        wires = [stack.enter_context(PulsarWire(server.host_and_port)) for _ in range(100)]
        for wire in wires:
            wire.open_producer(topic)
        sent = one_in_flight({wire.socket: frame for wire in wires}, seconds)
    return sent, {"rate": sent / seconds}


def receives(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
    """Measure from the scheduled time of a send to the receipt, at a modest rate."""
    delays_s = sorted(publish_to_receive(server.host_and_port, topic, RECEIVE_RATE, seconds))
    count = len(delays_s)
    times = {"p50_ms": delays_s[count // 2] * 1000, "p999_ms": delays_s[count * 999 // 1000] * 1000}
    return count, times | {"rate": RECEIVE_RATE}


def rows(load: str | None) -> list[PeerRow]:
    """Return the rows of this run; fewer without a generator of Kafka requests."""
    all_rows = [
        PeerRow(goals.LIBRDKAFKA, "kafka", librdkafka),
        PeerRow(goals.PULSAR_SENDS, "pulsar", pulsar_sends),
        PeerRow(goals.PULSAR_SYNC_100, "pulsar", pulsar_synchronous),
        PeerRow(goals.RECEIVE, "pulsar", receives),
    ]
    if load is not None:
        sync = ("sync", "-size", "100", "-conns")
        mixed_1k = generator(load, "raw", "-mix", "-size", "1000")
        all_rows += [
            PeerRow(goals.MIXED, "kafka", generator(load, "raw", "-mix")),
            PeerRow(goals.EQUAL, "kafka", generator(load, "raw")),
            PeerRow(goals.MIXED_1K, "kafka", mixed_1k),
            fetches(goals.FETCH, load, 100),
            fetches(goals.FETCH_1K, load, 1000),
            PeerRow(goals.SYNC_1, "kafka", generator(load, *sync, "1")),
            PeerRow(goals.SYNC_100, "kafka", generator(load, *sync, "100")),
        ]
    return all_rows


def measure(server: PeerServer, row: PeerRow, seconds: float) -> Figures:
    """Run a row on an idle disk. Otherwise a broker pays for the writes of the broker before: the
    kernel may still flush a gigabyte.
    """
    topic = server.topic()
    if server.protocol == "pulsar":
        with PulsarWire(server.host_and_port) as wire:
            wire.look_up(topic)
    if row.prepare is not None:
        row.prepare(server, topic, seconds)
    os.sync()
    before = cpu_seconds(server.pid)
    messages, figures = row.run(server, topic, seconds)
    return figures | {"cpu_us": (cpu_seconds(server.pid) - before) * 1e6 / max(messages, 1)}


def tried(server: PeerServer, row: PeerRow, seconds: float) -> Figures | None:
    """Return the figures of `measure`; print the reason and return None if the
    generator gave up.
    """
    try:
        return measure(server, row, seconds)
    except RowFailed as error:
        print(f"failed: {error}", file=sys.stderr)
        return None


def medians(runs: list[Figures]) -> Figures:
    """Return the medians of every figure that all runs have."""
    names = set(runs[0]).intersection(*runs)
    return {name: statistics.median(run[name] for run in runs) for name in names}


def table(results: dict[tuple[str, str], list[Figures]]) -> str:
    """Return a Markdown table with a line per row and broker."""
    lines = [
        "| work | broker | a second | CPU us | p50 ms | p99.9 ms |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (row, server), runs in results.items():
        cells, figures = [row, server], medians(runs)
        for name, digits in (("rate", 0), ("cpu_us", 2), ("p50_ms", 2), ("p999_ms", 1)):
            cells.append(f"{figures[name]:,.{digits}f}" if name in figures else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_server(protocol: str, text: str) -> PeerServer:
    """Parse a broker of the command line: NAME=HOST:PORT,PID, with a version for Kafka."""
    name, _, rest = text.partition("=")
    address, pid, *version = rest.split(",")
    return PeerServer(name, protocol, address, int(pid), int(version[0]) if version else 0)


def own(mode: str, broker: RunningBroker) -> list[PeerServer]:
    """Return Braidlog at each listener that has a broker to compare with."""
    name = OWN + mode
    return [
        PeerServer(name, protocol, broker.addresses[protocol], broker.pid, 0)
        for protocol in ("kafka", "pulsar")
    ]


def role(server: PeerServer) -> str:
    """Return the broker's role in the goals, or its name if no goal uses the broker."""
    if server.name.startswith(OWN):
        return server.name.removeprefix(OWN)
    if server.protocol != "kafka":
        return server.protocol
    if server.version == 0:
        return server.name
    return goals.FLUSHED if "flushed" in server.name else goals.KAFKA


def main() -> int:
    """Return 0 when every row ran, even if goals were missed; 1 when a generator failed."""
    parser = argparse.ArgumentParser(prog="python -m conformance.bench.peers", description=__doc__)
    parser.add_argument("--load", metavar="BIN")
    parser.add_argument("--kafka", action="append", default=[], metavar="NAME=HOST:PORT,PID[,3]")
    parser.add_argument("--pulsar", action="append", default=[], metavar="NAME=HOST:PORT,PID")
    parser.add_argument("--kafka-tools", metavar="CLASSPATH")
    parser.add_argument("--old-kafka-tools", metavar="CLASSPATH")
    parser.add_argument("--pulsar-tools", metavar="CLASSPATH")
    parser.add_argument("--only", nargs="*", default=[""], metavar="PART", help="of a row's name")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, metavar="SECONDS")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    results: dict[tuple[str, str], list[Figures]] = {}
    failed = False
    with ExitStack() as stack:
        servers = [parse_server("kafka", address) for address in arguments.kafka]
        servers += [parse_server("pulsar", address) for address in arguments.pulsar]
        for mode in ("synced", "written"):
            settings = [f"log.durability={mode}"]
            servers += own(mode, stack.enter_context(RunningBroker(settings=settings)))
        wanted = rows(arguments.load)
        tools = (arguments.kafka_tools, arguments.old_kafka_tools, arguments.pulsar_tools)
        wanted += tool_rows(*tools)
        work = [
            (row, server)
            for row in wanted
            for server in servers
            if row.is_for(server) and any(part in row.name for part in arguments.only)
        ]
        warmed: set[str] = set()
        roles = {server.name: role(server) for server in servers}
        for number in range(1, arguments.rounds + 1):
            disk = {"rate": syncs_per_second(Path(tempfile.gettempdir()), 1.0)}
            results.setdefault((goals.DISK, goals.MACHINE), []).append(disk)
            for row, server in work:
                print(f"round {number}: {row.name}: {server.name}", file=sys.stderr)
                if server.address not in warmed:
                    warmed.add(server.address)
                    tried(server, row, arguments.warm_up)
                figures = tried(server, row, arguments.seconds)
                failed |= figures is None
                if figures is not None:
                    results.setdefault((row.name, server.name), []).append(figures)
    print(table(results))
    medians_of = {
        (row, roles.get(name, name)): medians(runs) for (row, name), runs in results.items()
    }
    print("\n".join(goals.verdicts(medians_of)))
    if arguments.json:
        named = [
            {"work": row, "broker": name, "runs": runs} for (row, name), runs in results.items()
        ]
        arguments.json.write_text(json.dumps(named, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
