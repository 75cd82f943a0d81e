"""Ordinary requests and answers of HTTP/1.1: whatever is taken here h11 reads the same way."""

from __future__ import annotations

import random

import h11
import pytest

from braidlog.protocols.http.ordinary import (
    HEAD_BYTES_MAX,
    TOGETHER_BYTES,
    Answer,
    Dates,
    read_head,
)

REQUEST = (
    b"POST /topics/a/b%2Fc?x=1&y=? HTTP/1.1\r\nHost: example.org\r\nContent-Length: 5\r\n"
    b"X-Empty:\r\naccept: \t a  b \t\r\nConnection: Keep-Alive\r\n\r\nhello"
)


def test_a_head_is_read():
    head = read_head(REQUEST)
    assert (head.method, head.path, head.query) == ("POST", b"/topics/a/b%2Fc", b"x=1&y=?")
    assert head.headers == [
        (b"host", b"example.org"),
        (b"content-length", b"5"),
        (b"x-empty", b""),
        (b"accept", b"a  b"),
        (b"connection", b"Keep-Alive"),
    ]
    assert REQUEST[head.size :] == b"hello"
    assert head.body_bytes == 5


@pytest.mark.parametrize("length", range(len(REQUEST) - len(b"hello")))
def test_half_a_head_is_none(length):
    assert read_head(REQUEST[:length]) is None


@pytest.mark.parametrize(
    "lines",
    [
        b"GET / HTTP/1.0\r\nHost: x",
        b"GET / HTTP/1.1",  # Without a host.
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: x",
        b"GET http://x/ HTTP/1.1\r\nHost: x",
        b"OPTIONS * HTTP/1.1\r\nHost: x",
        b"get / HTTP/1.1\r\nHost: x",
        b"GAT / HTTP/1.1\r\nHost: x",
        b"GET  / HTTP/1.1\r\nHost: x",
        b"GET /\xff HTTP/1.1\r\nHost: x",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: \xff",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: a\nY: b",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: a\rY: b",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded",
        b"GET / HTTP/1.1\r\nHost: x\r\nX : a",
        b"GET / HTTP/1.1\r\nHost: x\r\nnothing",
        b"GET / HTTP/1.1\r\nHost: x\r\n: nothing",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +1",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length:",
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, te",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, upgrade",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c",
        b"GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * HEAD_BYTES_MAX,
        b"PRI * HTTP/2.0",
        b"\r\nGET / HTTP/1.1\r\nHost: x",
    ],
)
def test_what_is_not_surely_ordinary_is_left_to_h11(lines):
    assert read_head(lines + b"\r\n\r\n") is None


def test_a_client_may_want_the_connection_to_end():
    for value in (b"close", b"Close"):
        assert read_head(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: %b\r\n\r\n" % value).closes
    assert not read_head(REQUEST).closes


def changed(rng: random.Random, request: bytes) -> bytes:
    """The same with a few bytes changed, put in, taken out or doubled."""
    data = bytearray(request)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data))
        piece = bytes(rng.choices(b"\r\n \t:,;?%#0aZ\x00\x0b\x7f\x80\xff", k=rng.randrange(3)))
        data[at : at + rng.randrange(3)] = piece
        if rng.random() < 0.2:
            start = rng.randrange(len(data))
            data[start:start] = data[start : start + rng.randrange(30)]
    return bytes(data)


@pytest.mark.parametrize("seed", range(20))
def test_h11_reads_the_same(seed):
    rng = random.Random(seed)
    taken = 0
    for _ in range(200):
        request = changed(rng, REQUEST)
        head = read_head(request)
        if head is None:
            continue
        taken += 1
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(request)
        event = connection.next_event()
        assert isinstance(event, h11.Request)
        assert event.method.decode() == head.method
        assert event.target == head.path + (b"?" + head.query if b"?" in event.target else b"")
        assert list(event.headers) == head.headers
        assert not connection.they_are_waiting_for_100_continue
        body, more = b"", connection.next_event()
        while isinstance(more, h11.Data):
            body += more.data
            more = connection.next_event()
        assert body == request[head.size :][: head.body_bytes]
        assert (more is h11.NEED_DATA) == (len(body) < head.body_bytes)
        if more is not h11.NEED_DATA:
            assert connection.trailing_data[0] == request[head.size + head.body_bytes :]
            assert connection.their_state is h11.DONE
    assert taken > 20


