"""Framed connections inside a WebSocket: the same frames as without, endings, and refusals."""

import struct

import pytest
import structlog
import trio
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from braidlog.broker.server.listener import Listener, accept
from braidlog.protocols.transport.websocket_stream import (
    HEAD_BYTES_MAX,
    NO_WEBSOCKET,
    UPGRADE_S,
    open_websocket,
)
from tests.broker.server.certificates import open_tls, tls_settings
from tests.broker.server.echo import EchoAdapter, framed, receive_all, receive_frame
from tests.protocols.ws_client import WsClient
from tests.waiting import until

ORIGIN = "http://console.example"


class WebSocketEcho(EchoAdapter):
    async def open_stream(self, stream, options):
        return await open_websocket(stream, options)


@pytest.fixture
async def serve(broker, nursery, tmp_path):
    opened = []

    def start(origins=(), tls=None):
        adapter = WebSocketEcho()
        listener = Listener("ws", "echo", adapter, origins, ("127.0.0.1", 0), None, tls)
        listener.open()
        nursery.start_soon(accept, listener, broker, nursery)
        opened.append(listener)
        return listener

    yield start
    for listener in opened:
        listener.close()


@pytest.fixture
async def client(serve):
    ws_client = WsClient(await trio.open_tcp_stream(*serve().bound))
    await ws_client.open()
    return ws_client


async def test_frames_of_any_size_go_both_ways(client):
    texts = [b"", b"a", b"x" * 119, b"x" * 122, b"y" * 40_000, b"z" * 65_527, b"w" * 1_000_000]
    for text in texts:
        await client.send_all(framed(b"E" + text))
        assert await receive_frame(client) == text
    assert client.messages >= len(texts)


@pytest.mark.parametrize("piece", [1, 7, 5000])
async def test_where_a_message_ends_has_no_meaning(client, piece):
    texts = [b"a", b"b" * 300, b"c" * 900]
    stream = b"".join(framed(b"E" + text) for text in texts)
    pieces = [stream[at : at + piece] for at in range(0, len(stream), piece)]
    await client.send(*(BytesMessage(piece) for piece in pieces))
    for text in texts:
        assert await receive_frame(client) == text


async def test_a_message_may_come_in_fragments_with_a_ping_between(client):
    whole = framed(b"E" + b"text" * 10)
    await client.send(
        BytesMessage(whole[:5], message_finished=False),
        Ping(b"now"),
        BytesMessage(whole[5:], message_finished=True),
    )
    assert await receive_frame(client) == b"text" * 10
    assert client.pongs == [b"now"]


async def test_frames_that_come_with_the_opening_request_are_served(serve):
    client = WsClient(await trio.open_tcp_stream(*serve().bound))
    early = b"\x82\x86\0\0\0\0" + framed(b"Ex")  # With a mask of zeros.
    send_all = client.stream.send_all
    client.stream.send_all = lambda data: send_all(data + early)
    await client.open()
    assert await receive_frame(client) == b"x"


@pytest.mark.slow
async def test_a_slow_reader_gets_every_byte_in_order_and_a_late_pong(client, broker):
    sizes = [16 << 20, 70_000, 3, 65_536, 200_000]  # More than the kernel's buffers hold.
    await client.send_all(b"".join(framed(b"L%d" % size) for size in sizes))
    await until(lambda: any(connection.outbox.unsent_bytes for connection in broker.connections))
    await client.ping(b"late")
    for size in sizes:
        assert len(await receive_frame(client)) == size
    await client.send_all(framed(b"Eend"))
    assert await receive_frame(client) == b"end"
    assert client.pongs == [b"late"]


async def test_the_clients_close_is_answered_after_the_answers(client):
    await client.send(BytesMessage(framed(b"Elast")), CloseConnection(1000, "done"))
    assert await receive_frame(client) == b"last"
    closed = await client.until_closed()
    assert closed == CloseConnection(1000, "done")
    assert await client.stream.receive_some(1) == b""


