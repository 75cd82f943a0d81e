"""Attacks with valid frames: bad number, bad size or bad combination. A new attack is a function
and a line in SCENARIOS.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from conformance.clients.raw import iggy, kafka, pulsar
from conformance.clients.raw.iggy import FIRST, IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import PulsarWire
from conformance.clients.raw.wire import TIMEOUT_S
from conformance.hostile import unread
from conformance.hostile.bombs import make_bombs, read_bombs
from conformance.hostile.rows import TOPIC
from conformance.hostile.rows_http import request
from conformance.hostile.rows_kafka import kafka_request
from conformance.hostile.rows_pulsar import pulsar_command
from conformance.hostile.scenarios_http import (
    idle_consumers,
    large_bodies,
    slow_requests,
    streams_that_hold_up,
    waiting_consumers,
)
from conformance.server import RunningBroker

MIB = 1 << 20
BINARY = ("kafka", "pulsar", "iggy")
READ = "/topics/public/default"


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of the scenarios: the short form of `make test`, or the long form."""

    peers: int
    churn: int
    names: int
    reads: int  # of each bomb
    hold_s: float  # time that idle peers stay connected


SHORT = Size(peers=60, churn=300, names=150, reads=1, hold_s=1.5)
LONG = Size(peers=500, churn=20_000, names=2000, reads=10, hold_s=75.0)


def half_frames(broker: RunningBroker, size: Size) -> None:
    """Send frames of 1 MiB without their last byte, at every binary listener."""
    with _connections(broker, size.peers) as streams:
        for number, stream in enumerate(streams):
            order = "<" if BINARY[number % 3] == "iggy" else ">"
            frame = struct.pack(f"{order}I", MIB) + HALF_HEADS[BINARY[number % 3]]
            _push(stream, frame + bytes(MIB - len(frame) + 3))
        time.sleep(size.hold_s)


# The beginning of a frame, so that the listener waits for the rest.
HALF_HEADS = {
    "kafka": struct.pack(">hhih", 0, 0, 1, 0),
    "pulsar": struct.pack(">I", 10) + b"\x08\x02",
    "iggy": struct.pack("<I", iggy.SEND),
}


def silent_readers(broker: RunningBroker, size: Size) -> None:
    """Open peers that request much data repeatedly, and never read."""
    _fill(broker, "silent", 24 * MIB)
    name = kafka.string(b"silent")
    fetch = struct.pack(">iii", -1, 0, 1) + struct.pack(">i", 1) + name
    fetch = kafka_request(1, 0, fetch + struct.pack(">iiqi", 1, 0, 0, 16 * MIB))
    poll = b"\x01" + iggy.identifier("silent") + iggy.identifier("default")
    poll += iggy.identifier("silent") + struct.pack("<IBQIB", 1, FIRST, 0, 100_000, 0)
    poll = struct.pack("<II", 4 + len(poll), iggy.POLL) + poll
    read = request("GET", f"{READ}/silent/partitions/0/messages?timeout=0&max_bytes=10485760", None)
    with ExitStack() as held:
        for number in range(size.peers):
            if number % 4 == 0:
                stream = held.enter_context(_connected(broker, "kafka"))
                _push(stream, fetch * 20)
            elif number % 4 == 1:
                wire = held.enter_context(IggyWire(broker.address("iggy")))
                _push(wire.socket, poll * 20)
            elif number % 4 == 2:
                stream = held.enter_context(_connected(broker, "http"))
                _push(stream, read * 20)
            else:
                reader = held.enter_context(PulsarWire(broker.address("pulsar")))
                reader.subscribe("silent", f"silent-{number}", permits=1_000_000)
        time.sleep(size.hold_s)


def unread_answers(name: str) -> "Scenario":
    """Return a scenario of peers that leave an answer unread, with a limit on their memory."""

    def scenario(broker: RunningBroker, size: Size) -> None:
        count = size.peers if name in unread.PEERS else size.peers // 3
        grown = unread.play(broker, name, count, size.hold_s)
        most = unread.growth_max(count)
        assert grown <= most, f"{name}: {grown} bytes for {count} peers, at most {most} expected"

    return scenario


def polls_for_nobody(broker: RunningBroker, size: Size) -> None:
    """Send five hundred polls of 16 MB each, and disconnect."""
    _fill(broker, "silent", 24 * MIB)
    poll = b"\x01" + iggy.identifier("nobody") + iggy.identifier("default")
    poll += iggy.identifier("silent") + struct.pack("<IBQIB", 1, FIRST, 0, 100_000, 0)
    for _ in range(3):
        with IggyWire(broker.address("iggy")) as wire:
            wire.send((struct.pack("<II", 4 + len(poll), iggy.POLL) + poll) * 500)


def bombs(broker: RunningBroker, size: Size) -> None:
    """Read bodies that unpack to a thousand times their size, through every protocol."""
    read_bombs(broker, make_bombs(broker), size.reads)


