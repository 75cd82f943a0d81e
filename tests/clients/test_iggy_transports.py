"""Iggy's Python clients over WebSocket and HTTP, with and without TLS."""

import json
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.clients.iggy import CLIENTS, IggyClient, NoClient, folder_of, python_of
from conformance.clients.iggy_programs import SETTINGS
from conformance.clients.raw.iggy import IggyWire, identifier
from conformance.server import ANY_PORT, RunningBroker
from tests.broker.server.certificates import write_files

pytestmark = [pytest.mark.clients, pytest.mark.slow]

CHILD = Path(__file__).with_name("iggy_versions_child.py")
TIMEOUT_S = 120.0
NUMBERS = [[at, f"m{at}"] for at in range(5)]
# Clients that take a connection string, which names the transport.
ANY_TRANSPORT = [client for client in CLIENTS if client.dialect in ("D5", "V", "W")]
OVER_HTTP = [client for client in ANY_TRANSPORT if client.dialect != "W"]
DELETE_STREAM = 203
V = next(client for client in CLIENTS if client.dialect == "V")
TLS = "iggy-websocket-tls"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return the files of the server's certificate and of its authority."""
    return write_files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: tuple[str, str]) -> Iterator[RunningBroker]:
    """A broker with the stream that all clients share."""
    settings = [
        *SETTINGS,
        f"listeners.{TLS}.protocol=iggy-websocket",
        f"listeners.{TLS}.tls.certificate_file={authority[0]}",
    ]
    listen = dict.fromkeys(("iggy", "iggy-http", "iggy-websocket", TLS), ANY_PORT)
    with RunningBroker(listen=listen, others=False, settings=settings) as running:
        with socket.create_connection(running.address("iggy")) as sock:
            for code, payload in (
                (202, struct.pack("<IB", 500, 6) + b"shared"),
                (302, b"\x01\x04" + struct.pack("<IIIIB", 500, 1, 2, 0, 3) + b"all"),
            ):
                sock.sendall(struct.pack("<II", 4 + len(payload), code) + payload)
                assert sock.recv(8) == bytes(8)
        yield running


def run(client: IggyClient, scenario: str, url: str) -> Any:
    """Run a scenario in its own process; return its observations."""
    try:
        folder, python = folder_of(client), python_of(client)
    except NoClient as reason:
        pytest.skip(str(reason))
    ended = subprocess.run(
        [python, str(CHILD), scenario, client.package, client.version, url],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("client", ANY_TRANSPORT, ids=str)
def test_every_call_of_a_client_works_over_websocket(
    broker: RunningBroker, client: IggyClient
) -> None:
    check_work(client, f"iggy+ws://iggy:iggy@{broker.addresses['iggy-websocket']}")


def check_work(client: IggyClient, url: str) -> None:
    seen = run(client, "work", url)
    assert "already" in seen.pop("again").lower()
    assert seen == {
        "Next": NUMBERS[:3],
        "First": NUMBERS[:3],
        "Last": NUMBERS[2:],
        "Offset": NUMBERS[3:],
        "Timestamp": NUMBERS[:3],
        "committed": NUMBERS,
        "number": 499,
    }


@pytest.mark.parametrize("client", OVER_HTTP, ids=str)
def test_every_call_of_a_client_works_over_http(broker: RunningBroker, client: IggyClient) -> None:
    with IggyWire(broker.address("iggy")) as wire:  # The client's run over WebSocket made it.
        wire.ask(DELETE_STREAM, identifier(f"{client.package}-{client.version}"))
    check_work(client, f"iggy+http://iggy:iggy@{broker.addresses['iggy-http']}")


def test_websocket_inside_tls(broker: RunningBroker, authority: tuple[str, str]) -> None:
    port = broker.address(TLS)[1]
    address = f"iggy+ws://iggy:iggy@127.0.0.1:{port}"
    url = f"{address}?tls=true&tls_domain=localhost&tls_ca_file={authority[1]}"
    name, refused = run(V, "text_options", url)
    assert name == "tp" and "option value" in refused.lower()
