"""Connections of HTTP/2: their streams end alone, and no client of them holds up others."""

import json
import struct

import h2.connection
import h2.events
import hpack
import pytest
import trio
from hypercorn.config import Config
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.runtime.poller import Poller
from braidlog.protocols.http import requests
from braidlog.protocols.http.http2 import CROWDED_S, RUNNING_MAX, STREAM_STALL_S
from braidlog.protocols.http.server import KEEP_ALIVE_S
from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.http2 import (
    LONG_POLL,
    MESSAGES,
    body_of,
    events_until,
    http2,
    with_orders,
)
from tests.protocols.http.listening import READ_BYTES, ask, connect, read_to_end
from tests.protocols.http.records import append_records
from tests.waiting import PAUSE_S, until


@pytest.fixture
async def counted(broker):
    """A broker with a topic."""
    return await with_orders(broker)


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


DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, _, _, GOAWAY, _, CONTINUATION = range(10)
HEAD = [(":method", "GET"), (":path", "/healthz"), (":authority", "x"), (":scheme", "http")]
HEAD_OF_HEALTH = hpack.Encoder().encode(HEAD)
COUNT = 1500  # Hypercorn holds a thousand streams at most.


def chain_of_priorities(head: bytes) -> bytes:
    return b"".join(
        frame(PRIORITY, 0, number, struct.pack(">IB", number + 2, 255))
        for number in range(3, 3 + 2 * COUNT, 2)
    )


def requests_that_are_reset(head: bytes, first: int = 3) -> bytes:
    return b"".join(
        frame(HEADERS, 5, number, head) + frame(RST_STREAM, 0, number, bytes(4))
        for number in range(first, first + 2 * COUNT, 2)
    )


@pytest.mark.parametrize("path", ["/healthz", "/nothing", "/openapi.json", "/docs"])
async def test_who_takes_no_answers_over_http_2_keeps_nobody_else_from_theirs(
    listener, monkeypatch, path
):
    monkeypatch.setattr(requests, "REQUESTS_MAX", 3)
    stream, other = await connect(listener[0]), await connect(listener[0])
    await ask(other, path)  # Documents are made when somebody first asks.
    head = hpack.Encoder().encode([*HEAD[:1], (":path", path), *HEAD[2:]])
    no_window = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
    asked = b"".join(frame(HEADERS, 5, number, head) for number in range(1, 21, 2))
    await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + no_window + asked)
    answers = b""
    while frame(HEADERS, 4, 19, b"")[3:] not in answers:  # The head of the last one.
        answers += await stream.receive_some(READ_BYTES)
    await wait_all_tasks_blocked(cushion=PAUSE_S)
    assert (await ask(other, "/healthz")) == (200, b"ok\n")


@pytest.mark.parametrize("make", [chain_of_priorities, requests_that_are_reset])
async def test_a_connection_of_http_2_survives_very_many(listener, make):
    stream = await connect(listener[0])
    connection = await http2(stream, "/healthz")
    await events_until(stream, connection, h2.events.StreamEnded)
    await stream.send_all(make(HEAD_OF_HEALTH))
    await health_after_all(stream)


@pytest.mark.parametrize("cut", [1, 5, 24 + 4, 24 + 9 + 8, 10**6])
async def test_a_frame_that_is_too_long_over_http_2_is_refused_by_its_head(listener, cut):
    stream = await connect(listener[0])
    head = frame(DATA, 0, 1, b"")
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"")
    data += (2**14 + 1).to_bytes(3) + head[3:] + b"x"
    await stream.send_all(data[:cut])
    await wait_all_tasks_blocked(cushion=PAUSE_S)
    await stream.send_all(data[cut:])
    goaway = (await read_to_end(stream))[-17:]
    assert (goaway[3], struct.unpack_from(">I", goaway, 13)[0]) == (GOAWAY, 6)  # FRAME_SIZE_ERROR


