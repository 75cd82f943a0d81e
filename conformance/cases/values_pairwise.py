"""Every library reads the text values of every other library, complete and in order."""

from conformance.clients.base import ClientMessage
from conformance.runner import Context

LIBRARIES = (
    "kafka-python",
    "kafka-python-today",
    "confluent-kafka",
    "pulsar-client",
    "iggy-py",
    "httpx",
)
OLD = (("kafka-python-2", "pulsar-client"), ("pulsar-client-31", "kafka-python-2"))
CLIENTS = [(writer, reader) for writer in LIBRARIES for reader in LIBRARIES] + list(OLD)


def run(context: Context) -> None:
    writer, reader = context.clients
    topic = context.topic()
    sent = [f"value {i} äöü €".encode() * (1 + i % 7) for i in range(300)]
    writer.produce(topic, [ClientMessage(value) for value in sent])
    assert [item.value for item in reader.read(topic, len(sent))] == sent
