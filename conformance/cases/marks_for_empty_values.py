"""With the topic setting `uncarried_records=mark`, an Iggy client that cannot take an absent or
empty value receives a zero byte instead, and the group passes no offset unseen.
"""

from conformance.clients.base import ClientMessage
from conformance.clients.raw.kafka import KafkaWire
from conformance.runner import Context

GROUP = "1"  # The consumer id that iggy-py polls with.
CLIENTS = [(writer, "iggy-py") for writer in ("kafka-python", "pulsar-client", "httpx")]


def run(context: Context) -> None:
    writer, reader = context.clients
    topic = context.topic()
    context.make_topic(topic, uncarried_records="mark")
    empty = b"" if writer.name == "pulsar_client" else None  # The library has no absent value.
    writer.produce(topic, [ClientMessage(value, key=b"k") for value in (b"a", empty, b"", b"d")])
    messages = reader.read_as_group(topic, GROUP, 4)
    assert [(message.offset, message.value) for message in messages] == [
        (0, b"a"),
        (1, b"\0"),
        (2, b"\0"),
        (3, b"d"),
    ]
    with KafkaWire(context.address("kafka")) as kafka:
        assert kafka.committed(GROUP, topic) == 4
