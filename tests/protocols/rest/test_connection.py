import gc
import json
import struct

import h2.connection
import h2.events
import hpack
import pytest
import trio
from hypercorn.config import Config
from trio.testing import wait_all_tasks_blocked

from protocols.rest.connection import HttpConnection
from protocols.rest.hypercorn_protocols import HALF_CLOSED_S, STREAM_STALL_S
from protocols.rest.server import KEEP_ALIVE_S
from storage.metadata.names import TopicName
from tests.protocols.rest.listening import READ_BYTES, ask, connect, read_to_end
from tests.protocols.rest.records import append_records
from tests.waiting import PAUSE_S, until

MESSAGES = "/topics/public/default/orders/partitions/0/messages"
LONG_POLL = f"{MESSAGES}?timeout=60000"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
EVENTS = f"GET {MESSAGES} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n".encode()


@pytest.fixture
async def counted(broker):
    """A broker with a topic."""
    await broker.topics.create(TopicName("public", "default", "orders"), 1)
    return broker


async def http2(stream, path: str) -> h2.connection.H2Connection:
    """The client's side of a connection with one request on it."""
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    head = [(":method", "GET"), (":path", path), (":authority", "x"), (":scheme", "http")]
    connection.send_headers(1, head, end_stream=True)
    await stream.send_all(connection.data_to_send())
    return connection


async def events_until(stream, connection, kind: type) -> list[h2.events.Event]:
    """What the server has sent up to an event of that kind."""
    found: list[h2.events.Event] = []
    while not any(isinstance(event, kind) for event in found):
        received = await stream.receive_some(READ_BYTES)
        assert received, found
        found += connection.receive_data(received)
    return found


def body_of(events: list[h2.events.Event]) -> bytes:
    return b"".join(one.data for one in events if isinstance(one, h2.events.DataReceived))


async def two_requests(stream):
    await ask(stream, "/healthz")
    await ask(stream, "/no-such")


async def no_request(stream):
    await stream.send_all(b"\x00\xff\r\n\r\n")
    await read_to_end(stream)


async def half_a_body(stream):
    await stream.send_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")


async def posts(stream):
    body = b'{"messages": [{"value": "v"}]}'
    head = f"POST /topics/public/default/orders HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
    await stream.send_all(f"{head}\r\n\r\n".encode() + body)
    assert b"200" in await stream.receive_some(READ_BYTES)


