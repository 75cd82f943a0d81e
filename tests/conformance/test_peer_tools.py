"""Figures read from the output of Kafka's and Pulsar's performance tools; the tools are not run."""

import os
import sys

import pytest

from conformance.bench.peer_rows import PeerServer, RowFailed
from conformance.bench.peer_tools import tool_rows

TODAY, OLD, PULSAR = "today.jar", "old.jar", "pulsar.jar"
SECONDS = 2.0
SLF4J = "SLF4J: Failed to load class"
SENT = (
    "1024 records sent, 204.8 records/sec (0.02 MB/sec), 1.0 ms avg latency, 7.0 ms max latency.\n"
    "1000000 records sent, 395622.438 records/sec (37.73 MB/sec), 512.81 ms avg latency, "
    "1212.00 ms max latency, 595 ms 50th, 1100 ms 95th, 1200 ms 99th, 1211 ms 99.9th."
)
CONSUMED = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
    "2026-11-26 15:10:00:000, 2026-11-26 15:10:01:000, 95.3674, 95.3674, 1000000, 900000.1, "
    "330, 419, 227.8, 2388535.5"
)
OLD_CONSUMED = (
    "start.time, end.time, fetch.size, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, "
    "nMsg.sec\n"
    "2026-11-26 15:10:00:000, 2026-11-26 15:10:04:000, 1048576, 57.2205, 14.4, 600000, 151309.2"
)
AGGREGATED = (
    "INFO  org.apache.pulsar.testclient.Performance - Aggregated throughput stats --- "
    "200000 records {} --- 101275.502 msg/s --- 77.268 Mbit/s\n"
    "INFO  org.apache.pulsar.testclient.Performance - Aggregated latency stats --- Latency: "
    "mean:  75.123 ms - med:  70.060 - 95pct: 190.100 - 99pct: 300.200 - 99.9pct: 367.004 - "
    "99.99pct: 380.100 - 99.999pct: 381.000 - Max: 381.000"
)


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Make `java` print a text and end with a code; return the file with its arguments."""

    def says(text: str, code: int = 0):
        program = tmp_path / "java"
        program.write_text(
            f"#!{sys.executable}\nimport sys\n"
            f"open({str(tmp_path / 'arguments')!r}, 'w').write(' '.join(sys.argv[1:]))\n"
            f"print({text!r})\nsys.exit({code})\n"
        )
        program.chmod(0o755)
        return tmp_path / "arguments"

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return says


def row(part: str):
    [tool] = [candidate for candidate in tool_rows(TODAY, OLD, PULSAR) if part in candidate.name]
    return tool


def server_of(part: str) -> PeerServer:
    return PeerServer("Braidlog, synced", row(part).protocol, "127.0.0.1:9092", 1, 0)


@pytest.mark.parametrize(
    ("part", "reason", "messages", "figures", "argument"),
    [
        (
            "producer-perf",
            SENT,
            1_000_000,
            {"rate": 395622.438, "p50_ms": 595.0, "p999_ms": 1211.0},
            f"{TODAY} org.apache.kafka.tools.ProducerPerformance --topic t --num-records 1000000 ",
        ),
        (
            "consumer-perf",
            CONSUMED,
            1_000_000,
            {"rate": 2388535.5},
            f"{TODAY} org.apache.kafka.tools.ConsumerPerformance --topic t --num-records 1000000 ",
        ),
        (
            "ProducerPerformance of 0.8",
            SENT,
            600_000,
            {"rate": 395622.438, "p50_ms": 595.0, "p999_ms": 1211.0},
            f"{OLD} org.apache.kafka.clients.tools.ProducerPerformance t 600000 100 -1 ",
        ),
        (
            "SimpleConsumer",
            OLD_CONSUMED,
            600_000,
            {"rate": 151309.2},
            f"{OLD} kafka.tools.SimpleConsumerPerformance --topic t ",
        ),
        (
            "pulsar-perf produce",
            AGGREGATED.format("sent"),
            200_000,
            {"rate": 101275.502, "p50_ms": 70.06, "p999_ms": 367.004},
            " produce -u pulsar://127.0.0.1:9092 ",
        ),
        (
            "pulsar-perf consume",
            AGGREGATED.format("received"),
            200_000,
            {"rate": 101275.502},
            " consume -u pulsar://127.0.0.1:9092 ",
        ),
    ],
)
def test_figures_are_those_of_the_whole_run(java, part, reason, messages, figures, argument):
    arguments = java(f"{SLF4J}\n{reason}")
    assert row(part).run(server_of(part), "t", SECONDS) == (messages, figures)
    assert argument in arguments.read_text()


@pytest.mark.parametrize("part", ["producer-perf", "consumer-perf", "SimpleC", "pulsar-perf prod"])
@pytest.mark.parametrize(("reason", "code"), [("Exception in thread", 1), ("nothing was sent", 0)])
def test_a_tool_that_fails_or_prints_nothing_fails_its_row(java, part, reason, code):
    java(reason, code)
    with pytest.raises(RowFailed, match=reason):
        row(part).run(server_of(part), "t", SECONDS)


def test_an_old_tool_runs_only_against_brokers_of_its_protocol_version():
    today = PeerServer("Kafka 4.3.1", "kafka", "127.0.0.1:9094", 1, 3)
    assert [tool.name for tool in tool_rows(TODAY, OLD, None) if tool.is_for(today)] == [
        "kafka-producer-perf-test, 100 B",
        "kafka-consumer-perf-test, 100 B",
    ]
    assert all(tool.is_for(server_of("SimpleC")) for tool in tool_rows(TODAY, OLD, None))


def test_a_consumer_row_writes_its_records_first(java):
    arguments = java(SENT)
    prepare = row("consumer-perf").prepare
    assert prepare is not None
    prepare(server_of("consumer-perf"), "t", SECONDS)
    assert "ProducerPerformance --topic t --num-records 1000000 " in arguments.read_text()