@pytest.mark.parametrize("whole", [True, False])
async def test_headers_over_http_2_that_come_in_many_frames_are_refused_before_they_are_collected(
    listener, whole
):
    stream = await connect(listener[0])
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"")
    data += frame(HEADERS, 0, 1, bytes(2**14))
    data += frame(CONTINUATION, 0, 1, bytes(2**14))  # That is HEAD_BYTES_MAX.
    await stream.send_all(data)
    await wait_all_tasks_blocked(cushion=PAUSE_S)
    last = frame(CONTINUATION, 4, 1, b"x")  # END_HEADERS
    await stream.send_all(last if whole else last[:9])
    goaway = (await read_to_end(stream))[-17:]
    code = struct.unpack_from(">I", goaway, 13)[0]
    assert (goaway[3], code) == (GOAWAY, 11)  # ENHANCE_YOUR_CALM


@pytest.mark.parametrize("begun", [False, True])
async def test_a_connection_of_http_2_without_a_whole_request_ends_as_one_of_http_1_does(
    mock_clock, listener, begun
):
    stream = await connect(listener[0])
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"")
    await stream.send_all(data + (frame(HEADERS, 0, 1, b"x") if begun else b""))
    await wait_all_tasks_blocked(cushion=PAUSE_S)
    mock_clock.jump(KEEP_ALIVE_S + 0.1)
    await read_to_end(stream)


async def health_after_all(stream) -> None:
    """Ask once more, and read up to the answer."""
    await stream.send_all(frame(HEADERS, 5, 9001, HEAD_OF_HEALTH))
    data = b""
    while frame(DATA, 1, 9001, b"") not in data:
        received = await stream.receive_some(READ_BYTES)
        assert received, data[-1000:]
        data = data[-1000:] + received
    assert frame(DATA, 0, 9001, b"ok\n") in data


async def test_requests_that_waited_and_were_reset_leave_nothing_behind(listener, counted):
    stream = await connect(listener[0])
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    await stream.send_all(connection.data_to_send())
    waits = [*HEAD[:1], (":path", LONG_POLL), *HEAD[2:]]
    head = hpack.Encoder().encode(waits)
    waiting = counted.metrics.number("braidlog_waiting_requests", "http")
    for first in range(1, 2 * COUNT, 100):  # As many as it serves at once, again and again.
        numbers = range(first, first + 100, 2)
        await stream.send_all(b"".join(frame(HEADERS, 5, number, head) for number in numbers))
        await until(lambda: waiting.value == 50)
        await stream.send_all(b"".join(frame(RST_STREAM, 0, one, bytes(4)) for one in numbers))
        await until(lambda: waiting.value == 0)
    await health_after_all(stream)
    await stream.aclose()
    await until(lambda: counted.admission.open == 0)


async def test_requests_are_reset_over_http_2_while_nothing_can_be_sent(listener, counted):
    partition = counted.topics.get(TopicName("public", "default", "orders")).partitions[0]
    for _ in range(2):
        append_records(counted, partition, 5000)
    await counted.durability.settled()
    stream = await connect(listener[0])
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
    connection.increment_flow_control_window(2**30)
    await stream.send_all(connection.data_to_send())
    large = [*HEAD[:1], (":path", f"{MESSAGES}?max_messages=10000"), *HEAD[2:]]
    head = hpack.Encoder().encode(large)
    await stream.send_all(b"".join(frame(HEADERS, 5, number, head) for number in range(1, 20, 2)))
    await wait_all_tasks_blocked(cushion=CROWDED_S / 2)  # The sockets are full.
    await stream.send_all(requests_that_are_reset(HEAD_OF_HEALTH, first=21))
    await wait_all_tasks_blocked(cushion=CROWDED_S / 2)
    await health_after_all(stream)


async def test_requests_that_are_reset_before_their_turn_are_bounded(listener, monkeypatch):
    turn = trio.Event()
    stream = await connect(listener[0])
    connection = await http2(stream, "/healthz")
    await events_until(stream, connection, h2.events.StreamEnded)
    monkeypatch.setattr(Poller, "give_way", lambda _: turn.wait())  # Others have work.
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, requests_that_are_reset(HEAD_OF_HEALTH))
        await wait_all_tasks_blocked(cushion=CROWDED_S / 2)
        assert 0 < trio.lowlevel.current_statistics().tasks_living - tasks <= RUNNING_MAX + 2
        turn.set()
    await health_after_all(stream)


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