def churn(broker: RunningBroker, size: Size) -> None:
    """Open and close connections, some with a byte, some with a reset."""
    for number in range(size.churn):
        with _connected(broker, BINARY[number % 3]) as stream:
            if number % 2:
                stream.send(b"\0")
            if number % 5 == 0:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def topic_flood(broker: RunningBroker, size: Size) -> None:
    """Create as many topics as a client can name."""
    names = [f"flood-{number}".encode() for number in range(size.names)]
    with KafkaWire(broker.address("kafka")) as wire:
        body = struct.pack(">i", len(names)) + b"".join(map(kafka.string, names))
        wire.ask(kafka.METADATA, 0, body)
        wire.ask(kafka.METADATA, 0, struct.pack(">i", 0))
    with _connected(broker, "pulsar") as stream:
        stream.sendall(pulsar_command(2, 2, [(1, b"flood"), (4, 20)]))
        for number, name in enumerate(names):
            topic = b"persistent://public/default/" + name
            _push(stream, pulsar_command(5, 5, [(1, topic), (2, number), (3, number)]))
        time.sleep(size.hold_s / 5)


def subscription_flood(broker: RunningBroker, size: Size) -> None:
    """Create as many groups and subscriptions as a client can name."""
    with KafkaWire(broker.address("kafka")) as wire:
        wire.create(TOPIC)
        for number in range(size.names):
            wire.commit(f"group-{number}", TOPIC, 1)
    topic = f"persistent://public/default/{TOPIC}".encode()
    with _connected(broker, "pulsar") as stream:
        stream.sendall(pulsar_command(2, 2, [(1, b"flood"), (4, 20)]))
        for number in range(size.names):
            fields: pulsar.Fields = [(1, topic), (2, b"sub-%d" % number), (3, 1), (4, number)]
            _push(stream, pulsar_command(4, 4, [*fields, (5, number), (13, 1)]))
        time.sleep(size.hold_s / 5)


Scenario = Callable[[RunningBroker, Size], None]


def many_names(broker: RunningBroker, size: Size) -> None:
    """Send fetches with the maximum number of names, all at once; then fetches that wait for many
    topics.
    """
    name = kafka.string(TOPIC.encode())
    head = struct.pack(">iii", -1, 10_000, 1) + struct.pack(">i", 1) + name
    partitions = b"".join(struct.pack(">iqi", index, 0, 1000) for index in range(45_000))
    large = kafka_request(1, 0, head + struct.pack(">i", 45_000) + partitions)
    topics = [f"named-{number}" for number in range(size.names)]
    with KafkaWire(broker.address("kafka")) as wire:
        for topic in topics:
            wire.create(topic)
    wanted = struct.pack(">iiqi", 1, 0, 0, 1000)
    body = struct.pack(">iiii", -1, 10_000, 1, len(topics))
    waiting = kafka_request(
        1, 0, body + b"".join(kafka.string(topic.encode()) + wanted for topic in topics)
    )
    with ExitStack() as held:
        for frame, peers in ((large, size.peers // 6), (waiting, size.peers)):
            for _ in range(peers):
                stream = held.enter_context(_connected(broker, "kafka"))
                _push(stream, frame)
        time.sleep(size.hold_s)


SCENARIOS: dict[str, Scenario] = {
    "half frames": half_frames,
    "peers that never read": silent_readers,
    "polls for nobody": polls_for_nobody,
    **{f"unread {name}": unread_answers(name) for name in unread.SCENARIOS},
    "bombs": bombs,
    "connection churn": churn,
    "topic flood": topic_flood,
    "subscription flood": subscription_flood,
    "many names": many_names,
    "large bodies": lambda broker, size: large_bodies(broker, size.peers // 5),
}


# Not part of the short form: they need a client's patience or a long time.
LONG_SCENARIOS: dict[str, Scenario] = {
    "idle consumers": lambda broker, size: idle_consumers(broker, 10 * size.peers),
    "waiting consumers": lambda broker, size: waiting_consumers(broker, size.peers),
    "slow requests": lambda broker, size: slow_requests(broker, size.peers),
    "streams that hold up": lambda broker, size: streams_that_hold_up(broker, size.peers // 10),
}


def _fill(broker: RunningBroker, topic: str, size: int) -> None:
    """Fill a topic to about that size."""
    with KafkaWire(broker.address("kafka")) as wire:
        wire.create(topic)
        error, watermark, _ = wire.fetch(topic, 0, wait_ms=0)
        piece = kafka.message(None, bytes(10_000)) * 90
        for _ in range(0 if watermark else size // len(piece)):
            error, _ = wire.produce(topic, piece)
            assert error == 0, error


@contextmanager
def _connections(broker: RunningBroker, count: int) -> Iterator[list[socket.socket]]:
    """Open connections, to each binary listener in turn."""
    with ExitStack() as held:
        yield [
            held.enter_context(_connected(broker, BINARY[number % 3])) for number in range(count)
        ]


def _connected(broker: RunningBroker, listener: str) -> socket.socket:
    return socket.create_connection(broker.address(listener), timeout=TIMEOUT_S)


def _push(stream: socket.socket, data: bytes) -> None:
    """Send as much as the broker takes; the broker may have closed the connection."""
    stream.settimeout(2.0)
    with contextlib.suppress(OSError):
        stream.sendall(data)
