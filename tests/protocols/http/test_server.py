import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
import trio

from braidlog.broker.runtime.tls_socket import PLAIN_HELLO
from braidlog.broker.server.connection import address_text
from braidlog.protocols.http import server
from braidlog.protocols.http.adapter import ADAPTER
from braidlog.protocols.http.bodies import PROMPT_S
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.transport.serving import HEAD_BYTES_MAX
from tests.broker.server.certificates import tls_settings
from tests.protocols.http.listening import READ_BYTES, ask, connect, read_to_end
from tests.waiting import until


async def test_requests_on_a_connection_are_answered_in_turn(listener):
    address, _, _ = listener
    stream = await connect(address)
    assert await ask(stream, "/healthz") == (200, b"ok\n")
    status, body = await ask(stream, "/api/v1/topics")
    assert (status, json.loads(body)) == (200, {"topics": [], "next": None})


async def test_the_log_names_a_client_without_tls(counted, nursery, tmp_path):
    stopping = trio.Event()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.setblocking(False)
        listening.listen(1)
        options = RestOptions()
        await nursery.start(served, counted, listening, options, stopping, tls_settings(tmp_path))
        with structlog.testing.capture_logs() as events:
            stream = await connect(listening.getsockname())
            peer = address_text(stream.socket.getsockname())
            await stream.send_all(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert await read_to_end(stream) == b""
            await until(lambda: events)
        stopping.set()
    (event,) = events
    assert (event["event"], event["reason"]) == ("tls_handshake_failed", PLAIN_HELLO)
    assert (event["listener"], event["peer"]) == ("http", peer)


async def served(broker, listening, options, stopping, tls, task_status):
    task_status.started()
    await ADAPTER.serve(broker, [listening], options, stopping, tls=tls)


async def test_an_ended_listener_keeps_no_broker(listener, counted):
    address, stopping, done = listener
    await ask(await connect(address), "/healthz")
    assert counted in server._LISTENERS
    stopping.set()
    await until(done.is_set)
    assert counted not in server._LISTENERS


# With a stopped clock, nothing times out.


async def test_an_idle_connection_does_not_delay_a_stop(mock_clock, listener):
    address, stopping, done = listener
    stream = await connect(address)
    await ask(stream, "/healthz")
    stopping.set()
    await until(done.is_set)
    assert await read_to_end(stream) == b""


async def test_half_a_request_does_not_delay_a_stop(mock_clock, listener):
    address, stopping, done = listener
    stream = await connect(address)
    head = "PUT /api/v1/topics/t/n/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"
    await stream.send_all(head.encode())
    other = await connect(address)
    await ask(other, "/healthz")  # The listener has read the earlier bytes.
    stopping.set()
    mock_clock.jump(PROMPT_S)
    await until(done.is_set)


async def test_a_head_without_end_is_refused(mock_clock, listener):
    address, _, _ = listener
    stream = await connect(address)
    endless = b"GET / HTTP/1.1\r\nX: " + b"a" * (HEAD_BYTES_MAX + 1)
    await stream.send_all(endless)
    assert (await read_to_end(stream)).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("seed", range(3))
async def test_garbage_does_not_affect_other_clients(listener, seed):
    address, _, _ = listener
    rng = random.Random(seed)
    open_connection = await connect(address)
    for garbage in (
        rng.randbytes(300),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(100),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + rng.randbytes(100),
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PUT /api/v1/topics/t/n/x HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ):
        stream = await connect(address)
        await stream.send_all(garbage)
        await stream.aclose()
        assert await ask(open_connection, "/healthz") == (200, b"ok\n")


def test_describe_gives_the_consoles_address_and_a_line_to_paste():
    line = ADAPTER.describe("127.0.0.1", 8080, RestOptions())
    command = "curl http://127.0.0.1:8080/api/v1/topics"
    assert line == f"http://127.0.0.1:8080/ui in a browser, or {command}"
    assert ADAPTER.describe("127.0.0.1", 8080, RestOptions(console="off")) == command
    assert "http://[::1]:80/ui" in ADAPTER.describe("::1", 80, RestOptions())


def head_and_body(answer: bytes) -> tuple[list[str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode().lower().split("\r\n"), body


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"a" * (HEAD_BYTES_MAX + 1), 431, 43101),
        (b"rubbish\r\n\r\n", 400, 40000),
        (b"GET / HTTP/1.1\r\n\r\n", 400, 40000),  # Without a host.
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400, 40000),
        (b"HeAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 400, 40000),
        (b"head / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 400, 40000),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: rot13\r\n\r\n", 501, 50102),
    ],
)
async def test_an_invalid_request_has_the_common_error_form(listener, counted, sent, status, code):
    address, _, _ = listener
    stream = await connect(address)
    with structlog.testing.capture_logs() as lines:
        await stream.send_all(sent)
        head, body = head_and_body(await read_to_end(stream))
        await until(lambda: counted.admission.open == 0)
    assert "http_connection_failed" not in [line["event"] for line in lines]
    assert head[0].startswith(f"http/1.1 {status}")
    assert any(line.startswith("x-request-id:") for line in head)
    assert json.loads(body)["error_code"] == code


