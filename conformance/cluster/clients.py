"""Writers of all protocols that survive every fault: they reconnect and continue with new values.

The clients are stock clients, except Iggy's, whose library may abort the process. The writer sends
a value once. A library's own repeats must not be stored twice if the protocol has sequence numbers
for them, as here (Kafka's idempotent producer, Pulsar's deduplication).
"""

import abc
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import httpx
import pulsar
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer

from conformance.clients.raw.iggy import IggyWire
from conformance.cluster.book import Book

PAUSE_S: Final = 0.02  # Between two requests: the machine has other work too.
AGAIN_S: Final = 0.1  # Before a client reconnects.
ANSWER_S: Final = 10.0  # A request without an answer for this time counts as unanswered.
VALUES_MAX: Final = 4
STREAM: Final = "default"

Addresses = Callable[[str], list[str]]


class LoadState:
    """Shared state of all clients of a run.

    `addresses` returns a protocol's listeners, of every broker that may be running. Writers pause
    `pause_s` seconds between two requests.
    """

    def __init__(
        self, book: Book, addresses: Addresses, seed: int, pause_s: float = PAUSE_S
    ) -> None:
        self.book = book
        self.addresses = addresses
        self.pause_s = pause_s
        self.stopping = threading.Event()
        self.seed = seed


class ReconnectingClient(threading.Thread, abc.ABC):
    """A client that reconnects repeatedly."""

    protocol = "kafka"
    patience_s = ANSWER_S  # The client's own time-outs: the longest wait for a lost answer.
    whole_topics: Sequence[str] = ()  # The client must receive every value of these topics.

    def __init__(self, kind: str, load: LoadState) -> None:
        super().__init__(name=kind, daemon=True)
        self.kind = kind
        self.load = load
        self.book = load.book
        self.random = random.Random(f"{load.seed} {kind}")
        self.generation = 0
        self.troubles: Counter[str] = Counter()

    def run(self) -> None:
        """Run a life after the other."""
        while not self.load.stopping.is_set():
            self.generation += 1
            try:
                self.live()
            except Exception as error:  # Any error: the next life shows if the client recovers.
                self.troubles[f"{type(error).__name__}: {error}"[:160]] += 1
            self.load.stopping.wait(AGAIN_S)

    @abc.abstractmethod
    def live(self) -> None:
        """Connect and work until an error, or until the run stops."""

    def addresses(self) -> list[str]:
        """Return the addresses, in random order."""
        addresses = self.load.addresses(self.protocol)
        self.random.shuffle(addresses)
        return addresses

    def address(self) -> tuple[str, int]:
        """Return a random address."""
        host, _, port = self.addresses()[0].rpartition(":")
        return host, int(port)


class SendingConnection(Protocol):
    """A connection that sends."""

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        """Send and wait; return the offsets, if the protocol has them."""

    def close(self) -> None:
        """Close the connection."""


class ClusterWriter(ReconnectingClient):
    """Repeatedly sends several values to a random topic and waits for the answer."""

    def __init__(
        self,
        kind: str,
        load: LoadState,
        protocol: str,
        connect: Callable[["ClusterWriter"], SendingConnection],
        sends_of_a_life: int = sys.maxsize,
    ) -> None:
        super().__init__(kind, load)
        self.protocol = protocol
        self._connect = connect
        self._sends_of_a_life = sends_of_a_life
        self._values = 0

    def live(self) -> None:
        """Like `ReconnectingClient.live`. Order is promised within a connection, so the connection
        is the writer.
        """
        sending = self._connect(self)
        try:
            for _ in range(self._sends_of_a_life):
                if self.load.stopping.is_set():
                    break
                topic = self.random.choice(self.book.topics)
                values = self._next_values()
                sent = self.book.sending(topic, f"{self.kind}.{self.generation}", values)
                self.book.stored(topic, sent, sending.send(topic, values))
                time.sleep(self.load.pause_s)
        finally:
            with suppress(Exception):
                sending.close()

    def _next_values(self) -> list[bytes]:
        first = self._values
        self._values += self.random.randint(1, VALUES_MAX)
        return [b"%s:%d" % (self.kind.encode(), number) for number in range(first, self._values)]


class ByKafka:
    """kafka-python; `settings` are added to the addresses. Implements `SendingConnection`."""

    def __init__(self, writer: ClusterWriter, **settings: Any) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=writer.addresses(), max_block_ms=5000, **settings
        )

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        futures = [self._producer.send(topic, value, partition=0) for value in values]
        self._producer.flush(ANSWER_S)
        return [future.get(ANSWER_S).offset for future in futures]

    def close(self) -> None:
        self._producer.close(0)


