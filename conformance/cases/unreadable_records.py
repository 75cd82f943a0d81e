"""Messages that the broker cannot open: with the topic setting `unreadable_records=skip`, readers
of other protocols and the group's position pass over them; with `raw`, readers receive the bytes as
sent.
"""

from conformance.clients.proxy import DriverProxy
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import Fields, PulsarWire, encode
from conformance.runner import Context

GROUP = "1"  # The consumer id that iggy-py polls with.
# Each reader continues after a reader of another protocol. Pulsar's own readers receive everything.
CLIENTS = [
    ("kafka-python", "httpx"),
    ("kafka-python-today", "iggy-py"),
    ("iggy-py", "confluent-kafka"),
    ("httpx", "kafka-python-today"),
    ("confluent-kafka", "kafka-python"),
]
PUBLISH_TIME, COUNT, KEYS = 3, 11, 13
PRODUCER, SEQUENCE = 1, 2


def run(context: Context) -> None:
    first, second = context.clients
    skipping, raw = context.topic(), context.topic()
    context.make_topic(skipping, unreadable_records="skip")
    context.make_topic(raw, unreadable_records="raw")
    for topic in (skipping, raw):
        publish(context, topic)
    with KafkaWire(context.address("kafka")) as kafka:
        assert values(first, skipping, 2) == [b"a", b"b"]
        assert kafka.committed(GROUP, skipping) == 3
        assert values(second, skipping, 2) == [b"c", b"d"]
        assert kafka.committed(GROUP, skipping) == 8
    assert values(first, raw, 3) == [b"a", sent(1, 1), b"b"]
    assert values(second, raw, 3) == [b"c", sent(4, 3), b"d"]


def values(client: DriverProxy, topic: str, count: int) -> list[bytes | None]:
    """Return the values that the group's next reader receives."""
    return [message.value for message in client.read_as_group(topic, GROUP, count)]


def publish(context: Context, topic: str) -> None:
    """Publish at offsets 0 to 7: a, encrypted, b, c, an encrypted batch of three, d."""
    with PulsarWire(context.address("pulsar")) as pulsar:
        pulsar.open_producer(topic)
        for offset, value in ((0, b"a"), (1, None), (2, b"b"), (3, b"c"), (4, None), (7, b"d")):
            if value is None:
                _, entry = pulsar.publish(offset, closed(3 if offset == 4 else 1), SECRET)
            else:
                _, entry = pulsar.publish(offset, [(PUBLISH_TIME, 1)], value)
            assert entry == offset


SECRET = b"nobody here can open this"


def closed(count: int) -> Fields:
    """Return metadata of an encrypted message or batch. All values are text: iggy-py reads only
    text.
    """
    batch: Fields = [(COUNT, count)] if count > 1 else []
    return [(PUBLISH_TIME, 1), *batch, (KEYS, encode([(1, b"key"), (2, b"value")]))]


def sent(sequence_id: int, count: int) -> bytes:
    """Return the message as `PulsarWire.publish` sends it."""
    head = encode([(PRODUCER, b"raw"), (SEQUENCE, sequence_id), *closed(count)])
    return len(head).to_bytes(4, "big") + head + SECRET
