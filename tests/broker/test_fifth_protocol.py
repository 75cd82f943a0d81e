"""A protocol from a separate package, found by its entry point alone, in a broker process."""

import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from conformance.server import RunningBroker
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


@pytest.fixture
def lines_package(tmp_path):
    """Install the package in a folder; return the environment with the package."""
    site = tmp_path / "site"
    package = site / "lines_protocol"
    package.mkdir(parents=True)
    shutil.copy(HERE / "fifth_protocol.py", package / "__init__.py")
    info = site / "lines_protocol-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lines_protocol\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[braidlog.protocols]\nlines = lines_protocol:ADAPTER\n")
    places = [str(site), str(HERE.parents[1]), os.environ.get("PYTHONPATH")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, places))}


@pytest.fixture
def start(tmp_path, lines_package):
    brokers = []

    def start(*settings, folder="run"):
        broker = RunningBroker(
            tmp_path / folder,
            others=False,
            listen={"lines": "127.0.0.1:0"},
            settings=settings,
            environment=lines_package,
        )
        brokers.append(broker)
        return broker.start()

    yield start
    for broker in brokers:
        broker.kill()


class LineClient:
    def __init__(self, broker, greeting="hello"):
        self.socket = socket.create_connection(broker.address("lines"), timeout=HANG_S)
        self.file = self.socket.makefile("rwb")
        assert self.line() == greeting

    def line(self):
        return self.file.readline().decode().rstrip("\n")

    def send(self, *lines):
        self.file.write("".join(f"{line}\n" for line in lines).encode())
        self.file.flush()

    def ask(self, line):
        self.send(line)
        return self.line()


def test_append_read_and_options(start):
    broker = start("listeners.lines.greeting=salut")
    assert "nc 127.0.0.1" in broker.output()
    client = LineClient(broker, "salut")
    assert client.ask("append orders one") == "ok 0"
    assert client.ask("append orders two words") == "ok 1"
    client.send("read orders 0")
    assert [client.line() for _ in range(3)] == ["text one", "text two words", "end 2"]
    assert client.ask("read nothing 0").startswith("error")
    assert broker.stop() == 0


def test_pipelined_appends_share_syncs_and_answer_in_order(start):
    broker = start()
    client = LineClient(broker)
    client.send(*(f"append orders {number}" for number in range(1000)))
    assert [client.line() for _ in range(1000)] == [f"ok {number}" for number in range(1000)]


def test_a_long_line_and_nonsense_end_only_that_connection(start):
    broker = start("listeners.lines.line_bytes_max=100")
    other = LineClient(broker)
    for nonsense, answer in [
        ("x" * 200, "error line too long"),
        ("what\n", "error not understood"),
    ]:
        client = LineClient(broker)
        client.file.write(nonsense.encode())
        client.file.flush()
        assert client.line() == answer
        assert client.line() == ""
    assert other.ask("append orders one") == "ok 0"


def test_records_and_offsets_survive_a_kill(start):
    broker = start()
    client = LineClient(broker)
    assert client.ask("append orders kept") == "ok 0"
    broker.kill()
    client = LineClient(start())
    assert client.ask("append orders next") == "ok 1"
    client.send("read orders 0")
    assert [client.line() for _ in range(3)] == ["text kept", "text next", "end 2"]


def test_a_graceful_stop_answers_started_requests_and_says_goodbye(start):
    broker = start()
    client, waiting = LineClient(broker), LineClient(broker)
    assert client.ask("append orders first") == "ok 0"
    waiting.send("wait orders 0")
    client.send(*(f"append orders {number}" for number in range(500)))
    assert client.line() == "ok 1"  # the rest is in flight
    broker.signal(signal.SIGTERM)
    answers = iter(client.line, "")
    acknowledged = [line for line in answers if line.startswith("ok")]
    last = int(acknowledged[-1].split()[1]) if acknowledged else 1
    assert waiting.line().startswith("high ")
    assert waiting.line() == "goodbye"
    assert waiting.line() == ""
    assert broker.wait() == 0
    again = LineClient(start())
    again.send("read orders 0")
    assert len(list(iter(again.line, f"end {last + 1}"))) == last + 1


def test_a_second_signal_stops_at_once(start):
    broker = start("shutdown.grace_s=600")
    stuck, other = LineClient(broker), LineClient(broker)
    assert stuck.ask("append orders " + "x" * 60_000) == "ok 0"
    # 30 MB of unread output: the broker waits with these requests
    stuck.send(*["read orders 0"] * 500)
    for number in range(3):
        assert other.ask("append other one") == f"ok {number}"
    broker.signal(signal.SIGTERM)
    assert other.line() == "goodbye"
    broker.signal(signal.SIGTERM)
    assert broker.wait() == 128 + signal.SIGTERM
    assert "stopped at once" in broker.log()
