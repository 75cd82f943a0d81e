"""Writers of `conformance.readers`: values in a single body of each stored format, by hand."""

import gzip
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import httpx
from kafka.record import MemoryRecordsBuilder

from conformance.clients.raw import kafka
from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import PulsarWire, batch
from conformance.server import RunningBroker

NUM_MESSAGES = 11  # Field of Pulsar's message metadata.
UNPACKED, GZIP = 0, 1  # Kafka's compression.
BATCH_BYTES: Final = 64 << 20  # Of a builder that is closed long before.
ANSWER_S: Final = 60.0

Write = Callable[[RunningBroker, str, Sequence[bytes]], None]


def by_kafka_0_8(broker: RunningBroker, topic: str, values: Sequence[bytes]) -> None:
    """A set of format 0."""
    _produce_old(broker, topic, b"".join(kafka.message(None, value) for value in values))


def by_kafka_0_8_gzip(broker: RunningBroker, topic: str, values: Sequence[bytes]) -> None:
    """A packed set of format 0."""
    inner = b"".join(kafka.message(None, value) for value in values)
    _produce_old(broker, topic, kafka.message(None, gzip.compress(inner, 1), kafka.GZIP))


def _produce_old(broker: RunningBroker, topic: str, message_set: bytes) -> None:
    with KafkaWire(broker.address("kafka")) as wire:
        error, _ = wire.produce(topic, message_set)
    assert error == 0, f"Produce: error {error}"


def by_kafka(broker: RunningBroker, topic: str, values: Sequence[bytes]) -> None:
    """A batch of format 2."""
    _produce_batch(broker, topic, values, UNPACKED)


def by_kafka_gzip(broker: RunningBroker, topic: str, values: Sequence[bytes]) -> None:
    """A packed batch of format 2."""
    _produce_batch(broker, topic, values, GZIP)


def _produce_batch(
    broker: RunningBroker, topic: str, values: Sequence[bytes], compression: int
) -> None:
    builder = MemoryRecordsBuilder(2, compression, BATCH_BYTES)
    for value in values:
        builder.append(1, None, value)
    builder.close()
    records = builder.buffer()
    body = kafka.string(None) + struct.pack(">hii", 1, 30_000, 1) + kafka.string(topic.encode())
    body += struct.pack(">iii", 1, 0, len(records)) + records
    with KafkaWire(broker.address("kafka")) as wire:
        answer = wire.ask(kafka.PRODUCE, 3, body)
    (error,) = struct.unpack_from(">h", answer, 4 + len(kafka.string(topic.encode())) + 8)
    assert error == 0, f"Produce: error {error}"


def by_pulsar(broker: RunningBroker, topic: str, values: Sequence[bytes]) -> None:
    """A batch, or a message by itself."""
    with PulsarWire(broker.address("pulsar")) as wire:
        wire.look_up(topic)
        wire.open_producer(topic)
        if len(values) == 1:
            wire.publish(0, [(3, 1)], values[0])
        else:
            wire.publish(0, [(3, 1), (NUM_MESSAGES, len(values))], batch(values))


def by_iggy(broker: RunningBroker, topic: str, values: Sequence[bytes]) -> None:
    """The messages of a SEND."""
    with IggyWire(broker.address("iggy")) as wire:
        wire.send_messages(topic, [(0, [], value) for value in values])


def by_http(broker: RunningBroker, topic: str, values: Sequence[bytes]) -> None:
    """The messages of a request."""
    messages = [{"value": value.decode(), "partition": 0} for value in values]
    httpx.post(
        f"{broker.url}/topics/public/default/{topic}",
        json={"messages": messages},
        timeout=ANSWER_S,
        trust_env=False,
    ).raise_for_status()


# The writer, its largest record, and its largest body.
WRITERS: Final[Mapping[str, tuple[Write, int, int]]] = {
    "kafka-0.8": (by_kafka_0_8, 990_000, 20 << 20),
    "kafka-0.8 gzip": (by_kafka_0_8_gzip, 990_000, 20 << 20),
    "kafka": (by_kafka, 990_000, 990_000),
    "kafka gzip": (by_kafka_gzip, 20 << 20, 20 << 20),
    "pulsar": (by_pulsar, 5_000_000, 5_000_000),
    "iggy": (by_iggy, 10_000_000, 10_000_000),
    "http": (by_http, 5_000_000, 5_000_000),
}
