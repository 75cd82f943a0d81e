import pytest
from trio.testing import wait_all_tasks_blocked

from braidlog.protocols.http.bodies import PROMPT_S
from braidlog.protocols.http.requests import REQUESTS_MAX
from braidlog.protocols.transport.connection import HALF_CLOSED_S, HttpConnection
from braidlog.protocols.transport.serving import KEEP_ALIVE_S
from braidlog.storage.metadata.names import TopicName
from tests.cycles import watched_cycles
from tests.protocols.http.listening import READ_BYTES, ask, connect, read_to_end
from tests.waiting import PAUSE_S, until

MESSAGES = "/topics/public/default/orders/partitions/0/messages"
LONG_POLL = f"{MESSAGES}?timeout=60000"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
EVENTS = f"GET {MESSAGES} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n".encode()


@pytest.fixture
async def counted(broker):
    """Return a broker with a topic."""
    await broker.topics.create(TopicName("public", "default", "orders"), 1)
    return broker


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


@pytest.mark.parametrize(
    "talk", [two_requests, posts, no_request, half_a_body, waits_for_records, has_events]
)
async def test_an_ended_connection_is_freed_at_once_without_a_cycle(
    mock_clock, listener, counted, talk
):
    address, _, _ = listener
    with watched_cycles() as left:
        async with await connect(address) as stream:
            await talk(stream)
        await until(lambda: counted.admission.open == 0)
        assert not [item for item in left() if isinstance(item, HttpConnection)]


async def test_a_connection_without_requests_is_closed_in_time(mock_clock, listener):
    address, _, _ = listener
    stream = await connect(address)
    await ask(stream, "/healthz")
    for letter in b"GET":  # An endless head is no request.
        await wait_all_tasks_blocked()
        await stream.send_all(bytes([letter]))
        mock_clock.jump(KEEP_ALIVE_S / 3 + 0.1)
    assert await read_to_end(stream) == b""


async def test_stalled_uploads_do_not_block_other_requests(mock_clock, listener):
    head = "POST /topics/public/default/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    stalled = [await connect(listener[0]) for _ in range(REQUESTS_MAX)]
    for stream in stalled:
        await stream.send_all(head.encode())
    other = await connect(listener[0])
    await wait_all_tasks_blocked(cushion=PAUSE_S)
    mock_clock.jump(PROMPT_S + 0.1)
    await wait_all_tasks_blocked(cushion=PAUSE_S)
    assert await ask(other, "/healthz") == (200, b"ok\n")


async def test_a_client_that_pipelined_and_closed_its_side_is_answered(mock_clock, listener):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(HEALTH * 3)
    await stream.send_eof()
    assert (await read_to_end(stream)).count(b"HTTP/1.1 200") == 3


async def test_a_stream_before_a_waiting_request_ends_with_its_client(
    mock_clock, listener, counted
):
    address, _, _ = listener
    stream = await connect(address)
    await stream.send_all(EVENTS + HEALTH)
    await stream.send_eof()
    for _ in range(5):  # The first may come before there is a pause.
        await wait_all_tasks_blocked(cushion=PAUSE_S)
        mock_clock.jump(HALF_CLOSED_S)
    await until(lambda: counted.admission.open == 0)