class ByLibrdkafka:
    """confluent-kafka, idempotent: the library resends a value until the value times out.
    Implements `SendingConnection`.
    """

    def __init__(self, writer: ClusterWriter) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": ",".join(writer.addresses()),
                "enable.idempotence": True,
                "message.timeout.ms": int(ANSWER_S * 1000),
                "log_level": 2,  # Without every broken connection.
            }
        )

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        offsets: list[int | None] = []
        errors: list[KafkaError] = []

        def answered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                errors.append(error)

        for value in values:
            self._producer.produce(topic, value, partition=0, on_delivery=answered)
        self._producer.flush(2 * ANSWER_S)
        if errors or len(offsets) < len(values):
            raise ConnectionError(f"not acknowledged: {errors}")
        return offsets

    def close(self) -> None:
        self._producer.purge()


class ByPulsar:
    """pulsar-client with a producer per topic; the library keeps the producer over moves.
    Implements `SendingConnection`.
    """

    def __init__(self, writer: ClusterWriter) -> None:
        self._client = pulsar.Client(
            "pulsar://" + ",".join(writer.addresses()),
            operation_timeout_seconds=5,
            connection_timeout_ms=2000,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        self._name = f"{writer.kind}-{writer.generation}"
        self._producers: dict[str, Any] = {}

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        producer = self._producers.get(topic)
        if producer is None:
            # Without an initial sequence id, the library restarts at 0 if it reconnects before any
            # answer: the second message then has the first message's id, and counts as a repeat.
            # Python omits a 0.
            producer = self._producers[topic] = self._client.create_producer(
                topic,
                producer_name=self._name,
                initial_sequence_id=1,
                send_timeout_millis=int(ANSWER_S * 1000),
            )
        for value in values:
            producer.send(value)
        return [None] * len(values)

    def close(self) -> None:
        self._client.shutdown()


class ByIggy:
    """Hand-made frames: the libraries may abort their process. Implements `SendingConnection`."""

    def __init__(self, writer: ClusterWriter) -> None:
        self._wire = IggyWire(writer.address(), timeout_s=ANSWER_S)

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        self._wire.send_messages(topic, [(0, [], value) for value in values])
        return [None] * len(values)

    def close(self) -> None:
        self._wire.close()


class ByHttp:
    """httpx. Implements `SendingConnection`."""

    def __init__(self, writer: ClusterWriter) -> None:
        host, port = writer.address()
        self._client = httpx.Client(base_url=f"http://{host}:{port}", timeout=ANSWER_S)

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        messages = [{"payload": value.decode()} for value in values]
        answer = self._client.post(
            f"/topics/public/default/{topic}", json={"messages": messages}
        ).raise_for_status()
        ids = answer.json()["messageIds"]
        refused = [result for result in ids if result["error_code"]]
        if refused:
            raise ConnectionError(f"refused: {refused[0]}")
        return [None] * len(values)

    def close(self) -> None:
        self._client.close()


def kafka_today(writer: ClusterWriter) -> SendingConnection:
    """Return kafka-python with its defaults: idempotent, with the library's own repeats."""
    return ByKafka(writer, delivery_timeout_ms=10_000, request_timeout_ms=4000)


def kafka_old(writer: ClusterWriter) -> SendingConnection:
    """Return kafka-python for Kafka 0.8.2, which sends every value once."""
    return ByKafka(
        writer,
        api_version=(0, 8, 2),
        acks="all",
        retries=0,
        delivery_timeout_ms=5000,
        request_timeout_ms=4000,
    )


WRITERS: Mapping[
    str,
    tuple[str, Callable[[ClusterWriter], SendingConnection]]
    | tuple[str, Callable[[ClusterWriter], SendingConnection], int],
] = {
    "kafka": ("kafka", kafka_today),
    "kafka-0.8": ("kafka", kafka_old),
    "librdkafka": ("kafka", ByLibrdkafka),
    "pulsar": ("pulsar", ByPulsar),
    # Always new names: no two producers may count as the same producer.
    "pulsar-anew": ("pulsar", ByPulsar, 10),
    "iggy": ("iggy", ByIggy),
    "http": ("http", ByHttp),
}


def writers(load: LoadState) -> list[ReconnectingClient]:
    """Return a writer of each kind."""
    return [ClusterWriter(kind, load, *how) for kind, how in WRITERS.items()]
