import math

import h11
import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    Request,
    TextMessage,
)
from wsproto.utilities import RemoteProtocolError

from braidlog.protocols.transport.websocket import (
    ABNORMAL,
    CLOSE_S,
    GOING_AWAY,
    PING_S,
    SILENT_S,
    TOO_LARGE,
    WebSocket,
    asks_for_websocket,
    open_machine,
)

LIMIT = 100
HEADERS = [
    ("Host", "x"),
    ("Upgrade", "WebSocket"),
    ("Connection", "keep-alive, Upgrade"),
    ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ("Sec-WebSocket-Version", "13"),
]


class WebSocketPeer:
    """The peer of a WebSocket: a fake stream below, and wsproto's client machine."""

    def __init__(self):
        self.machine = WSConnection(ConnectionType.CLIENT)
        self.into, self._received = trio.open_memory_channel(math.inf)
        self.is_gone = False
        self.events = []
        opening = self.machine.send(Request(host="x", target="/"))
        server = h11.Connection(h11.SERVER)
        server.receive_data(opening)
        self.socket = WebSocket(self, open_machine(server.next_event()), b"", LIMIT)

    # The stream below.

    async def read(self):
        return await self._received.receive()

    async def write(self, data, *, at_once=False):
        await trio.lowlevel.checkpoint()
        if self.is_gone:
            return False
        self.machine.receive_data(data)
        self.events += self.machine.events()
        return True

    # The client.

    def send(self, event):
        self.into.send_nowait(self.machine.send(event))

    def send_raw(self, data):
        self.into.send_nowait(data)

    async def take_events(self):
        await wait_all_tasks_blocked()
        events, self.events = self.events, []
        return events


@pytest.fixture
async def client():
    peer = WebSocketPeer()
    await peer.socket.accept([(b"x-request-id", b"7")])
    (accepted,) = peer.events
    assert isinstance(accepted, AcceptConnection)
    assert (b"x-request-id", b"7") in accepted.extra_headers
    peer.events.clear()
    return peer


def frame(opcode, payload, *, is_last=True, mask=b"\0\0\0\0"):
    size = len(payload)
    head = bytes([opcode | (0x80 if is_last else 0)])
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2, "big")
    return head + length + mask + payload


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"Sec-WebSocket-Version": "12"}, "version"),
        ({"Sec-WebSocket-Key": None}, "Key"),
        ({"Connection": "keep-alive"}, "Connection"),
        ({"Host": "xn--" + "x" * 80}, "text"),
        ({"Host": b"\xff"}, "text"),
        ({"Sec-WebSocket-Extensions": b"\xff"}, "text"),
        ({"Sec-WebSocket-Protocol": b"\xff"}, "text"),
    ],
)
def test_faulty_opening_request_is_named(change, fault):
    headers = {**dict(HEADERS), **change}
    request = h11.Request(
        method="GET",
        target="/ws",
        headers=[(name, value) for name, value in headers.items() if value is not None],
    )
    assert asks_for_websocket(request)
    if fault is None:
        open_machine(request)
        return
    with pytest.raises(RemoteProtocolError, match=f"(?i){fault}"):
        open_machine(request)


def test_post_cannot_open_a_websocket():
    with pytest.raises(RemoteProtocolError, match="GET"):
        open_machine(h11.Request(method="POST", target="/ws", headers=HEADERS))


def test_plain_request_asks_for_no_websocket():
    request = h11.Request(method="GET", target="/ws", headers=[("Host", "x"), ("Upgrade", "h2c")])
    assert not asks_for_websocket(request)


async def test_messages_arrive_whole_from_any_chunks(client):
    data = b"".join(
        client.machine.send(event)
        for event in (
            TextMessage("gr", message_finished=False),
            TextMessage("ü", message_finished=True),
            BytesMessage(b"\x01\x02"),
            TextMessage(""),
        )
    )
    for byte in data:
        client.send_raw(bytes([byte]))
    assert [await client.socket.receive() for _ in range(3)] == [
        {"type": "websocket.receive", "text": "grü"},
        {"type": "websocket.receive", "bytes": b"\x01\x02"},
        {"type": "websocket.receive", "text": ""},
    ]


async def test_frames_after_the_opening_request_are_received():
    peer = WebSocketPeer()
    peer.socket._received = frame(0x1, b"early")
    await peer.socket.accept([])
    assert (await peer.socket.receive())["text"] == "early"


async def test_ping_between_fragments_is_answered(client, nursery):
    client.send_raw(
        frame(0x1, b"a", is_last=False) + frame(0x9, b"are you there") + frame(0x0, b"b")
    )
    assert (await client.socket.receive())["text"] == "ab"
    (pong,) = await client.take_events()
    assert isinstance(pong, Pong) and pong.payload == b"are you there"


