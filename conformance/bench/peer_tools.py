"""Rows of `conformance.bench.peers` by the performance tools that Kafka and Pulsar ship.

The tools are Java programs that know nothing of Braidlog. They measure rates and times, without
their own start.
"""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from conformance.bench.peer_rows import SAID_MAX, Figures, PeerRow, PeerServer, RowFailed, Run

RECORD_BYTES = 100
# Records per second for each tool: tools end after a number of records, not after a time.
RATE, PULSAR_RATE, OLD_RATE = 500_000, 100_000, 300_000
TOOL_S_MAX = 240.0
FETCH_BYTES = 1 << 20

SENT = re.compile(
    r"\d+ records sent, ([\d.]+) records/sec .*? ([\d.]+) ms 50th, .* ([\d.]+) ms 99.9th"
)
# Columns of a line: times, megabytes, messages; the last column is the rate while fetching.
CONSUMED = re.compile(r"^\d[^,]*, [^,]+, [\d.]+, [\d.]+, (\d+), .*, ([\d.]+)$", re.M)
OLD_CONSUMED = re.compile(r"^\d[^,]*, [^,]+, \d+, [\d.]+, [\d.]+, (\d+), ([\d.]+)$", re.M)
PULSAR_TOTAL = re.compile(r"Aggregated throughput stats --- (\d+) records \w+ --- ([\d.]+) msg/s")
PULSAR_TIMES = re.compile(r"Aggregated latency stats --- .*? med: +([\d.]+) .*? 99.9pct: +([\d.]+)")


def _java(classpath: str, *words: str) -> str:
    """Run a Java program; return the output. Raises RowFailed."""
    command = ["java", "-Xms256m", "-Xmx512m", "-cp", classpath, *words]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TOOL_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise RowFailed(f"{words[0]} did not end in {TOOL_S_MAX:.0f} s") from expired
    if done.returncode:
        raise RowFailed(f"{words[0]} ended with {done.returncode}: {done.stdout[-SAID_MAX:]}")
    return done.stdout


def _last_groups(pattern: re.Pattern[str], text: str) -> Sequence[str]:
    """Return the groups of the last match. Raises RowFailed."""
    matches = list(pattern.finditer(text))
    if not matches:
        raise RowFailed(f"a tool printed nothing like {pattern.pattern}: {text[-SAID_MAX:]}")
    return matches[-1].groups()


def _sent(text: str) -> Figures:
    rate, median, tail = map(float, _last_groups(SENT, text))
    return {"rate": rate, "p50_ms": median, "p999_ms": tail}


def kafka_producer(classpath: str) -> Run:
    """Today's kafka-producer-perf-test: records of random letters, with the client's defaults."""

    def run(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
        words = ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic]
        count = round(RATE * seconds)
        words += ["--num-records", str(count), "--record-size", str(RECORD_BYTES)]
        words += ["--throughput", "-1", "--command-property", f"bootstrap.servers={server.address}"]
        return count, _sent(_java(classpath, *words))

    return run


def kafka_consumer(classpath: str) -> Run:
    """Today's kafka-consumer-perf-test: a single consumer of a group, from the beginning."""

    def run(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
        words = ["org.apache.kafka.tools.ConsumerPerformance", "--topic", topic]
        words += ["--num-records", str(round(RATE * seconds))]
        words += ["--bootstrap-server", server.address]
        count, rate = _last_groups(CONSUMED, _java(classpath, *words))
        return int(count), {"rate": float(rate)}

    return run


def old_producer(classpath: str) -> Run:
    """ProducerPerformance of Kafka 0.8.2: equal records by Kafka's Java client."""

    def run(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
        count = round(OLD_RATE * seconds)
        words = ["org.apache.kafka.clients.tools.ProducerPerformance", topic, str(count)]
        words += [str(RECORD_BYTES), "-1", f"bootstrap.servers={server.address}", "acks=1"]
        return count, _sent(_java(classpath, *words))

    return run


def old_consumer(classpath: str) -> Run:
    """SimpleConsumerPerformance of Kafka 0.8.2: fetches of a megabyte in sequence."""

    def run(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
        words = ["kafka.tools.SimpleConsumerPerformance", "--topic", topic, "--partition", "0"]
        words += ["--server", f"kafka://{server.address}", "--fetch-size", str(FETCH_BYTES)]
        count, rate = _last_groups(OLD_CONSUMED, _java(classpath, *words))
        return int(count), {"rate": float(rate)}

    return run


def _pulsar_perf(classpath: str, *words: str) -> tuple[int, Figures]:
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "client.conf")
        settings.touch()
        tool = ("org.apache.pulsar.testclient.PulsarPerfTestTool", str(settings))
        text = _java(classpath, *tool, *words)
    count, rate = _last_groups(PULSAR_TOTAL, text)
    median, tail = map(float, _last_groups(PULSAR_TIMES, text))
    return int(count), {"rate": float(rate), "p50_ms": median, "p999_ms": tail}


def pulsar_producer(classpath: str) -> Run:
    """`pulsar-perf produce` without a rate limit: equal messages, in batches as by default."""

    def run(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
        words = ["-u", f"pulsar://{server.address}", "-r", "10000000", "-s", str(RECORD_BYTES)]
        count = str(round(PULSAR_RATE * seconds))
        return _pulsar_perf(classpath, "produce", *words, "-m", count, topic)

    return run


def pulsar_consumer(classpath: str) -> Run:
    """`pulsar-perf consume` from the beginning."""

    def run(server: PeerServer, topic: str, seconds: float) -> tuple[int, Figures]:
        words = ["-u", f"pulsar://{server.address}", "-sp", "Earliest"]
        words += ["-m", str(round(PULSAR_RATE * seconds)), topic]
        count, figures = _pulsar_perf(classpath, "consume", *words)
        # The tool's times count from the sending of the messages.
        return count, {"rate": figures["rate"]}

    return run


def _reads(name: str, protocol: str, write: Run, read: Run, **more: frozenset[int]) -> PeerRow:
    """Return a row that reads the records of a write tool."""

    def prepare(server: PeerServer, topic: str, seconds: float) -> None:
        write(server, topic, seconds)

    return PeerRow(name, protocol, read, prepare, **more)


def tool_rows(kafka: str | None, old_kafka: str | None, pulsar: str | None) -> list[PeerRow]:
    """Return the rows of the tools whose classpath is given."""
    rows = []
    if kafka is not None:
        write = kafka_producer(kafka)
        rows.append(PeerRow("kafka-producer-perf-test, 100 B", "kafka", write))
        rows.append(
            _reads("kafka-consumer-perf-test, 100 B", "kafka", write, kafka_consumer(kafka))
        )
    if old_kafka is not None:
        write, old = old_producer(old_kafka), frozenset({0})
        name = "ProducerPerformance of 0.8.2, 100 B"
        rows.append(PeerRow(name, "kafka", write, versions=old))
        name = "SimpleConsumerPerformance of 0.8.2, 100 B"
        rows.append(_reads(name, "kafka", write, old_consumer(old_kafka), versions=old))
    if pulsar is not None:
        write = pulsar_producer(pulsar)
        rows.append(PeerRow("pulsar-perf produce, 100 B", "pulsar", write))
        rows.append(_reads("pulsar-perf consume, 100 B", "pulsar", write, pulsar_consumer(pulsar)))
    return rows