async def waits_for_records(stream):
    await stream.send_all(f"GET {LONG_POLL} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def has_events(stream):
    await stream.send_all(EVENTS)
    received = b""
    while b": ready" not in received:
        received += await stream.receive_some(READ_BYTES)


async def speaks_http2(stream):
    connection = await http2(stream, "/healthz")
    await events_until(stream, connection, h2.events.StreamEnded)


@pytest.mark.parametrize(
    "talk",
    [two_requests, posts, no_request, half_a_body, waits_for_records, has_events, speaks_http2],
)
async def test_an_ended_connection_goes_at_once_and_leaves_no_circle(
    mock_clock, listener, counted, talk
):
    address, _, _ = listener
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        async with await connect(address) as stream:
            await talk(stream)
        await until(lambda: counted.admission.open == 0)
        gc.collect()
        assert not [one for one in gc.garbage if isinstance(one, HttpConnection)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_a_connection_without_requests_is_closed_in_time(mock_clock, listener):
    address, _, _ = listener
    stream = await connect(address)
    await ask(stream, "/healthz")
    for letter in b"GET":  # A head that never ends is no request.
        await wait_all_tasks_blocked()
        await stream.send_all(bytes([letter]))
        mock_clock.jump(KEEP_ALIVE_S / 3 + 0.1)
    assert await read_to_end(stream) == b""


async def test_a_client_that_pipelined_and_closed_its_side_is_answered(mock_clock, listener):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(HEALTH * 3)
    await stream.send_eof()
    assert (await read_to_end(stream)).count(b"HTTP/1.1 200") == 3


async def test_a_stream_that_holds_up_a_request_ends_with_its_client(mock_clock, listener, counted):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(EVENTS + HEALTH)
    await stream.send_eof()
    for _ in range(5):  # The first of them may come before there is a pause.
        await wait_all_tasks_blocked(cushion=PAUSE_S)
        mock_clock.jump(HALF_CLOSED_S)
    await until(lambda: counted.admission.open == 0)


async def test_an_idle_connection_of_http_2_does_not_hold_a_stop(mock_clock, listener):
    address, stopping, done = listener
    stream = await connect(address)
    connection = await http2(stream, "/healthz")
    assert body_of(await events_until(stream, connection, h2.events.StreamEnded)) == b"ok\n"
    stopping.set()
    await until(done.is_set)


async def test_what_waits_over_http_2_is_answered_at_a_stop(mock_clock, listener):
    address, stopping, done = listener
    stream = await connect(address)
    connection = await http2(stream, LONG_POLL)
    await events_until(stream, connection, h2.events.SettingsAcknowledged)
    stopping.set()
    found = await events_until(stream, connection, h2.events.StreamEnded)
    assert json.loads(body_of(found))["messages"] == []
    await until(done.is_set)


async def test_the_rest_of_a_refused_body_over_http_2_holds_up_no_other_request(listener):
    stream = await connect(listener[0])
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    head = [(":method", "POST"), (":path", "/topics/public/default/orders"), (":authority", "x")]
    head += [(":scheme", "http"), ("content-type", "text/plain")]
    connection.send_headers(1, head)
    await stream.send_all(connection.data_to_send())
    found = await events_until(stream, connection, h2.events.StreamEnded)
    assert json.loads(body_of(found))["error_code"] == 41501
    window = connection.local_flow_control_window(1)
    for _ in range(window // connection.max_outbound_frame_size):
        connection.send_data(1, bytes(connection.max_outbound_frame_size))
    await stream.send_all(connection.data_to_send())
    await events_until(stream, connection, h2.events.WindowUpdated)
    connection.end_stream(1)
    head = [(":method", "GET"), (":path", "/healthz"), (":authority", "x"), (":scheme", "http")]
    connection.send_headers(3, head, end_stream=True)
    await stream.send_all(connection.data_to_send())
    assert body_of(await events_until(stream, connection, h2.events.StreamEnded)) == b"ok\n"


@pytest.mark.parametrize(
    "head",
    [
        [(":method", "CONNECT"), (":authority", "x")],
        [(":method", "GET"), (":path", b"/\xff"), (":authority", "x"), (":scheme", "http")],
        [(":method", b"G\xff"), (":path", "/"), (":authority", "x"), (":scheme", "http")],
    ],
)
async def test_a_malformed_request_over_http_2_ends_alone(listener, head):
    stream = await connect(listener[0])
    connection = await http2(stream, "/healthz")
    await events_until(stream, connection, h2.events.StreamEnded)
    connection.send_headers(3, head)
    await stream.send_all(connection.data_to_send())
    await events_until(stream, connection, h2.events.StreamReset)
    head = [(":method", "GET"), (":path", "/healthz"), (":authority", "x"), (":scheme", "http")]
    connection.send_headers(5, head, end_stream=True)
    await stream.send_all(connection.data_to_send())
    assert body_of(await events_until(stream, connection, h2.events.StreamEnded)) == b"ok\n"


async def pass_time(clock, step_s: float) -> None:
    """Let that much time pass whenever nothing is left to do."""
    while True:
        await wait_all_tasks_blocked(cushion=PAUSE_S)
        clock.jump(step_s)


async def test_an_answer_over_http_2_that_nobody_takes_ends_and_gives_its_memory_back(
    mock_clock, listener, counted
):
    partition = counted.topics.get(TopicName("public", "default", "orders")).partitions[0]
    append_records(counted, partition, 5000)
    await counted.durability.settled()
    stream = await connect(listener[0])
    connection = await http2(stream, f"{MESSAGES}?max_messages=10000")
    await events_until(stream, connection, h2.events.DataReceived)
    assert counted.output.used > 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_time, mock_clock, STREAM_STALL_S)
        found = await events_until(stream, connection, h2.events.StreamReset)
        nursery.cancel_scope.cancel()
    assert not any(isinstance(event, h2.events.ConnectionTerminated) for event in found)
    await until(lambda: counted.output.used == 0)
    connection.increment_flow_control_window(READ_BYTES)
    head = [(":method", "GET"), (":path", "/healthz"), (":authority", "x"), (":scheme", "http")]
    connection.send_headers(3, head, end_stream=True)
    await stream.send_all(connection.data_to_send())
    assert body_of(await events_until(stream, connection, h2.events.StreamEnded)) == b"ok\n"


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return (
        struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream_id) + payload
    )


HEADERS, PRIORITY, RST_STREAM = 1, 2, 3
COUNT = 1500  # Hypercorn holds a thousand streams at most.


def chain_of_priorities(head: bytes) -> bytes:
    return b"".join(
        frame(PRIORITY, 0, number, struct.pack(">IB", number + 2, 255))
        for number in range(3, 3 + 2 * COUNT, 2)
    )


def requests_that_are_reset(head: bytes) -> bytes:
    return b"".join(
        frame(HEADERS, 5, number, head) + frame(RST_STREAM, 0, number, bytes(4))
        for number in range(3, 3 + 2 * COUNT, 2)
    )


@pytest.mark.parametrize("make", [chain_of_priorities, requests_that_are_reset])
async def test_a_connection_of_http_2_survives_very_many(listener, make):
    stream = await connect(listener[0])
    connection = await http2(stream, "/healthz")
    await events_until(stream, connection, h2.events.StreamEnded)
    head = [(":method", "GET"), (":path", "/healthz"), (":authority", "x"), (":scheme", "http")]
    await stream.send_all(make(hpack.Encoder().encode(head)))
    await stream.send_all(frame(HEADERS, 5, 9001, hpack.Encoder().encode(head)))
    data = b""
    while frame(0, 1, 9001, b"") not in data:
        received = await stream.receive_some(READ_BYTES)
        assert received, data
        data += received
    assert frame(0, 0, 9001, b"ok\n") in data


@pytest.mark.slow
async def test_a_connection_of_http_2_answers_more_requests_than_a_thousand(listener):
    stream = await connect(listener[0])
    connection = await http2(stream, "/healthz")
    await events_until(stream, connection, h2.events.StreamEnded)
    head = [(":method", "GET"), (":path", "/healthz"), (":authority", "x"), (":scheme", "http")]
    answered = 1
    while answered < Config().keep_alive_max_requests + 100:
        for _ in range(50):
            connection.send_headers(
                connection.get_next_available_stream_id(), head, end_stream=True
            )
        await stream.send_all(connection.data_to_send())
        left = 50
        while left:
            found = connection.receive_data(await stream.receive_some(READ_BYTES))
            assert not any(isinstance(one, h2.events.ConnectionTerminated) for one in found)
            left -= sum(isinstance(one, h2.events.StreamEnded) for one in found)
        answered += 50
