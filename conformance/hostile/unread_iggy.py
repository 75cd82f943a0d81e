"""Peers of Iggy's dialect W, and of its HTTP API, that read nothing.

A connection of W has up to 256 waiting polls and fetches on their way, so a peer leaves as many
answers unread.
"""

import http.client
import json
from collections.abc import Callable
from contextlib import ExitStack, suppress

from conformance.clients.raw.iggy import POLL
from conformance.clients.raw.iggy_w import (
    ANY_BYTES,
    CANCEL_DEFERRED,
    FETCH,
    POLL_DEFERRED,
    IggyWWire,
    deferred_poll_body,
    fetch_body,
    poll_body,
)
from conformance.clients.raw.wire import Wire
from conformance.server import RunningBroker

TOPIC = "unread-iggy"
TOGETHER = 256  # Waiting polls and fetches of a connection, at most.
POLLS = 20
WAIT_US = 20_000_000
LARGE = bytes(1_000_000)

Body = Callable[[int], bytes]  # By the incarnation of the partition.


def polls(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """Twenty polls of all messages on each connection."""
    body = poll_body(TOPIC, "unread", 0, ANY_BYTES)
    _ask(broker, count, held, POLL, lambda _: body, POLLS)


def deferred_polls(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """As many polls of all messages as a connection may have at a time."""
    body = deferred_poll_body(TOPIC, "unread", 0, ANY_BYTES, WAIT_US)
    _ask(broker, count, held, POLL_DEFERRED, lambda _: body, TOGETHER)


def fetches(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """As many fetches of all messages as a connection may have at a time."""
    _ask(
        broker,
        count,
        held,
        FETCH,
        lambda incarnation: fetch_body(TOPIC, "unread", incarnation, WAIT_US),
        TOGETHER,
    )


def woken_polls(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """Waiting polls on every connection, and a message of 1 MB that wakes all of them."""
    with IggyWWire(broker.address("iggy")) as sender:
        end = sender.end_offset(TOPIC)
        body = deferred_poll_body(TOPIC, "unread", end, ANY_BYTES, WAIT_US)
        _ask(broker, count, held, POLL_DEFERRED, lambda _: body, TOGETHER)
        sender.send_messages(TOPIC, [LARGE])


def cancelled_polls(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """Waiting polls that are cancelled at once."""
    body = deferred_poll_body(TOPIC, "unread", 1 << 62, ANY_BYTES, WAIT_US)
    for wire in _peers(broker, count, held):
        incarnation = wire.incarnation(TOPIC)
        frames = []
        for _ in range(TOGETHER):
            poll = wire.query(POLL_DEFERRED, body, incarnation)
            frames += [poll, wire.again(poll, CANCEL_DEFERRED)]
        _push(wire, b"".join(frames))


def http_polls(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """HTTP: twenty polls of all messages on each connection, after a login."""
    connection = http.client.HTTPConnection(*broker.address("iggy-http"))
    login = json.dumps({"username": "iggy", "password": "iggy"})
    connection.request("POST", "/users/login", login, {"Content-Type": "application/json"})
    token = json.loads(connection.getresponse().read())["access_token"]["token"]
    connection.close()
    target = f"/streams/default/topics/{TOPIC}/messages?count=10000&kind=first"
    head = f"GET {target} HTTP/1.1\r\nHost: broker\r\nAuthorization: Bearer {token}\r\n\r\n"
    wires = [held.enter_context(Wire(broker.address("iggy-http"))) for _ in range(count)]
    for wire in wires:
        _push(wire, head.encode() * POLLS)


def _ask(
    broker: RunningBroker, count: int, held: ExitStack, code: int, body: Body, times: int
) -> None:
    wires = _peers(broker, count, held)
    for wire in wires:
        incarnation = wire.incarnation(TOPIC)
        frames = [wire.query(code, body(incarnation), incarnation) for _ in range(times)]
        _push(wire, b"".join(frames))


def _peers(broker: RunningBroker, count: int, held: ExitStack) -> list[IggyWWire]:
    return [held.enter_context(IggyWWire(broker.address("iggy"))) for _ in range(count)]


def _push(wire: Wire, frames: bytes) -> None:
    """Send as much as the broker takes."""
    wire.socket.setblocking(False)
    with suppress(OSError):
        wire.socket.send(frames)