def read(method: str, pieces: list[bytes]) -> tuple[h11.Response, bytes, h11.Connection]:
    """What h11 makes of an answer, as a client."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(b"".join(pieces))
    response = client.next_event()
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    return response, body, client


def start(status: int, *headers: tuple[bytes, bytes]) -> dict[str, object]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(data: bytes, *, more: bool = False) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def length(size: int) -> tuple[bytes, bytes]:
    return (b"content-length", str(size).encode())


@pytest.mark.parametrize(
    ("method", "messages", "read_body", "pieces"),
    [
        ("GET", [start(200, length(4)), body(b"body")], b"body", 1),
        ("GET", [start(200, length(4)), body(b"bo", more=True), body(b"dy")], b"body", 2),
        ("GET", [start(200, length(0)), {"type": "http.response.body"}], b"", 1),
        ("GET", [start(200), body(b"bo", more=True), body(b"", more=True), body(b"")], b"bo", 3),
        ("GET", [start(200), body(b"bo", more=True), body(b"dy")], b"body", 3),
        ("HEAD", [start(200, length(4)), body(b"body")], b"", 1),
        ("HEAD", [start(200), body(b"bo", more=True), body(b"dy")], b"", 1),
        ("DELETE", [start(204), body(b"")], b"", 1),
        ("GET", [start(304), body(b"")], b"", 1),
    ],
)
def test_an_answer_is_read_by_h11(method, messages, read_body, pieces):
    answer = Answer(method, Dates())
    sent = [piece for message in messages for piece in answer.write(message)]
    assert len(sent) == pieces
    assert answer.is_whole and not answer.closes
    response, found, client = read(method, sent)
    assert response.status_code == messages[0]["status"]
    assert found == read_body
    assert client.their_state is h11.DONE  # The connection may go on.
    assert b"date" in dict(response.headers)


def test_a_large_body_is_not_copied_behind_its_head():
    answer = Answer("GET", Dates())
    large = bytes(TOGETHER_BYTES + 1)
    assert answer.write(start(200, length(len(large)))) == []
    head, sent = answer.write(body(large))
    assert head.endswith(b"\r\n\r\n") and sent is large


def test_the_head_of_an_endless_answer_leaves_at_once():
    answer = Answer("GET", Dates())
    (head,) = answer.write(start(200))
    assert b"transfer-encoding: chunked" in head
    assert answer.write(body(b"body", more=True)) == [b"4\r\nbody\r\n"]
    assert not answer.is_whole


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("told", [False, True])
def test_an_answer_may_say_that_the_connection_ends(asked, told):
    answer = Answer("GET", Dates(), closes=asked)
    close = [(b"connection", b"close")] if told else []
    assert answer.write(start(200, length(0), *close)) == []
    (head,) = answer.write(body(b""))
    assert answer.closes == (asked or told)
    assert head.count(b"connection: close\r\n") == int(asked or told)


@pytest.mark.parametrize(
    "messages",
    [
        [body(b"")],
        [start(200), start(200)],
        [start(200, length(1)), body(b"")],
        [start(200, length(1)), body(b"ab")],
        [start(200, length(1)), body(b"a"), body(b"")],
        [start(200, (b"x", b"a\r\ny: b"))],
        [start(200, (b"x", b"a\ny: b"))],
    ],
)
def test_what_is_no_answer_is_not_sent_as_a_whole_one(messages):
    answer = Answer("GET", Dates())
    for message in messages[:-1]:
        answer.write(message)
    was_whole = answer.is_whole
    with pytest.raises(ValueError, match=r"due|begun|long|line"):
        answer.write(messages[-1])
    assert answer.is_whole == was_whole
