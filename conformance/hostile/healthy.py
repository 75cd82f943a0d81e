"""Healthy clients, a client per protocol, during an attack.

Each client constantly writes and reads its own records, and measures its longest wait.
"""

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from conformance.clients.raw.iggy import BY_OFFSET, IggyWire
from conformance.clients.raw.kafka import KafkaWire, message, parse_set
from conformance.clients.raw.pulsar import ACK, PulsarWire, encode
from conformance.server import RunningBroker

PAUSE_S = 0.02  # Between two rounds: the load should come from the attackers.
Round = Callable[[int], None]


class Healthy:
    """The clients; a context manager. `check` raises the failure of a client."""

    def __init__(self, broker: RunningBroker) -> None:
        self.longest_s: dict[str, float] = {}
        self.rounds: dict[str, int] = {}
        self._broker = broker
        self._failures: list[Exception] = []
        self._over = threading.Event()
        self._held = ExitStack()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for protocol, begin in CLIENTS.items():
            one_round = begin(self._broker, self._held)
            self.longest_s[protocol] = 0.0
            self.rounds[protocol] = 0
            thread = threading.Thread(target=self._run, args=(protocol, one_round), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._held.close()

    def check(self) -> None:
        """Check that no client was disturbed. Raises AssertionError."""
        assert not self._failures, f"a healthy client was disturbed: {self._failures}"
        assert all(self.rounds.values()), self.rounds

    def _run(self, protocol: str, one_round: Round) -> None:
        try:
            while not self._over.is_set():
                begun = time.monotonic()
                one_round(self.rounds[protocol])
                took = time.monotonic() - begun
                self.longest_s[protocol] = max(self.longest_s[protocol], took)
                self.rounds[protocol] += 1
                self._over.wait(PAUSE_S)
        except Exception as error:  # `check` raises the error in the caller's thread.
            self._failures.append(error)


def topic_of(protocol: str) -> str:
    """Return the topic that only that client uses."""
    return f"healthy-{protocol}"


def _kafka(broker: RunningBroker, held: ExitStack) -> Round:
    wire = held.enter_context(KafkaWire(broker.address("kafka")))
    topic = topic_of("kafka")
    wire.create(topic)

    def one_round(number: int) -> None:
        value = b"value %d" % number
        error, offset = wire.produce(topic, message(b"key", value))
        assert error == 0, error
        error, _, fetched = wire.fetch(topic, offset)
        assert error == 0, error
        assert parse_set(fetched)[0] == (offset, b"key", value)
        assert wire.commit("healthy", topic, offset + 1) == 0

    return one_round


def _iggy(broker: RunningBroker, held: ExitStack) -> Round:
    wire = held.enter_context(IggyWire(broker.address("iggy")))
    topic = topic_of("iggy")
    if not _has_topic(broker, topic):
        wire.create_topic(topic)
    first = wire.poll(topic, 1)
    base = 0 if not first else _end(wire, topic)

    def one_round(number: int) -> None:
        payload = b"payload %d" % number
        wire.send_messages(topic, [(0, [], payload)])
        (polled,) = wire.poll(topic, 1, BY_OFFSET, base + number)
        assert polled.payload == payload
        wire.store_offset(topic, "healthy", base + number)

    return one_round


def _pulsar(broker: RunningBroker, held: ExitStack) -> Round:
    wire = held.enter_context(PulsarWire(broker.address("pulsar")))
    topic = topic_of("pulsar")
    wire.open_producer(topic)
    wire.subscribe(topic, "healthy", permits=1_000_000)

    def one_round(number: int) -> None:
        payload = b"payload %d" % number
        wire.publish(number, [(3, 1_700_000_000_000)], payload)
        delivered = wire.next_message()
        assert delivered.payload == payload
        place = encode([(1, delivered.ledger), (2, delivered.entry)])
        wire.command(ACK, [(1, 0), (2, 0), (3, place)])

    return one_round


def _http(broker: RunningBroker, held: ExitStack) -> Round:
    url = f"{broker.url}/api/v1/topics/public/default/{topic_of('kafka')}"

    def one_round(number: int) -> None:
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.status == 200

    return one_round


def _has_topic(broker: RunningBroker, topic: str) -> bool:
    """Return True if the topic exists. A single request: the list is paged, and an attack may have
    created thousands of topics.
    """
    url = f"{broker.url}/api/v1/topics/public/default/{topic}"
    try:
        with urllib.request.urlopen(url, timeout=60):
            return True
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
        return False


def _end(wire: IggyWire, topic: str) -> int:
    """Return the offset of the next message."""
    offset = 0
    while polled := wire.poll(topic, 1000, BY_OFFSET, offset):
        offset = polled[-1].offset + 1
    return offset


CLIENTS: dict[str, Callable[[RunningBroker, ExitStack], Round]] = {
    "kafka": _kafka,
    "iggy": _iggy,
    "pulsar": _pulsar,
    "http": _http,
}
