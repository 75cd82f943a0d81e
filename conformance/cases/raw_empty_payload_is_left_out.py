"""A record without payload, which breaks classic Iggy clients, is left out for them; offsets do not
shift.
"""

from conformance.clients.raw.iggy import NEXT, IggyWire
from conformance.clients.raw.kafka import KafkaWire, message
from conformance.runner import RAW, Context

CLIENTS = [RAW]


def run(context: Context) -> None:
    topic = context.topic()
    with KafkaWire(context.address("kafka")) as kafka, IggyWire(context.address("iggy")) as iggy:
        kafka.create(topic)
        values = [b"a", None, b"", b"d"]
        kafka.produce(topic, b"".join(message(None, value) for value in values))
        seen = [(item.offset, item.payload) for item in iggy.poll(topic, 10)]
        assert seen == [(0, b"a"), (3, b"d")]
        iggy.store_offset(topic, "left-out", 0)
        (after,) = iggy.poll(topic, 1, NEXT, consumer="left-out")
        assert after.offset == 3
