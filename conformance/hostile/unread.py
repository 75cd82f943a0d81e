"""Peers that request much data and read nothing: a scenario per protocol and way of reading, judged
by the broker's memory.

    python -m conformance.hostile.unread [--peers 300] [NAME ...]

measures each scenario against a separate broker: the peak growth, and the longest waits of a small
fetch, of /healthz and of a read of ZooKeeper's largest node meanwhile.
"""

import argparse
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Self

import cramjam

from braidlog.broker.coordination.nodes import NODE_BYTES_MAX
from braidlog.broker.runtime.heap import GROWN_BYTES
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX
from conformance.clients.raw import iggy, kafka, pulsar, zookeeper
from conformance.clients.raw.iggy import FIRST, IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import PulsarWire
from conformance.clients.raw.wire import Wire
from conformance.clients.raw.zookeeper import ZooKeeper
from conformance.hostile import unread_iggy
from conformance.hostile.commands import OPTIONAL
from conformance.hostile.rows_http import request
from conformance.hostile.rows_kafka import kafka_request
from conformance.server import RunningBroker

MIB = 1 << 20
NOW_MS = 1_700_000_000_000
TOPIC, IGGY_TOPIC, BOMBS = "unread", unread_iggy.TOPIC, "unread-bombs"
TOPIC_BYTES = 24 * MIB
BOMB_BYTES = 62 * MIB  # Unpacked, of 2 KB.
NODE, MANY = "/unread", "/unread-many"
CHILDREN, CHILD_BYTES = 10_000, 120  # An answer of 1.2 MB.
CREATES_TOGETHER = 500
ALL = (1 << 32) - 1
MESSAGES = "/topics/public/default/{}/partitions/0/messages?timeout=0&max_bytes=10485760"

# The budget for output counts each answer once. Beside the budget there are two more copies of one
# record while the thread for large records unpacks or encodes that record (LARGE_THREADS_MAX), free
# memory that the allocator keeps (GROWN_BYTES of `broker/runtime/heap.py`), and as much again for
# what the broker holds by itself. Without the budget, 20 peers of 62 MiB take 1,105 MiB.
BUDGET_BYTES = 128 * MIB
BESIDE_BYTES = 2 * INFLATED_BYTES_MAX + 2 * GROWN_BYTES
PEER_BYTES = 96 * 1024

Peers = Callable[[RunningBroker, int, ExitStack], None]


