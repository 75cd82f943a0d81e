"""The rates and percentiles of a measurement, and a short one against a broker."""

import json

import pytest

from braidlog.broker.cli.bench import result
from braidlog.broker.cli.main import run
from conformance.server import RunningBroker


def test_percentiles_are_of_the_requests():
    figures = result(1000, 2**20, 2.0, [number / 1000 for number in range(100)])
    assert (figures["messages_per_s"], figures["mib_per_s"]) == (500, 0.5)
    assert (figures["p50_ms"], figures["p99_ms"], figures["max_ms"]) == (50.0, 99.0, 99.0)


def test_a_measurement_without_requests_has_no_times():
    assert result(0, 0, 0.0, [])["max_ms"] == 0.0


@pytest.mark.slow
def test_a_short_measurement_stores_and_reads_every_message(capsys, monkeypatch):
    with RunningBroker(others=False, listen={"http": "127.0.0.1:0"}) as broker:
        monkeypatch.setenv("BRAIDLOG_URL", broker.url)
        assert run(["topics", "create", "speed", "--partitions", "2"]) == 0
        capsys.readouterr()
        produce = ["bench", "produce", "speed", "-n", "500", "--clients", "2"]
        assert run([*produce, "--output", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["messages"] == 500
        assert run(["bench", "consume", "speed", "--batch", "100", "--output", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["messages"] == 500
        assert run(["bench", "produce", "speed", "--batch", "0"]) == 2
        assert run(["bench", "produce", "nothere"]) == 4
        assert run(["bench", "consume", "nothere"]) == 4