async def test_an_absolute_form_of_the_path_is_understood(listener):
    address, _, _ = listener
    stream = await connect(address)
    assert await ask(stream, "http://elsewhere:1/healthz") == (200, b"ok\n")
    assert (await ask(stream, "http://elsewhere"))[0] == 404


async def options(stream, path):
    await stream.send_all(f"OPTIONS {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        received += await stream.receive_some(READ_BYTES)
    return head_and_body(received)[0]


async def test_options_has_the_allowed_methods(listener):
    address, _, _ = listener
    stream = await connect(address)
    head = await options(stream, "/api/v1/topics/public/default/orders")
    assert head[0].startswith("http/1.1 204")
    (allow,) = (line for line in head if line.startswith("allow:"))
    assert {"get", "head", "put", "patch", "delete", "options"} == set(
        allow.removeprefix("allow:").replace(" ", "").split(",")
    )
    assert (await options(stream, "*"))[0].startswith("http/1.1 204")


async def test_head_is_get_without_its_body(listener):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, body = head_and_body(await read_to_end(stream))
    assert head[0].startswith("http/1.1 200") and "content-length: 3" in head
    assert body == b""


async def test_connections_count_in_the_limit_of_all_listeners(mock_clock, listener, counted):
    address, _, _ = listener
    stream = await connect(address)
    await ask(stream, "/healthz")
    admission = counted.admission
    assert admission.open == 1
    admission.open = 100  # The limit.
    refused = await connect(address)
    assert await read_to_end(refused) == b""
    admission.open = 1
    await stream.aclose()
    await until(lambda: admission.open == 0)


@pytest.mark.slow
def test_a_listener_recovers_from_a_lack_of_descriptors(tmp_path):
    """A separate process: nothing is imported yet for the first request that needs a file."""
    script = tmp_path / "starved.py"
    script.write_text(STARVED)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "served" in done.stdout.splitlines()
    assert "Traceback" not in done.stdout + done.stderr


STARVED = """
import os, resource, socket, sys
import trio
from braidlog.protocols.http.adapter import ADAPTER
from braidlog.protocols.http.options import RestOptions
from tests.protocols.http.asgi import bare_broker
from tests.protocols.http.listening import READ_BYTES, ask, connect, read_to_end

async def main():
    broker = bare_broker("/")
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    address = listening.getsockname()
    client = socket.socket()
    client.setblocking(False)
    ADAPTER.prepare()
    taken = []
    soft = len(os.listdir("/proc/self/fd")) + 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
    try:
        while True:
            taken.append(os.open("/", os.O_RDONLY))
    except OSError:
        pass
    stopping = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ADAPTER.serve, broker, [listening], RestOptions(), stopping)
        try:
            client.connect(address)
        except BlockingIOError:
            pass
        await trio.sleep(0.3)  # It cannot be accepted.
        for number in taken:
            os.close(number)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(client))
        head = "GET /healthz HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n"
        await stream.send_all(head.encode())
        answer = b""
        with trio.fail_after(60):
            async for piece in stream:
                answer += piece
        print("served" if answer.endswith(b"ok\\n") else answer)
        stopping.set()

trio.run(main)
"""


async def test_an_open_connection_is_listed_with_its_last_user_agent(listener, counted):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nUser-Agent: lib/2\xff\r\n\r\n")
    await until(lambda: [c.library for c in counted.served_connections] == ["lib/2?"])
    (client,) = counted.served_connections
    assert client.peer == address_text(stream.socket.getsockname())
    assert client.traffic()[0] > 50 and client.is_encrypted is False
    assert client.principal.name == "anonymous"
    await stream.aclose()
    await until(lambda: not counted.served_connections)
