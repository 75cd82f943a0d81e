"""HTTP/1.1 as it is sent: what leaves in one piece, and what does not."""

from __future__ import annotations

import pytest
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Response, StreamClosed
from hypercorn.trio.worker_context import WorkerContext

from braidlog.protocols.http.http1 import Applications, Http1, Prompt
from braidlog.protocols.http.ordinary import TOGETHER_BYTES

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
STREAM = 1


class Given:
    """A task group that starts nothing."""

    async def spawn_app(self, app, config, scope, send):
        async def put(event):
            pass

        return put


@pytest.fixture
def sent() -> list[object]:
    return []


@pytest.fixture
async def protocol(sent) -> Http1:
    """A connection with one request that nobody has answered yet."""

    async def send(event):
        if not isinstance(event, Updated):
            sent.append(event)

    async def wait():
        """The request is not over: the next one is not read."""

    made = Http1(None, Config(), WorkerContext(None), Given(), {}, False, None, None, send)
    made.can_read.wait = wait
    made.connection.receive_data(REQUEST)
    await made._create_stream(made.connection.next_event())
    made.connection.next_event()  # Its end.
    return made


def answer_of(length: int | None) -> Response:
    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return Response(STREAM, headers, 200)


async def test_a_short_answer_leaves_in_one_piece(protocol, sent):
    await protocol.stream_send(answer_of(4))
    assert sent == []
    await protocol.stream_send(Body(STREAM, b"body"))
    await protocol.stream_send(EndBody(STREAM))
    (piece,) = sent
    assert isinstance(piece, Prompt)
    assert piece.data.startswith(b"HTTP/1.1 200") and piece.data.endswith(b"\r\n\r\nbody")


async def test_only_the_first_of_a_body_leaves_with_the_head(protocol, sent):
    await protocol.stream_send(answer_of(8))
    await protocol.stream_send(Body(STREAM, b"body"))
    await protocol.stream_send(Body(STREAM, b"more"))
    assert [type(piece) for piece in sent] == [Prompt, RawData]
    assert sent[1].data == b"more"


async def test_a_large_body_is_not_copied_behind_its_head(protocol, sent):
    body = bytes(TOGETHER_BYTES + 1)
    await protocol.stream_send(answer_of(len(body)))
    await protocol.stream_send(Body(STREAM, body))
    assert [type(piece) for piece in sent] == [RawData, RawData]
    assert sent[0].data.endswith(b"\r\n\r\n") and sent[1].data == body


async def test_the_head_of_an_endless_answer_leaves_at_once(protocol, sent):
    await protocol.stream_send(answer_of(None))
    (head,) = sent
    assert b"chunked" in head.data
    await protocol.stream_send(Body(STREAM, b"body"))
    assert sent[1].data == b"4\r\nbody\r\n"


async def test_an_answer_without_a_body_leaves_at_its_end(protocol, sent):
    await protocol.stream_send(answer_of(0))
    await protocol.stream_send(EndBody(STREAM))
    (head,) = sent
    assert head.data.endswith(b"\r\n\r\n")


async def test_a_head_whose_body_never_comes_leaves_before_the_end(protocol, sent):
    await protocol.stream_send(answer_of(4))
    await protocol.stream_send(StreamClosed(STREAM))
    assert b"content-length: 4" in sent[0].data
    assert isinstance(sent[1], Closed)


async def test_what_has_come_is_handed_over_without_a_turn_of_the_loop():
    config = Config()
    config.max_app_queue_size = 2
    turns: list[str] = []

    async def app(scope, receive, send, *_):
        turns.append("begins")
        with trio.CancelScope() as scope:
            scope.cancel()  # What waits would end here.
            turns.extend([await receive(), await receive()])
        turns.append(await receive())

    async def send(event):
        assert event is None
        turns.append("ended")

    async with Applications() as group:
        give = await group.spawn_app(app, config, {}, send)
        with trio.CancelScope() as scope:
            scope.cancel()
            await give("first")
            await give("second")
        assert turns == []
        await give("third")  # There is room for two: it waits.
    assert turns == ["begins", "first", "second", "third", "ended"]
