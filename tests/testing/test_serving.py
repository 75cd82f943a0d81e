"""`braidlog serve --ephemeral`, as a program in another language starts the broker."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from conformance.clients.raw.kafka import KafkaWire
from tests.waiting import until_seen

COMMAND = (sys.executable, "-m", "braidlog.broker.cli.main", "serve", "--ephemeral")


def ended(*flags):
    """Return the exit code and the error line of a broker that does not start."""
    process = subprocess.run((*COMMAND, *flags), capture_output=True, text=True, timeout=60)
    assert process.stderr.count("\n") == 1, process.stderr
    return process.returncode, process.stderr.strip()


@pytest.mark.slow
def test_the_ready_file_has_every_address_and_the_control_address(tmp_path):
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        (*COMMAND, "--ready-file", str(ready), "--listen", "iggy=off", "--set=log.segment_ms=1000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until_seen(lambda: ready.exists() or process.poll() is not None)
        description = json.loads(ready.read_text())
        assert description["pid"] == process.pid
        assert set(description["listeners"]) == {"kafka", "pulsar", "http", "control"}
        host, _, port = description["listeners"]["kafka"].rpartition(":")
        with KafkaWire((host, int(port))) as wire:
            wire.create("orders")
        control = f"http://{description['listeners']['control']}/addresses"
        with urllib.request.urlopen(control) as answer:
            assert json.load(answer) == description["listeners"]
        os.kill(process.pid, signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (0, "")
    assert "the data are gone at the end" in output


@pytest.mark.slow
def test_a_start_that_fails_says_so_in_a_line(tmp_path):
    assert ended("--set", "topics.colour=red") == (
        2,
        "braidlog: --set topics.colour=red: topics.colour: unknown setting",
    )
    assert ended("--data-dir", str(tmp_path))[0] == 2
    code, line = ended("--ready-file", str(tmp_path / "missing" / "ready.json"))
    assert code == 2
    assert "No such file or directory" in line