async def test_the_brokers_end_is_a_close_frame(client):
    await client.send_all(framed(b"Qbye"))
    assert await receive_frame(client) == b"quiet"
    closed = await client.until_closed()
    assert closed is not None and closed.code == 1001


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        (b"\x82\x01x", 1002, "unmasked"),
        (b"\xc2\x81\0\0\0\0x", 1002, "Reserved bit"),
        (b"\x83\x81\0\0\0\0x", 1002, "opcode"),
        (b"\x80\x81\0\0\0\0x", 1002, "CONTINUATION"),
        (b"\x82\xff" + struct.pack(">Q", 1 << 63) + bytes(4), 1002, "MSB"),
        (b"\x89\xfe\x00\x7e" + bytes(4), 1002, "Control frame"),
        (b"\x81\x81\0\0\0\0x", 1003, "binary messages only"),
    ],
)
async def test_a_fault_ends_the_connection_after_the_frames_before(client, frame, code, reason):
    good = client.machine.send(BytesMessage(framed(b"Egood")))
    with structlog.testing.capture_logs() as events:
        await client.stream.send_all(good + frame)
        assert await receive_frame(client) == b"good"
        closed = await client.until_closed()
    assert closed is not None and closed.code == code and reason in (closed.reason or "")
    assert [event["event"] for event in events] == ["protocol_error"]


@pytest.mark.slow
async def test_ten_thousand_empty_frames_are_handled_in_turns(client):
    empty = b"\x82\x80\0\0\0\0"
    await client.stream.send_all(empty * 10_000)
    await client.send_all(framed(b"Eend"))
    assert await receive_frame(client) == b"end"


@pytest.mark.slow
async def test_frames_inside_tls(serve, tmp_path):
    listener = serve(tls=tls_settings(tmp_path, "none"))
    client = WsClient(await open_tls(listener.bound))
    await client.open()
    texts = [b"a", b"b" * 16_384, b"c" * 3_000_000]
    await client.send_all(b"".join(framed(b"E" + text) for text in texts))
    for text in texts:
        assert await receive_frame(client) == text
    await client.send(CloseConnection(1000))
    assert await client.until_closed() == CloseConnection(1000, "")


async def test_a_bug_in_the_opening_ends_no_other_connection(serve, client, broker, monkeypatch):
    async def fail(self, stream, options):
        raise RuntimeError("a bug")

    monkeypatch.setattr(WebSocketEcho, "open_stream", fail)
    with structlog.testing.capture_logs() as events:
        assert await answer_to(serve(), OPENING + b"\r\n") == b""
    assert [event["event"] for event in events] == ["connection_failed"]
    await client.send_all(framed(b"Estill here"))
    assert await receive_frame(client) == b"still here"


async def answer_to(listener, request: bytes) -> bytes:
    stream = await trio.open_tcp_stream(*listener.bound)
    await stream.send_all(request)
    return await receive_all(stream)


OPENING = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)


@pytest.mark.parametrize(
    ("request_bytes", "status", "text"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 426, NO_WEBSOCKET),
        (OPENING.replace(b"GET", b"PUT") + b"\r\n", 400, "GET"),
        (OPENING.replace(b": 13", b": 12") + b"\r\n", 400, "Version"),
        (OPENING + b"Content-Length: 1\r\n\r\nx", 400, "body"),
        (OPENING + b"Origin: http://evil.example\r\n\r\n", 403, "http://evil.example"),
        (OPENING + b"Origin: http://[\r\n\r\n", 403, "http://["),
        (OPENING + b"Origin: \xff//\xe2\x84\x80\r\n\r\n", 403, "may not connect"),
        (b"\0\1\2\3 what\r\n\r\n", 400, "illegal"),
        (OPENING + b"A: " + b"x" * HEAD_BYTES_MAX, 431, ""),
    ],
)
async def test_other_requests_are_refused_readably(serve, broker, request_bytes, status, text):
    listener = serve()
    with structlog.testing.capture_logs() as events:
        answer = (await answer_to(listener, request_bytes)).decode()
        await until(lambda: broker.admission.open == 0)
    assert answer.startswith(f"HTTP/1.1 {status} ") and text in answer
    assert [event["event"] for event in events] == ["websocket_handshake_failed"]


@pytest.mark.parametrize(
    ("origins", "origin"),
    [((), "http://x"), ((ORIGIN,), ORIGIN), (("*",), "http://anything.example")],
)
async def test_pages_of_allowed_origins_may_connect(serve, origins, origin):
    client = WsClient(await trio.open_tcp_stream(*serve(origins).bound))
    await client.open([(b"origin", origin.encode())])
    await client.send_all(framed(b"Ehello"))
    assert await receive_frame(client) == b"hello"


async def test_a_silent_client_is_disconnected(serve, broker, autojump_clock):
    stream = await trio.open_tcp_stream(*serve().bound)
    began = trio.current_time()
    assert await receive_all(stream) == b""
    assert trio.current_time() - began == pytest.approx(UPGRADE_S, abs=1)
    assert broker.admission.open == 0


async def test_text_is_refused_however_it_is_cut(client):
    await client.send(TextMessage("te", message_finished=False), TextMessage("xt"))
    closed = await client.until_closed()
    assert closed is not None and closed.code == 1003
