"""Every published client of Iggy on the same broker and port at the same time, with shared
messages: all versions of Python's clients, and Rust's and Java's if their programs are built.
"""

import json
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.clients import iggy_programs
from conformance.clients.iggy import CLIENTS, IggyClient, NoClient, folder_of, python_of
from conformance.clients.iggy_programs import IggyProgram
from conformance.clients.raw.iggy import IggyWire, identifier
from conformance.server import RunningBroker
from tests.waiting import until_seen

pytestmark = [pytest.mark.clients, pytest.mark.slow]

CHILD = Path(__file__).with_name("iggy_versions_child.py")
TIMEOUT_S = 120.0  # All clients start at once.
GET_GROUP = 600
FIXED_ADDRESS = "127.0.0.1:8090"
NUMBERS = [[at, f"m{at}"] for at in range(5)]
# iggy-py 0.2.0 and 0.2.1 put something before each payload; no client here does.
FROM_ZERO = [client for client in CLIENTS if client.dialect in ("D4", "D5", "V", "W")]
GROUPS = [client for client in CLIENTS if client.package == "apache-iggy" and client.number[1] >= 5]


def fixed_address_is_free() -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 8090))
        except OSError:
            return False
    return True


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker with the stream that all clients share, created without a login, as the oldest
    dialect does.
    """
    listen = {"iggy": FIXED_ADDRESS} if fixed_address_is_free() else {"iggy": "127.0.0.1:0"}
    settings = iggy_programs.SETTINGS
    with RunningBroker(listen=listen, others=False, settings=settings) as running:
        host, _, port = running.addresses["iggy"].rpartition(":")
        with socket.create_connection((host, int(port))) as sock:
            for code, payload in (
                (202, struct.pack("<IB", 500, 6) + b"shared"),
                (302, b"\x01\x04" + struct.pack("<IIIIB", 500, 1, 2, 0, 3) + b"all"),
            ):
                sock.sendall(struct.pack("<II", 4 + len(payload), code) + payload)
                assert sock.recv(8) == bytes(8)
        yield running


@contextmanager
def started(
    broker: RunningBroker, client: IggyClient, scenario: str
) -> Iterator[subprocess.Popen[str]]:
    """Start the scenario in its own process, which ends with the block."""
    address = broker.addresses["iggy"]
    if not client.takes_address and address != FIXED_ADDRESS:
        pytest.skip(f"{client} connects to {FIXED_ADDRESS} only, which is taken")
    try:
        folder, python = folder_of(client), python_of(client)
    except NoClient as reason:
        pytest.skip(str(reason))
    with subprocess.Popen(
        [python, str(CHILD), scenario, client.package, client.version, address],
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def result(child: subprocess.Popen[str], stdin: str = "") -> Any:
    """Return the scenario's observations, after sending the scenario the line `told`."""
    seen, errors = child.communicate(stdin, timeout=TIMEOUT_S)
    assert child.returncode == 0, errors
    return json.loads(seen)


def run(broker: RunningBroker, client: IggyClient, scenario: str) -> Any:
    """Run a scenario; return its observations."""
    with started(broker, client, scenario) as child:
        return result(child)


def run_program(broker: RunningBroker, program: IggyProgram, scenario: str) -> list[str]:
    """Return a program's output lines."""
    try:
        command = iggy_programs.command_of(program)
    except NoClient as reason:
        pytest.skip(str(reason))
    ended = subprocess.run(
        [*command, scenario, broker.addresses["iggy"]],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


Outcome = Callable[[], Any]  # Returns a client's observations; raises its error.


@pytest.fixture(scope="module")
def worked(broker: RunningBroker) -> dict[str, Outcome]:
    """Run all clients at the same time."""
    with ThreadPoolExecutor(len(CLIENTS) + len(iggy_programs.ALL)) as pool:
        begun: dict[str, Future[Any]] = {}
        for client in CLIENTS:
            begun[str(client)] = pool.submit(run, broker, client, "work")
        for program in iggy_programs.ALL:
            begun[str(program)] = pool.submit(run_program, broker, program, "work")
    return {name: future.result for name, future in begun.items()}


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_every_call_of_a_client_works(worked: dict[str, Outcome], client: IggyClient) -> None:
    seen = worked[str(client)]()
    if "again" in seen:
        assert "already" in seen["again"].lower(), seen["again"]
    expected = {
        "Next": NUMBERS[:3],
        "First": NUMBERS[:3],
        "Last": NUMBERS[2:],
        "Offset": NUMBERS[3:],
        "Timestamp": NUMBERS[:3],
        "committed": NUMBERS,
        "number": 499,
    }
    assert {name: value for name, value in seen.items() if name != "again"} == {
        name: value for name, value in expected.items() if name in seen
    }


@pytest.mark.parametrize("program", iggy_programs.ALL, ids=str)
def test_every_step_of_a_program_works(worked: dict[str, Outcome], program: IggyProgram) -> None:
    *bad, counted = worked[str(program)]()
    assert not bad
    assert counted.endswith(" ok, 0 bad")


def shared_by(worked: dict[str, Outcome]) -> set[str]:
    """Return the messages of all clients that could run."""
    senders = set()
    for name, outcome in worked.items():
        try:
            outcome()
        except pytest.skip.Exception:
            continue
        senders.add(f"from {name}")
    return senders


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_a_client_reads_the_messages_of_all_clients(
    broker: RunningBroker, worked: dict[str, Outcome], client: IggyClient
) -> None:
    seen = run(broker, client, "read_shared")
    assert [offset for offset, _ in seen] == list(range(len(seen)))
    assert {text for _, text in seen} == shared_by(worked)


@pytest.mark.parametrize("program", iggy_programs.ALL, ids=str)
def test_a_program_reads_the_messages_of_all_clients(
    broker: RunningBroker, worked: dict[str, Outcome], program: IggyProgram
) -> None:
    assert set(run_program(broker, program, "read")) == shared_by(worked)


@pytest.mark.parametrize("client", GROUPS, ids=str)
def test_two_members_share_the_partitions_of_a_topic(
    broker: RunningBroker, client: IggyClient
) -> None:
    with started(broker, client, "group") as child:
        with IggyWire(broker.address("iggy")) as wire:
            until_seen(lambda: child.poll() is not None or members(wire, client) == 2)
        assert result(child, "both are members\n") == [["0-0", "0-1", "0-2"], ["1-0", "1-1", "1-2"]]


@pytest.mark.parametrize("client", FROM_ZERO, ids=str)
def test_getting_started_programs_find_the_first_stream_and_topic_by_number_0(
    client: IggyClient,
) -> None:
    with RunningBroker(listen={"iggy": "127.0.0.1:0"}, others=False) as fresh:
        seen = run(fresh, client, "number_zero")
    assert seen == [0, "sample-stream", 0, "sample-topic", ["message-1", "message-2"]]


@pytest.mark.parametrize(
    "client",
    [client_program for client_program in CLIENTS if client_program.dialect == "V"],
    ids=str,
)
def test_options_of_a_topic_may_be_texts(broker: RunningBroker, client: IggyClient) -> None:
    name, refused = run(broker, client, "text_options")
    assert name == "tp"
    assert "option value" in refused.lower()


def members(wire: IggyWire, client: IggyClient) -> int:
    """Return the number of members of the group that this client creates."""
    names = (f"group-{client.version}", "tp", "grp")
    _, answer = wire.ask(GET_GROUP, b"".join(map(identifier, names)))
    return int(struct.unpack_from("<III", answer)[2]) if answer else 0
