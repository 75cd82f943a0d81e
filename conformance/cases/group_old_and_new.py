"""An old 0.8.2 consumer, a new group member, a Pulsar and an Iggy reader see the same records of an
old and a new producer, and a group's position passes through all of them.

Each reader sees the fields that its protocol can express: Kafka and Pulsar the keys, the new Kafka
client and Pulsar the headers.
"""

from conformance.clients.base import ClientMessage
from conformance.runner import Context

GROUP = "1"  # The consumer id that iggy-py polls with.
OLD, NEW = "kafka-python", "kafka-python-today"
WITH_KEYS = (OLD, NEW, "pulsar-client")
WITH_HEADERS = (NEW, "pulsar-client")
READERS = (OLD, NEW, "pulsar-client", "iggy-py")
CLIENTS = [READERS, (OLD, "iggy-py", "pulsar-client", NEW)]
EACH, ROUNDS = 15, 2


def run(context: Context) -> None:
    topic = context.topic()
    readers = dict(zip(context.client_names, context.clients, strict=True))
    sent: list[ClientMessage] = []
    for turn in range(len(READERS) * ROUNDS):
        writer = (OLD, NEW)[turn % 2]
        batch = [_message(writer, len(sent) + at) for at in range(EACH)]
        readers[writer].produce(topic, batch, (None, "gzip")[turn // 2 % 2])
        sent += batch
    for name, reader in readers.items():
        assert reader_sees(name, reader.read(topic, len(sent))) == reader_sees(name, sent)
    position = 0
    for _ in range(ROUNDS):
        for name, reader in readers.items():
            messages = reader.read_as_group(topic, GROUP, EACH)
            assert reader_sees(name, messages) == reader_sees(
                name, sent[position : position + EACH]
            ), name
            position += EACH


def _message(writer: str, number: int) -> ClientMessage:
    headers = [("a", b"%d" % number), ("b", b"x")] if writer == NEW and number % 2 else []
    key = b"key %d" % number if number % 3 else None
    return ClientMessage(b"value %d of %s" % (number, writer.encode()), key, headers)


def reader_sees(name: str, messages: list[ClientMessage]) -> list[tuple[object, ...]]:
    """Return the fields of the messages that a reader can express."""
    return [
        (
            message.value,
            message.key if name in WITH_KEYS else None,
            sorted(message.headers) if name in WITH_HEADERS else None,
        )
        for message in messages
    ]