def fill(broker: RunningBroker) -> None:
    """Create the topics and nodes that the peers read, once."""
    with KafkaWire(broker.address("kafka")) as wire:
        wire.create(TOPIC)
        _, watermark, _ = wire.fetch(TOPIC, 0, wait_ms=0)
        if watermark:
            return
        piece = kafka.message(None, bytes(10_000)) * 90
        for _ in range(TOPIC_BYTES // len(piece)):
            error, _ = wire.produce(TOPIC, piece)
            assert error == 0, error
    with IggyWire(broker.address("iggy")) as sender:
        sender.create_topic(IGGY_TOPIC)
        messages: list[tuple[int, list[tuple[bytes, int, bytes]], bytes]] = [
            (0, [], bytes(1000))
        ] * 1000
        for _ in range(TOPIC_BYTES // 1_000_000):
            sender.send_messages(IGGY_TOPIC, messages)
    fill_nodes(broker)
    with PulsarWire(broker.address("pulsar")) as producer:
        producer.open_producer(BOMBS)
        packed = bytes(cramjam.zstd.compress(bytes(BOMB_BYTES)))
        producer.publish(0, [(3, NOW_MS), (8, 3), (9, BOMB_BYTES)], packed)


def fill_nodes(broker: RunningBroker) -> None:
    """Create a node of the largest size, and a node with many children, once."""
    client = ZooKeeper()
    client.connect(broker.address("zookeeper"))
    if NODE[1:] in client.children("/")[0]:
        client.end()
        return
    client.create(NODE, bytes(NODE_BYTES_MAX))
    client.create(MANY)
    for first in range(0, CHILDREN, CREATES_TOGETHER):
        numbers = range(first, first + CREATES_TOGETHER)
        names = [f"{number:05d}".ljust(CHILD_BYTES, "x") for number in numbers]
        client.multi(
            [(zookeeper.CREATE, zookeeper.create_body(f"{MANY}/{name}", b"")) for name in names]
        )
    client.end()


def nodes(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """ZooKeeper: two reads of a node of 1 MiB on each connection."""
    body = zookeeper.read_body(NODE, watch=True)
    _ask_nodes(broker, count, held, zookeeper.request_frame(1, zookeeper.GET_DATA, body) * 2)


def children(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """ZooKeeper: two lists of 10,000 children on each connection."""
    body = zookeeper.read_body(MANY, watch=True)
    _ask_nodes(broker, count, held, zookeeper.request_frame(1, zookeeper.GET_CHILDREN, body) * 2)


def _ask_nodes(broker: RunningBroker, count: int, held: ExitStack, frames: bytes) -> None:
    wires = [held.enter_context(Wire(broker.address("zookeeper"))) for _ in range(count)]
    push_to_all(wires, zookeeper.connect_frame(40_000) + frames)


def polls(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """Iggy: three POLLs of all messages on each connection."""
    frame = iggy.frame(iggy.POLL, iggy.poll_body(IGGY_TOPIC, ALL, FIRST, 0, "unread"))
    push_to_all(
        [held.enter_context(IggyWire(broker.address("iggy"))) for _ in range(count)], frame * 3
    )


def polls_of_bombs(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """Iggy: a POLL of a record that unpacks to 62 MiB."""
    frame = iggy.frame(iggy.POLL, iggy.poll_body(BOMBS, 1, FIRST, 0, "unread"))
    push_to_all([held.enter_context(IggyWire(broker.address("iggy"))) for _ in range(count)], frame)


def deliveries(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """Pulsar: a separate subscription per consumer, and permits for all messages."""
    wires = [held.enter_context(PulsarWire(broker.address("pulsar"))) for _ in range(count)]
    for number, wire in enumerate(wires):
        wire.subscribe(TOPIC, f"unread-{number}", permits=1)
    push_to_all(wires, pulsar.frame(pulsar.FLOW, [(1, 0), (2, 1_000_000)]))


def fetches(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """Kafka: twenty fetches of 16 MiB on each connection."""
    body = kafka.fetch_body(TOPIC, 0, bytes_max=16 * MIB, wait_ms=0)
    wires = [held.enter_context(KafkaWire(broker.address("kafka"))) for _ in range(count)]
    push_to_all(wires, kafka_request(1, 0, body) * 20)


def fetches_of_bombs(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """Kafka: a fetch of a record that unpacks to 62 MiB."""
    body = kafka.fetch_body(BOMBS, 0, bytes_max=100 * MIB, wait_ms=0)
    wires = [held.enter_context(KafkaWire(broker.address("kafka"))) for _ in range(count)]
    push_to_all(wires, kafka_request(1, 0, body))


def requests(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """HTTP: twenty requests for 10 MiB on each connection."""
    wanted = request("GET", MESSAGES.format(TOPIC), None)
    wires = [held.enter_context(Wire(broker.address("http"))) for _ in range(count)]
    push_to_all(wires, wanted * 20)


def requests_of_bombs(broker: RunningBroker, count: int, held: ExitStack) -> None:
    """HTTP: a request for a record that unpacks to 62 MiB."""
    wires = [held.enter_context(Wire(broker.address("http"))) for _ in range(count)]
    push_to_all(wires, request("GET", MESSAGES.format(BOMBS), None))


SCENARIOS: dict[str, Peers] = {
    "polls": polls,
    "polls of bombs": polls_of_bombs,
    "polls of W": unread_iggy.polls,
    "deferred polls of W": unread_iggy.deferred_polls,
    "fetches of W": unread_iggy.fetches,
    "woken polls of W": unread_iggy.woken_polls,
    "cancelled polls of W": unread_iggy.cancelled_polls,
    "polls over Iggy's HTTP": unread_iggy.http_polls,
    "deliveries": deliveries,
    "fetches": fetches,
    "fetches of bombs": fetches_of_bombs,
    "requests": requests,
    "requests of bombs": requests_of_bombs,
    "nodes": nodes,
    "children": children,
}
# The number of peers at which each scenario was first seen to be unlimited.
PEERS = {
    "polls": 100,
    "polls of W": 100,
    "deferred polls of W": 100,
    "fetches of W": 100,
    "woken polls of W": 100,
    "cancelled polls of W": 100,
    "polls over Iggy's HTTP": 100,
    "deliveries": 300,
    "fetches": 500,
    "requests": 100,
    "nodes": 300,
    "children": 300,
}
PEERS_OF_BOMBS = 20


def growth_max(count: int) -> int:
    """Return the memory that `count` peers may cost."""
    return BUDGET_BYTES + BESIDE_BYTES + count * PEER_BYTES


def push_to_all(wires: Sequence[Wire], frames: bytes) -> None:
    """Send at the same time as much as the broker takes; the broker may have closed connections."""
    for wire in wires:
        wire.socket.setblocking(False)
        with suppress(OSError):
            wire.socket.send(frames)


class Waits:
    """Clients of small answers, and the longest wait of each kind."""

    def __init__(self, broker: RunningBroker) -> None:
        self.longest_s = {"fetch": 0.0, "healthz": 0.0, "node": 0.0}
        self._broker = broker
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(name,)) for name in self.longest_s
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str) -> None:
        reader = ZooKeeper(40_000, answer_s=60.0)
        reader.connect(self._broker.address("zookeeper"))
        with KafkaWire(self._broker.address("kafka")) as wire:
            while not self._over.is_set():
                begun = time.monotonic()
                if name == "node":
                    reader.get(NODE)
                elif name == "fetch":
                    body = kafka.fetch_body(TOPIC, 5, bytes_max=20_000, wait_ms=0)
                    wire.ask(kafka.FETCH, 0, body)
                else:
                    urllib.request.urlopen(f"{self._broker.url}/healthz", timeout=60).read()
                took = time.monotonic() - begun
                self.longest_s[name] = max(self.longest_s[name], took)
                self._over.wait(0.02)


def peak_growth(broker: RunningBroker, attack: Callable[[], None]) -> int:
    """Return the highest memory of the broker during an attack, above the memory before."""
    before = broker.resident_bytes()
    most = before
    over = threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(0.01):
            most = max(most, broker.resident_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        attack()
    finally:
        over.set()
        looking.join()
    return most - before


def play(broker: RunningBroker, name: str, count: int, hold_s: float) -> int:
    """Keep `count` peers of a scenario for a while; return the peak growth of memory."""

    def attack() -> None:
        with ExitStack() as held:
            SCENARIOS[name](broker, count, held)
            time.sleep(hold_s)

    fill(broker)
    return peak_growth(broker, attack)


def main(arguments: list[str]) -> int:
    """Return 1 if a scenario took more memory than allowed."""
    parser = argparse.ArgumentParser(prog="python -m conformance.hostile.unread")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--peers", type=int, help="else as many as a scenario was found with")
    parser.add_argument("--hold-s", type=float, default=8.0)
    options = parser.parse_args(arguments)
    code = 0
    for name in options.names or SCENARIOS:
        count = options.peers or PEERS.get(name, PEERS_OF_BOMBS)
        with RunningBroker(listen=OPTIONAL) as broker:
            fill(broker)
            with Waits(broker) as waits:
                grown = play(broker, name, count, options.hold_s)
            waited = ", ".join(
                f"{command} {took:.2f} s" for command, took in waits.longest_s.items()
            )
            print(f"{name}: {count} peers, {grown / MIB:.0f} MiB more; waits: {waited}", flush=True)
            code |= grown > growth_max(count)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