async def test_close_is_answered_and_ends_the_messages(client):
    client.send(CloseConnection(1000, "done"))
    end = {"type": "websocket.disconnect", "code": 1000, "reason": "done"}
    assert await client.socket.receive() == end
    assert await client.socket.receive() == end
    (answer,) = await client.take_events()
    assert isinstance(answer, CloseConnection) and answer.code == 1000
    await client.socket.send("too late")
    assert await client.take_events() == []


async def test_lost_client_is_a_disconnect(client):
    client.send_raw(frame(0x1, b"half of a mess")[:-3])
    client.send_raw(b"")
    assert (await client.socket.receive())["code"] == ABNORMAL
    await client.socket.send("nobody receives this")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(0x1, b"\xff"), 1007),  # No UTF-8.
        (frame(0x1, b"\xc3", is_last=False) + frame(0x0, b"("), 1007),
        (frame(0x0, b"x"), 1002),  # A continuation of nothing.
        (frame(0x3, b"x"), 1002),
        (frame(0x41, b"x"), 1002),  # A reserved bit: compression was not negotiated.
        (b"\x81\x01x", 1002),  # Not masked.
        (frame(0x1, b"x", is_last=False) + frame(0x1, b"y"), 1002),
        (frame(0x9, b"x" * 126), 1002),  # A long control frame.
        (frame(0x9, b"x", is_last=False), 1002),
        (frame(0x8, b"\x03"), 1002),
        (frame(0x8, (999).to_bytes(2, "big")), 1002),
    ],
)
async def test_frames_that_break_the_rules_close_with_their_code(client, data, code):
    client.send_raw(data)
    end = await client.socket.receive()
    assert (end["type"], end["code"]) == ("websocket.disconnect", code)
    (closed,) = await client.take_events()
    assert isinstance(closed, CloseConnection) and closed.code == code


@pytest.mark.parametrize("is_one_frame", [True, False])
async def test_too_large_message_is_refused_before_its_end(client, is_one_frame):
    if is_one_frame:
        client.send_raw(frame(0x1, b"x" * 5000)[: LIMIT + 20])  # The rest never comes.
    else:
        client.send_raw(frame(0x1, b"x", is_last=False))
        for _ in range(LIMIT):
            client.send_raw(frame(0x0, b"x", is_last=False))
    assert (await client.socket.receive())["code"] == TOO_LARGE
    (closed,) = await client.take_events()
    assert closed.code == TOO_LARGE and str(LIMIT) in closed.reason


async def test_very_many_empty_frames_hold_no_memory_and_give_way(client):
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    client.send_raw(frame(0x1, b"", is_last=False) + frame(0x0, b"", is_last=False) * 5000)
    client.send_raw(frame(0x0, b"end"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        assert (await client.socket.receive())["text"] == "end"
        nursery.cancel_scope.cancel()
    assert turns >= 50


async def test_silent_client_is_pinged_and_then_closed(client, nursery, autojump_clock):
    async def answer_once():
        await trio.sleep(PING_S + 1)
        (ping,) = client.events
        assert isinstance(ping, Ping)
        client.send(ping.response())

    began = trio.current_time()
    nursery.start_soon(answer_once)
    assert await client.socket.receive() == {"type": "websocket.pong"}
    assert (await client.socket.receive())["code"] == GOING_AWAY
    assert trio.current_time() - began >= PING_S + SILENT_S
    assert client.events[-1].code == GOING_AWAY


async def test_finish_waits_for_the_clients_close_but_not_long(client, nursery, autojump_clock):
    await client.socket.close(1000)
    await client.socket.close(1011, "only the first close counts")
    began = trio.current_time()
    await client.socket.finish()
    assert trio.current_time() - began == CLOSE_S
    (closed,) = client.events
    assert closed.code == 1000


async def test_finish_ends_when_the_client_answers(client, nursery, autojump_clock):
    await client.socket.close(1000)
    client.send_raw(b"".join([frame(0x1, b"late"), frame(0x8, b"\x03\xe8")]))
    began = trio.current_time()
    await client.socket.finish()
    assert trio.current_time() == began


async def test_frames_of_several_tasks_stay_whole(client, nursery):
    for number in range(20):
        nursery.start_soon(client.socket.send, f"{number} " * 50)
    received = [event.data for event in await client.take_events()]
    assert sorted(received) == sorted(f"{number} " * 50 for number in range(20))


async def test_lost_client_costs_no_further_sends(client):
    client.is_gone = True
    await client.socket.send("a")
    assert client.socket.has_left
    await client.socket.close()
    await client.socket.finish()
