"""A group reads the messages of three libraries on a topic, in log order, with a
single position.
"""

from conformance.clients.base import ClientMessage
from conformance.runner import Context

GROUP = "1"
CLIENTS = [("kafka-python", "pulsar-client", "iggy-py")]


def run(context: Context) -> None:
    topic = context.topic()
    sent = []
    for turn in range(4):
        for writer in context.clients:
            batch = [f"{writer.name} {turn} {i}".encode() for i in range(25)]
            writer.produce(topic, [ClientMessage(value) for value in batch])
            sent += batch
    seen: list[bytes | None] = []
    for turn in range(4):
        for reader in context.clients:
            count = 20 + turn + context.clients.index(reader)
            seen += [item.value for item in reader.read_as_group(topic, GROUP, count)]
    assert seen == sent[: len(seen)]
