"""The goals beside other brokers: judged goals, and the report of missing figures."""

from conformance.bench import peer_goals as goals
from conformance.bench.peer_rows import PeerServer
from conformance.bench.peers import medians, role, rows


def test_roles_come_from_the_names_and_versions_of_the_brokers():
    def role_of(protocol: str, name: str, version: int = 3) -> str:
        return role(PeerServer(name, protocol, "127.0.0.1:1", 1, version))

    assert role_of("kafka", "Braidlog, synced", 0) == goals.SYNCED
    assert role_of("pulsar", "Braidlog, written", 0) == goals.WRITTEN
    assert role_of("kafka", "Kafka 4.3.1") == goals.KAFKA
    assert role_of("kafka", "Kafka 4.3.1 flushed") == goals.FLUSHED
    assert role_of("kafka", "Kafka 0.8.2.2", 0) == "Kafka 0.8.2.2"
    assert role_of("pulsar", "Pulsar 4.2.4") == goals.PULSAR


def test_every_goal_belongs_to_a_measured_row():
    measured = {row.name for row in rows("generator")} | {goals.DISK}
    figures = {"rate": 1.0, "cpu_us": 1.0, "p50_ms": 1.0, "p999_ms": 1.0}
    brokers = (goals.SYNCED, goals.WRITTEN, goals.KAFKA, goals.FLUSHED, goals.PULSAR, goals.MACHINE)
    figures_of = {(row, broker): figures for row in measured for broker in brokers}
    assert not [line for line in goals.verdicts(figures_of) if line.startswith("not measured")]


def test_a_goal_is_reached_or_missed_or_not_measured():
    synced = {"rate": 30.0, "p50_ms": 2.0, "p999_ms": 11.0}
    figures_of = {
        (goals.SYNC_100, goals.SYNCED): synced,
        (goals.SYNC_100, goals.FLUSHED): {"rate": 10.0},
    }
    lines = goals.verdicts(figures_of)
    assert f"reached  {goals.SYNC_100}: rate of Kafka flushed: 3.00 (at least 3)" in lines
    assert f"MISSED   {goals.SYNC_100}: p99.9 by p50: 5.50 (at most 5)" in lines
    assert f"not measured  {goals.SYNC_100}: rate of Kafka as shipped (at least 0.35)" in lines


def test_medians_use_the_figures_of_every_run():
    runs = [{"rate": 1.0, "p50_ms": 3.0}, {"rate": 2.0}, {"rate": 9.0, "p50_ms": 1.0}]
    assert medians(runs) == {"rate": 2.0}
