"""Absent, empty and binary keys and values are three different things, from Kafka to Kafka and to
Pulsar.
"""

from base64 import b64decode

from conformance.clients.raw.kafka import KafkaWire, message, parse_set
from conformance.clients.raw.pulsar import Delivered, PulsarWire, field_of
from conformance.runner import RAW, Context

CLIENTS = [RAW]
BINARY = bytes(range(256))
PAIRS = [
    (None, b"value"),
    (b"key", None),
    (None, None),
    (b"", b""),
    (b"key", b""),
    (b"", b"value"),
    (BINARY, BINARY),
]


def run(context: Context) -> None:
    topic = context.topic()
    with KafkaWire(context.address("kafka")) as kafka:
        kafka.create(topic)
        for offset, (key, value) in enumerate(PAIRS):
            assert kafka.produce(topic, message(key, value)) == (0, offset)
        _, watermark, body = kafka.fetch(topic, 0)
    assert watermark == len(PAIRS)
    assert parse_set(body) == [(i, *pair) for i, pair in enumerate(PAIRS)]
    with PulsarWire(context.address("pulsar")) as pulsar:
        pulsar.subscribe(topic, "raw")
        seen = [pulsar.next_message() for _ in PAIRS]
    assert [item.entry for item in seen] == list(range(len(PAIRS)))
    assert [(_key(item), _value(item)) for item in seen] == PAIRS


def _key(item: Delivered) -> bytes | None:
    """Return the key: partition_key 6, partition_key_b64_encoded 17; an absent key has no field."""
    key = field_of(item.metadata, 6)
    if key is None:
        return None
    assert isinstance(key, bytes)
    return b64decode(key) if field_of(item.metadata, 17) else key


def _value(item: Delivered) -> bytes | None:
    """Return the value; null_value (field 25) distinguishes absent from empty."""
    return None if field_of(item.metadata, 25) else item.payload
