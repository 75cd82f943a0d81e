"""Requests and their bodies on a single connection, over sockets."""

from __future__ import annotations

import json

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.protocols.transport.connection import UNREAD_BYTES_MAX, UNREAD_S
from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.listening import READ_BYTES, ask, connect, read_to_end
from tests.waiting import PAUSE_S, until

TOPIC = "/topics/public/default/orders"
POLL = f"{TOPIC}/partitions/0/messages?timeout=60000"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = (
    b"POST /no-such HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
)


@pytest.fixture
async def counted(broker):
    """Return a broker with a topic."""
    await broker.topics.create(TopicName("public", "default", "orders"), 1)
    return broker


def post(body: bytes, size: int | None = None, path: str = TOPIC) -> bytes:
    stated = len(body) if size is None else size
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {stated}\r\n\r\n".encode() + body


async def answer(stream) -> tuple[int, bytes]:
    """Return the next answer, without bytes behind."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += await stream.receive_some(READ_BYTES)
    head, _, body = received.partition(b"\r\n\r\n")
    (size,) = (
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    while len(body) < size:
        body += await stream.receive_some(READ_BYTES)
    assert len(body) == size
    return int(head.split()[1]), body


ONE = b'{"messages": [{"value": "v"}]}'


async def test_a_body_may_come_in_pieces(listener):
    address, _, _ = listener
    stream = await connect(address)
    request = post(ONE)
    for cut in (len(request) - len(ONE), len(request) - 3):
        await stream.send_all(request[:cut])
        await wait_all_tasks_blocked(cushion=PAUSE_S)
        await stream.send_all(request[cut:])
        status, body = await answer(stream)
        assert status == 200 and json.loads(body)["messageIds"]


async def test_pipelined_requests_are_answered_in_turn(listener):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(post(ONE) + HEALTH + post(b"no JSON") + HEALTH[:9])
    received = b""
    while received.count(b"HTTP/1.1") < 3 or not received.endswith(b"}"):
        received += await stream.receive_some(READ_BYTES)
    assert [int(part[1:4]) for part in received.split(b"HTTP/1.1")[1:]] == [200, 200, 400]
    await stream.send_all(HEALTH[9:])
    assert await answer(stream) == (200, b"ok\n")


async def test_chunked_body_leaves_the_connection_open(listener):
    address, _, _ = listener
    stream = await connect(address)
    for _ in range(2):
        await stream.send_all(CHUNKED)
        assert (await answer(stream))[0] == 404
        assert await ask(stream, "/healthz") == (200, b"ok\n")


async def test_a_request_behind_a_waiting_request_is_answered_after_it(listener, counted):
    address, _, _ = listener
    stream, other = await connect(address), await connect(address)
    await stream.send_all(f"GET {POLL} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await until(lambda: counted.metrics.value("braidlog_waiting_requests", "http") == 1)
    await stream.send_all(HEALTH)
    await other.send_all(post(ONE))
    assert (await answer(other))[0] == 200
    received = b""
    while not received.endswith(b"ok\n"):
        received += await stream.receive_some(READ_BYTES)
    assert b'"value":"v"' in received.partition(b"ok\n")[0]


async def test_a_request_that_waits_ends_with_its_client(listener, counted):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(f"GET {POLL} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await until(lambda: counted.metrics.value("braidlog_waiting_requests", "http") == 1)
    await stream.aclose()
    await until(lambda: counted.admission.open == 0)


async def test_a_client_refused_while_it_sends_gets_the_answer(listener):
    """The client reads the answer after it has sent everything, and the connection continues."""
    address, _, _ = listener
    stream = await connect(address)
    large = bytes(12 * 1024 * 1024)
    await stream.send_all(post(large))
    assert (await answer(stream))[0] == 413
    assert await ask(stream, "/healthz") == (200, b"ok\n")


@pytest.mark.parametrize("size", [1000, UNREAD_BYTES_MAX + 2000])
async def test_a_refused_body_that_never_arrives_ends_its_connection(mock_clock, listener, size):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(post(b"{", size, "/no-such"))
    assert (await answer(stream))[0] == 404
    await wait_all_tasks_blocked(cushion=PAUSE_S)
    mock_clock.jump(UNREAD_S)
    assert await read_to_end(stream) == b""


async def test_a_client_that_closes_its_side_is_answered(listener):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(post(ONE) + HEALTH)
    await stream.send_eof()
    received = await read_to_end(stream)
    assert received.count(b"HTTP/1.1 200") == 2


async def test_the_connection_ends_on_the_clients_request(listener):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + HEALTH)
    received = await read_to_end(stream)
    assert received.count(b"HTTP/1.1") == received.lower().count(b"connection: close") == 1


async def test_many_requests_at_once_give_turns_to_others(listener):
    address, _, _ = listener
    stream, other = await connect(address), await connect(address)
    many = 500

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, HEALTH * many)
        assert await ask(other, "/healthz") == (200, b"ok\n")
        received = b""
        while received.count(b"ok\n") < many:
            received += await stream.receive_some(READ_BYTES)
