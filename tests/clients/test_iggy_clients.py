"""The stock iggy-py (crate 0.6, dialect D2) against a broker in its own process."""

import json
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.server import RunningBroker

pytest.importorskip("iggy_py", reason="iggy-py is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


def command(broker: RunningBroker, scenario: str, *arguments: object) -> list[str]:
    module = "tests.clients.iggy_py_child"
    address = broker.addresses["iggy"]
    return [sys.executable, "-m", module, scenario, address, *map(str, arguments)]


def run(broker: RunningBroker, scenario: str, *arguments: object) -> Any:
    """Run a scenario; return its observations."""
    ended = subprocess.run(
        command(broker, scenario, *arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def numbers(start: int, end: int) -> list[list[object]]:
    return [[number, str(number)] for number in range(start, end)]


def test_streams_and_topics_are_created_and_shown(broker: RunningBroker) -> None:
    assert run(broker, "make", 2) == {
        "before": [None, None],
        "stream": [1, "st", 0, 1],
        "topic": [1, "tp", 0],
        "by_number": "tp",
    }


def test_refusals_are_shown_with_their_names(broker: RunningBroker) -> None:
    run(broker, "make", 1)
    shown = run(broker, "refusals")
    assert {command: text.partition("(")[0] for command, text in shown.items()} == {
        "login": "InvalidCredentials",
        "stream": "StreamNameAlreadyExists",
        "topic": "TopicNameAlreadyExists",
        "partition": "PartitionNotFound",
        "missing": "TopicNameNotFound",
        "count": "InvalidMessagesCount",
    }


def test_thousands_of_messages_are_read_by_every_strategy(broker: RunningBroker) -> None:
    run(broker, "make", 2)
    assert run(broker, "send", 0, 5000) == 5000
    counts = run(broker, "strategies")
    assert counts == {
        "first": numbers(0, 3),
        "last": numbers(4997, 5000),
        "offset": numbers(1234, 1236),
        "beyond": [],
        "next": numbers(0, 2),
        "next again": numbers(0, 2),
        "long ago": numbers(0, 2),
        "timestamp": True,
        "message": ["Available", 4, True, zlib.crc32(b"1234")],
    }
    assert run(broker, "read", 10_000, 700) == numbers(0, 5000)


def test_a_position_survives_new_clients_and_restarts(
    broker: RunningBroker,
) -> None:
    run(broker, "make", 1)
    run(broker, "send", 0, 3000)
    assert run(broker, "read", 1000, 300) == numbers(0, 1000)
    assert broker.stop() == 0
    broker.start()
    assert run(broker, "read", 1000, 300) == numbers(1000, 2000)
    run(broker, "send", 3000, 3500)
    broker.kill()
    broker.start()
    # Auto commit is on disk within the flush interval: a crash may repeat, and never skips.
    rest = run(broker, "read", 3000, 300)
    assert rest[-1] == [3499, "3499"]
    assert rest == numbers(rest[0][0], 3500)
    assert 1000 <= rest[0][0] <= 2000


def test_a_client_continues_after_a_broker_restart(broker: RunningBroker) -> None:
    run(broker, "make", 1)
    run(broker, "send", 0, 20)
    with subprocess.Popen(
        command(broker, "over_a_restart"),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout and child.stdin
        assert child.stdout.readline() == "restart\n"
        broker.stop()
        broker.start()
        child.stdin.write("go on\n")
        child.stdin.flush()
        seen = json.loads(child.stdout.readline())
    assert seen == {
        "before": numbers(0, 10),
        "refused": "Unauthenticated",
        "after": numbers(10, 20),
    }
