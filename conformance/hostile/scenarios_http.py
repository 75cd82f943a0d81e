"""Attacks on the HTTP listener with valid requests that are slow, endless, or leave much behind."""

import http.client
import json
import socket
import time
from contextlib import ExitStack

from conformance.clients.raw.kafka import KafkaWire
from conformance.hostile.rows import TOPIC
from conformance.hostile.rows_http import API, PIP64, PLACE, request
from conformance.server import RunningBroker

READ_BYTES = 1 << 16
GONE_S = 60.0  # A connection that lasts longer is a finding.
WAIT_MS = 60_000
MESSAGES = 10_000  # The maximum of a request.
ANSWERS = (b"HTTP/1.1 200 ", b"HTTP/1.1 429 ")


def idle_consumers(broker: RunningBroker, count: int) -> None:
    """Create `count` consumers without fetches, over a single connection."""
    _make_topic(broker)
    host, port = broker.address("http")
    connection = http.client.HTTPConnection(host, port, timeout=GONE_S)
    head = {"Content-Type": "application/json"}
    for number in range(count):
        connection.request("POST", f"{PIP64}/subscription/idle-{number % 10}", "{}", head)
        answer = connection.getresponse()
        assert answer.status == 201, (answer.status, answer.read())
        answer.read()
    connection.request("DELETE", f"{API}/topics/{PLACE}")  # The consumers end with the topic.
    assert connection.getresponse().status == 204
    connection.close()


def waiting_consumers(broker: RunningBroker, count: int) -> None:
    """Open `count` clients with waiting fetches at once; then disconnect."""
    _make_topic(broker)
    host, port = broker.address("http")
    making = http.client.HTTPConnection(host, port, timeout=GONE_S)
    with ExitStack() as held:
        for _ in range(count):
            making.request("POST", f"{PIP64}/subscription/waiting", json.dumps({}))
            created = json.loads(making.getresponse().read())
            path = f"{PIP64}/subscription/waiting/consumer/{created['id']}"
            stream = held.enter_context(_connected(broker))
            fetch = f"{path}/messages?timeout={WAIT_MS}&max_bytes=10485760"
            stream.sendall(request("GET", fetch, None))
    making.close()


def slow_requests(broker: RunningBroker, peers: int) -> None:
    """Send heads and bodies byte by byte, without their end."""
    head = request("POST", PIP64, {"messages": [{"value": "v" * 1000}]})
    body_at = head.index(b"\r\n\r\n") + 4
    with ExitStack() as held:
        streams = [held.enter_context(_connected(broker)) for _ in range(peers)]
        for number, stream in enumerate(streams):
            stream.sendall(head[: 10 if number % 2 else body_at])
        for _ in range(5):
            for stream in streams:
                stream.sendall(b"x")
            time.sleep(0.2)


def large_bodies(broker: RunningBroker, peers: int) -> None:
    """Send bodies that need thirty times their size in memory, all at once: each is answered."""
    topic = "large-bodies"  # Other topics may have a schema.
    with KafkaWire(broker.address("kafka")) as wire:
        wire.create(topic)
    messages = [{"value": ""}] * MESSAGES
    body = request("POST", f"/topics/public/default/{topic}", {"messages": messages})
    with ExitStack() as held:
        streams = [held.enter_context(_connected(broker)) for _ in range(peers)]
        for stream in streams:
            stream.sendall(body)
        for stream in streams:
            answer = stream.recv(READ_BYTES)
            assert answer.startswith(ANSWERS), answer[:100]


def streams_that_hold_up(broker: RunningBroker, peers: int) -> None:
    """Open event streams with a request behind them and a half-closed connection:
    each stream ends.
    """
    _make_topic(broker)
    path = f"{PIP64}/partitions/0/messages"
    events = request("GET", path, None, "Accept: text/event-stream")
    with ExitStack() as held:
        streams = [held.enter_context(_connected(broker)) for _ in range(peers)]
        for stream in streams:
            stream.sendall(events + request("GET", "/healthz", None))
            stream.shutdown(socket.SHUT_WR)
        for stream in streams:
            while stream.recv(READ_BYTES):
                pass


def _make_topic(broker: RunningBroker) -> None:
    with KafkaWire(broker.address("kafka")) as wire:
        wire.create(TOPIC)


def _connected(broker: RunningBroker) -> socket.socket:
    return socket.create_connection(broker.address("http"), timeout=GONE_S)
