"""Writers of all protocols, which never stop for a fault: whatever goes wrong, they connect anew
and go on with new values. Stock clients, but for Iggy's, whose library may abort the process.

A value is sent once by us. What a library sends again by itself must not be stored twice where the
protocol has sequence numbers for it, as here (Kafka's idempotent producer, Pulsar's deduplication).
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

from conformance.cluster.book import Book
from conformance.raw.iggy import IggyWire

PAUSE_S: Final = 0.02  # Between two requests: the machine has to do more than this.
AGAIN_S: Final = 0.1  # Before a client connects again.
ANSWER_S: Final = 10.0  # What has no answer for so long has none.
VALUES_MAX: Final = 4
STREAM: Final = "default"

Addresses = Callable[[str], list[str]]


class Load:
    """What all clients of a run share. `addresses` gives a protocol's listeners, of every broker
    that may be there.
    """

    def __init__(self, book: Book, addresses: Addresses, seed: int) -> None:
        self.book = book
        self.addresses = addresses
        self.stopping = threading.Event()
        self.seed = seed


class Client(threading.Thread, abc.ABC):
    """One client, connected again and again."""

    protocol = "kafka"
    patience_s = ANSWER_S  # Its own time-outs: for so long it may wait for a lost answer.
    whole_topics: Sequence[str] = ()  # It has to receive every value of these.

    def __init__(self, kind: str, load: Load) -> None:
        super().__init__(name=kind, daemon=True)
        self.kind = kind
        self.load = load
        self.book = load.book
        self.random = random.Random(f"{load.seed} {kind}")
        self.generation = 0
        self.troubles: Counter[str] = Counter()

    def run(self) -> None:
        """One life after the other."""
        while not self.load.stopping.is_set():
            self.generation += 1
            try:
                self.live()
            except Exception as error:  # Whatever it is: the next life shows whether it goes on.
                self.troubles[f"{type(error).__name__}: {error}"[:160]] += 1
            self.load.stopping.wait(AGAIN_S)

    @abc.abstractmethod
    def live(self) -> None:
        """Connect and work until something goes wrong, or the run is to stop."""

    def addresses(self) -> list[str]:
        """Where to connect, in any order."""
        found = self.load.addresses(self.protocol)
        self.random.shuffle(found)
        return found

    def address(self) -> tuple[str, int]:
        """One of them."""
        host, _, port = self.addresses()[0].rpartition(":")
        return host, int(port)


class Sending(Protocol):
    """A connection that sends."""

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        """Send and wait: the offsets, where the protocol says."""

    def close(self) -> None:
        """Let go."""


class Writer(Client):
    """Sends some values to some topic, waits for the answer, and so on."""

    def __init__(
        self,
        kind: str,
        load: Load,
        protocol: str,
        connect: Callable[["Writer"], Sending],
        sends_of_a_life: int = sys.maxsize,
    ) -> None:
        super().__init__(kind, load)
        self.protocol = protocol
        self._connect = connect
        self._sends_of_a_life = sends_of_a_life
        self._values = 0

    def live(self) -> None:
        """As `Client.live`. Order is promised within one connection, so that is the writer."""
        sending = self._connect(self)
        try:
            for _ in range(self._sends_of_a_life):
                if self.load.stopping.is_set():
                    break
                topic = self.random.choice(self.book.topics)
                values = self._some()
                sent = self.book.sending(topic, f"{self.kind}.{self.generation}", values)
                self.book.stored(topic, sent, sending.send(topic, values))
                time.sleep(PAUSE_S)
        finally:
            with suppress(Exception):
                sending.close()

    def _some(self) -> list[bytes]:
        first = self._values
        self._values += self.random.randint(1, VALUES_MAX)
        return [b"%s:%d" % (self.kind.encode(), number) for number in range(first, self._values)]


class ByKafka:
    """kafka-python; `settings` beside the addresses."""

    def __init__(self, writer: Writer, **settings: Any) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=writer.addresses(), max_block_ms=5000, **settings
        )

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        """As `Sending.send`."""
        futures = [self._producer.send(topic, value, partition=0) for value in values]
        self._producer.flush(ANSWER_S)
        return [future.get(ANSWER_S).offset for future in futures]

    def close(self) -> None:
        """As `Sending.close`."""
        self._producer.close(0)


class ByLibrdkafka:
    """confluent-kafka, idempotent: a value is sent again until its time is over."""

    def __init__(self, writer: Writer) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": ",".join(writer.addresses()),
                "enable.idempotence": True,
                "message.timeout.ms": int(ANSWER_S * 1000),
                "log_level": 2,  # Not each broken connection.
            }
        )

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        """As `Sending.send`."""
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
        """As `Sending.close`."""
        self._producer.purge()


class ByPulsar:
    """pulsar-client, a producer for each topic, which it keeps over moves by itself."""

    def __init__(self, writer: Writer) -> None:
        self._client = pulsar.Client(
            "pulsar://" + ",".join(writer.addresses()),
            operation_timeout_seconds=5,
            connection_timeout_ms=2000,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        self._name = f"{writer.kind}-{writer.generation}"
        self._producers: dict[str, Any] = {}

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        """As `Sending.send`."""
        producer = self._producers.get(topic)
        if producer is None:
            # Without a first sequence the library begins at 0 again where it connects anew before
            # any answer: its second message then has the first one's sequence, and is a repeat.
            # Python leaves a 0 out.
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
        """As `Sending.close`."""
        self._client.shutdown()


class ByIggy:
    """Frames made by hand: the libraries may abort their process."""

    def __init__(self, writer: Writer) -> None:
        self._wire = IggyWire(writer.address(), timeout_s=ANSWER_S)

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        """As `Sending.send`."""
        self._wire.send_messages(topic, [(0, [], value) for value in values])
        return [None] * len(values)

    def close(self) -> None:
        """As `Sending.close`."""
        self._wire.close()


class ByHttp:
    """httpx."""

    def __init__(self, writer: Writer) -> None:
        host, port = writer.address()
        self._client = httpx.Client(base_url=f"http://{host}:{port}", timeout=ANSWER_S)

    def send(self, topic: str, values: Sequence[bytes]) -> Sequence[int | None]:
        """As `Sending.send`."""
        messages = [{"payload": value.decode()} for value in values]
        answer = self._client.post(
            f"/topics/public/default/{topic}", json={"messages": messages}
        ).raise_for_status()
        told = answer.json()["messageIds"]
        refused = [one for one in told if one["error_code"]]
        if refused:
            raise ConnectionError(f"refused: {refused[0]}")
        return [None] * len(values)

    def close(self) -> None:
        """As `Sending.close`."""
        self._client.close()


def kafka_today(writer: Writer) -> Sending:
    """kafka-python with its defaults: idempotent, it sends again by itself."""
    return ByKafka(writer, delivery_timeout_ms=10_000, request_timeout_ms=4000)


def kafka_old(writer: Writer) -> Sending:
    """kafka-python as for Kafka 0.8.2, which sends everything once."""
    return ByKafka(
        writer,
        api_version=(0, 8, 2),
        acks="all",
        retries=0,
        delivery_timeout_ms=5000,
        request_timeout_ms=4000,
    )


WRITERS: Mapping[
    str, tuple[str, Callable[[Writer], Sending]] | tuple[str, Callable[[Writer], Sending], int]
] = {
    "kafka": ("kafka", kafka_today),
    "kafka-0.8": ("kafka", kafka_old),
    "librdkafka": ("kafka", ByLibrdkafka),
    "pulsar": ("pulsar", ByPulsar),
    # Names that are new again and again: no two producers may be taken for one.
    "pulsar-anew": ("pulsar", ByPulsar, 10),
    "iggy": ("iggy", ByIggy),
    "http": ("http", ByHttp),
}


def writers(load: Load) -> list[Client]:
    """One of each kind."""
    return [Writer(kind, load, *how) for kind, how in WRITERS.items()]
