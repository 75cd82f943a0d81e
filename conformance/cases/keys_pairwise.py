"""Messages with a text key and without a key keep this between libraries that have keys."""

from conformance.clients.base import ClientMessage
from conformance.runner import Context

LIBRARIES = ("kafka-python", "confluent-kafka", "pulsar-client", "httpx")
CLIENTS = [(writer, reader) for writer in LIBRARIES for reader in LIBRARIES]


def run(context: Context) -> None:
    writer, reader = context.clients
    topic = context.topic()
    sent = [
        ClientMessage(f"value {i}".encode(), f"key {i % 5}".encode() if i % 3 else None)
        for i in range(120)
    ]
    writer.produce(topic, sent)
    seen = reader.read(topic, len(sent))
    assert [(m.key, m.value) for m in seen] == [(m.key, m.value) for m in sent]
