"""A broker process: start, ready file, refusals in a single line, and the stop."""

import json
import os
import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest

from conformance.clients.raw.kafka import KafkaWire, message
from conformance.server import RunningBroker
from tests.waiting import HANG_S, until_seen

pytestmark = pytest.mark.slow

IDLE_BYTES_MAX = 80_000_000
HTTP_ONLY = {"http": "127.0.0.1:0"}


def one_line(text):
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


def test_the_ready_file_and_the_output_name_every_listener(tmp_path):
    with RunningBroker(tmp_path) as broker:
        ready = json.loads(broker.ready_file.read_text())
        assert set(ready) == {"pid", "listeners"}
        assert {"kafka", "iggy", "http"} <= set(ready["listeners"])
        for name, address in broker.addresses.items():
            socket.create_connection(broker.address(name), timeout=HANG_S).close()
            assert address in broker.output(), name
        assert not list(tmp_path.glob("*.new"))
        assert broker.stop() == 0
    assert '"stopped"' in broker.log()


@pytest.mark.skipif("coverage" in sys.modules, reason="coverage takes memory of its own")
def test_an_idle_broker_with_every_listener_open_is_small(tmp_path):
    with RunningBroker(tmp_path) as broker:
        with urlopen(f"{broker.url}/healthz") as answer:  # Imports the HTTP server after the start.
            assert answer.status == 200
        assert broker.resident_bytes() < IDLE_BYTES_MAX


def test_a_hangup_without_certificates_says_that_settings_need_a_restart(tmp_path):
    with RunningBroker(tmp_path, others=False, listen=HTTP_ONLY) as broker:
        broker.signal(signal.SIGHUP)
        until_seen(lambda: '"reloaded"' in broker.log())
        (line,) = [json.loads(text) for text in broker.log().splitlines() if '"reloaded"' in text]
        assert (line["listeners"], line["settings"]) == (0, "need a restart")


def test_a_broker_on_plain_trio_serves_and_stops(tmp_path):
    environment = {"BRAIDLOG_PLAIN_TRIO": "1"}
    with RunningBroker(tmp_path, environment=environment) as broker:
        with KafkaWire(broker.address("kafka")) as wire:
            wire.create("orders")
            assert wire.produce("orders", message(None, b"value")) == (0, 0)
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_stops_cleanly(tmp_path, number):
    with RunningBroker(tmp_path, others=False, listen=HTTP_ONLY) as broker:
        broker.signal(number)
        assert broker.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_a_clean_stop_does_not_change_the_exit_code(tmp_path, number):
    with RunningBroker(tmp_path, others=False, listen=HTTP_ONLY) as broker:
        broker.signal(number)
        until_seen(lambda: '"stopped"' in broker.log())
        broker.signal(number)
        assert broker.wait() == 0


def test_second_broker_on_the_directory_is_refused(tmp_path):
    with RunningBroker(tmp_path, others=False, listen=HTTP_ONLY) as broker:
        second = RunningBroker(tmp_path / "second", others=False, listen=HTTP_ONLY)
        second.data_dir = broker.data_dir
        code, _, error = second.run_to_end()
        assert code == 1
        assert f"in use by process {broker.pid}" in one_line(error)
        assert broker.stop() == 0


def test_port_in_use_is_refused_and_the_directory_is_left_clean(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        broker = RunningBroker(tmp_path, others=False, listen={"http": address})
        code, _, error = broker.run_to_end()
    assert code == 1
    text = f"http: cannot listen on {address}: Address already in use"
    assert f"{text}; --listen http=HOST:PORT names another address" in one_line(error)
    with broker:
        assert broker.stop() == 0


def test_an_unusable_data_directory_is_refused(tmp_path):
    (tmp_path / "data").write_text("a file")
    code, _, error = RunningBroker(tmp_path, others=False, listen=HTTP_ONLY).run_to_end()
    assert code == 1
    assert str(tmp_path / "data") in one_line(error)


def test_a_folder_with_foreign_files_is_not_used(tmp_path):
    broker = RunningBroker(tmp_path, others=False, listen=HTTP_ONLY)
    broker.data_dir = tmp_path / "home"
    broker.data_dir.mkdir()
    (broker.data_dir / "letter.txt").touch()
    code, _, error = broker.run_to_end()
    assert code == 2
    assert one_line(error).startswith("braidlog: data_dir: ")
    assert "is no data directory and is not empty (letter.txt)" in error
    assert os.listdir(broker.data_dir) == ["letter.txt"]


def test_an_unwritable_ready_file_is_refused(tmp_path):
    broker = RunningBroker(tmp_path, others=False, listen=HTTP_ONLY)
    broker.ready_file = tmp_path / "missing" / "ready.json"
    code, _, error = broker.run_to_end()
    assert code == 1
    assert "missing/ready.json" in error.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("settings", "listen", "reason"),
    [
        (["log.segment_byts=1"], HTTP_ONLY, "--set log.segment_byts=1: log.segment_byts: unknown"),
        ([], {"nope": "127.0.0.1:0"}, "no protocol named 'nope'"),
        ([], {"http": "0.0.0.0:0"}, "listeners.http.insecure"),
        (["listeners.http.nope=1"], HTTP_ONLY, "listeners.http.nope: unknown setting"),
        ([], {}, "every listener is off"),
    ],
)
def test_a_bad_setting_is_a_single_line_and_a_usage_error(tmp_path, settings, listen, reason):
    broker = RunningBroker(tmp_path, others=False, listen=listen, settings=settings)
    code, _, error = broker.run_to_end()
    assert code == 2
    assert reason in one_line(error)


def test_help_imports_neither_trio_nor_a_server():
    program = (
        "import sys\n"
        "from braidlog.broker.cli.main import run\n"
        "assert run(['--help']) == 0 and run(['serve', '--help']) == 0\n"
        "loaded = {'trio', 'h11', 'starlette', 'structlog'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_a_stale_ready_file_is_removed_even_if_the_start_fails(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        broker = RunningBroker(tmp_path, others=False, listen={"http": address})
        broker.ready_file.write_text("{}")
        assert broker.run_to_end()[0] == 1
    assert not broker.ready_file.exists()


def test_a_killed_broker_starts_again(tmp_path):
    with RunningBroker(tmp_path, others=False, listen=HTTP_ONLY) as broker:
        broker.kill()
    with RunningBroker(tmp_path, others=False, listen=HTTP_ONLY) as broker:
        assert os.path.exists(broker.data_dir / "lock")
        assert broker.stop() == 0
