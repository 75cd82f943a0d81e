import json
import random
import socket

import pytest
import trio

from protocols.rest.adapter import ADAPTER, RestOptions
from protocols.rest.server import HEAD_BYTES_MAX
from tests.protocols.rest.asgi import bare_broker
from tests.waiting import until

READ_BYTES = 65536


@pytest.fixture
async def listener(nursery, tmp_path):
    """The address of a serving listener, and the event that stops it."""
    broker = bare_broker(str(tmp_path))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.setblocking(False)
        listening.listen(16)
        stopping = trio.Event()
        done = trio.Event()

        async def serve():
            await ADAPTER.serve(broker, [listening], RestOptions(), stopping)
            done.set()

        nursery.start_soon(serve)
        yield listening.getsockname(), stopping, done
        stopping.set()
        await until(done.is_set)
        assert listening.fileno() >= 0  # Not the server's to close.


async def connect(address) -> trio.SocketStream:
    return await trio.open_tcp_stream(*address)


async def ask(stream, path: str, method: str = "GET") -> tuple[int, bytes]:
    """One request on a connection that stays; the answer's status and body."""
    await stream.send_all(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    received = b""
    while b"\r\n\r\n" not in received:
        received += await stream.receive_some(READ_BYTES)
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    (size,) = (int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
    while len(body) < size:
        body += await stream.receive_some(READ_BYTES)
    return int(lines[0].split()[1]), body


async def read_to_end(stream) -> bytes:
    received = b""
    try:
        async for piece in stream:
            received += piece
    except trio.BrokenResourceError:
        pass
    return received


async def test_requests_on_one_connection_are_answered_in_turn(listener):
    address, _, _ = listener
    stream = await connect(address)
    assert await ask(stream, "/healthz") == (200, b"ok\n")
    status, body = await ask(stream, "/api/v1/topics")
    assert (status, json.loads(body)) == (200, {"topics": [], "next": None})


# Where time stands still, nothing is over because its time was up.


async def test_an_idle_connection_does_not_hold_a_stop(mock_clock, listener):
    address, stopping, done = listener
    stream = await connect(address)
    await ask(stream, "/healthz")
    stopping.set()
    await until(done.is_set)
    assert await read_to_end(stream) == b""


async def test_half_a_request_does_not_hold_a_stop(mock_clock, listener):
    address, stopping, done = listener
    stream = await connect(address)
    head = "PUT /api/v1/topics/t/n/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"
    await stream.send_all(head.encode())
    other = await connect(address)
    await ask(other, "/healthz")  # The listener has read what came before this.
    stopping.set()
    await until(done.is_set)


async def test_a_head_without_end_is_refused(mock_clock, listener):
    address, _, _ = listener
    stream = await connect(address)
    endless = b"GET / HTTP/1.1\r\nX: " + b"a" * (HEAD_BYTES_MAX + 1)
    await stream.send_all(endless)
    assert (await read_to_end(stream)).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("seed", range(3))
async def test_garbage_leaves_the_listener_open_for_others(listener, seed):
    address, _, _ = listener
    rng = random.Random(seed)
    kept = await connect(address)
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
        assert await ask(kept, "/healthz") == (200, b"ok\n")


def test_describe_gives_a_line_to_paste():
    options = RestOptions()
    assert (
        ADAPTER.describe("127.0.0.1", 8080, options) == "curl http://127.0.0.1:8080/api/v1/topics"
    )
    assert ADAPTER.describe("::1", 80, options) == "curl http://[::1]:80/api/v1/topics"
