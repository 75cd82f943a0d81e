"""Requests and responses between h11 and ASGI, without a socket."""

from __future__ import annotations

import h11
import pytest

from braidlog.protocols.transport.messages import (
    TOGETHER_BYTES,
    DateHeader,
    Response,
    body_size,
    request_scope,
)


def parsed(lines: bytes) -> tuple[h11.Connection, h11.Request]:
    """Return a server's parser that has received a request, and the request."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(lines + b"\r\n\r\n")
    request = connection.next_event()
    assert isinstance(request, h11.Request)
    connection.next_event()
    return connection, request


def scope_of(lines: bytes) -> dict[str, object]:
    _, request = parsed(lines)
    return request_scope(request, scheme="http", client=("c", 1), server=("s", 2))


def test_scope_has_the_path_with_and_without_percent_encoding():
    scope = scope_of(b"POST /topics/a/b%2Fc?x=1&y=? HTTP/1.1\r\nHost: x\r\nX-Empty:")
    assert (scope["method"], scope["http_version"]) == ("POST", "1.1")
    assert (scope["path"], scope["raw_path"]) == ("/topics/a/b/c", b"/topics/a/b%2Fc")
    assert scope["query_string"] == b"x=1&y=?"
    assert scope["headers"] == [(b"host", b"x"), (b"x-empty", b"")]
    assert (scope["client"], scope["server"]) == (("c", 1), ("s", 2))


@pytest.mark.parametrize(
    ("header", "size"),
    [
        (b"X: y", 0),
        (b"Content-Length: 5", 5),
        (b"Content-Length: 5, 5", 5),
        (b"Transfer-Encoding: chunked", None),
    ],
)
def test_body_size_is_announced_by_the_head(header, size):
    assert body_size(parsed(b"POST / HTTP/1.1\r\nHost: x\r\n" + header)[1]) == size


def read(method: str, pieces: list[bytes]) -> tuple[h11.Response, bytes, h11.Connection]:
    """Return a response as h11 parses it for a client."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(b"".join(pieces))
    response = client.next_event()
    data = b""
    while isinstance(event := client.next_event(), h11.Data):
        data += event.data
    assert isinstance(event, h11.EndOfMessage)
    return response, data, client


def start(status: int, *headers: tuple[bytes, bytes]) -> dict[str, object]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(data: bytes, *, more: bool = False) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def length(size: int) -> tuple[bytes, bytes]:
    return (b"content-length", str(size).encode())


def responding(method: str = "GET", header: bytes = b"") -> tuple[Response, h11.Connection]:
    lines = f"{method} / HTTP/1.1\r\nHost: x".encode() + header
    connection, request = parsed(lines)
    return Response(connection, request.method, DateHeader()), connection


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
def test_response_is_read_by_a_client(method, messages, read_body, pieces):
    response, connection = responding(method)
    sent = [piece for message in messages for piece in response.write(message)]
    assert len(sent) == pieces
    assert response.is_complete and connection.our_state is h11.DONE
    head, body, client = read(method, sent)
    assert head.status_code == messages[0]["status"]
    assert body == read_body
    assert client.their_state is h11.DONE  # The connection can serve another request.
    assert b"date" in dict(head.headers)


def test_large_body_is_not_copied_behind_the_head():
    response, _ = responding()
    large = bytes(TOGETHER_BYTES + 1)
    assert response.write(start(200, length(len(large)))) == []
    head, sent = response.write(body(large))
    assert head.endswith(b"\r\n\r\n") and sent is large


def test_the_head_of_an_endless_response_is_sent_at_once():
    response, _ = responding()
    (head,) = response.write(start(200))
    assert b"chunked" in head
    assert response.write(body(b"body", more=True)) == [b"4\r\nbody\r\n"]
    assert not response.is_complete


@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize("announced", [False, True])
def test_response_may_announce_the_end_of_the_connection(is_asked, announced):
    response, connection = responding(header=b"\r\nConnection: close" if is_asked else b"")
    close = [(b"connection", b"close")] if announced else []
    assert response.write(start(200, length(0), *close)) == []
    (head,) = response.write(body(b""))
    ends = is_asked or announced
    assert (connection.our_state is h11.MUST_CLOSE) == ends
    assert head.lower().count(b"connection: close\r\n") == int(ends)


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
def test_wrong_message_is_an_error_and_completes_nothing(messages):
    response, _ = responding()
    for message in messages[:-1]:
        response.write(message)
    was_complete = response.is_complete
    with pytest.raises(h11.LocalProtocolError):
        response.write(messages[-1])
    assert response.is_complete == was_complete
