"""A group's position carries over from library to library: no gap, and no repeat after a close.

Each reader stops at the end of a writer's batch: after a Kafka commit inside a Pulsar batch, a
Pulsar consumer receives that batch whole again (docs/positions.md).
"""

from itertools import permutations

from conformance.clients.base import ClientMessage
from conformance.runner import Context

GROUP = "1"  # The consumer id that iggy-py polls with.
OTHERS = ("pulsar-client", "iggy-py", "httpx")
CLIENTS = [
    *permutations(("kafka-python", *OTHERS)),
    *permutations(("kafka-python-today", *OTHERS)),  # A group that the broker coordinates.
    ("confluent-kafka", "pulsar-client", "kafka-python"),
    ("pulsar-client", "confluent-kafka", "pulsar-client"),
]
EACH = 40


def run(context: Context) -> None:
    topic = context.topic()
    writer = context.clients[0]
    sent = [f"message {i}".encode() for i in range(EACH * len(context.clients))]
    for start in range(0, len(sent), EACH):
        writer.produce(topic, [ClientMessage(value) for value in sent[start : start + EACH]])
    seen: list[bytes | None] = []
    for reader in context.clients:
        seen += [item.value for item in reader.read_as_group(topic, GROUP, EACH)]
    assert seen == sent
