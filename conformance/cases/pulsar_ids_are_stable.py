"""Records that Kafka wrote keep their Pulsar ids from any start position: entry id = offset."""

from conformance.clients.raw.kafka import KafkaWire, message
from conformance.clients.raw.pulsar import PulsarWire
from conformance.runner import RAW, Context

CLIENTS = [RAW]
COUNT = 50


def run(context: Context) -> None:
    topic = context.topic()
    with KafkaWire(context.address("kafka")) as kafka:
        kafka.create(topic)
        for start in range(0, COUNT, 10):
            kafka.produce(
                topic, b"".join(message(None, b"%d" % i) for i in range(start, start + 10))
            )
        for start in (0, 1, 9, 10, 33):
            group = f"from-{start}"
            kafka.commit(group, topic, start)
            for permits in (1, 7):
                with PulsarWire(context.address("pulsar")) as pulsar:
                    pulsar.subscribe(topic, group, permits)
                    seen = [pulsar.next_message() for _ in range(min(permits, COUNT - start))]
                expected = [(start + i, b"%d" % (start + i)) for i in range(len(seen))]
                assert [(item.entry, item.payload) for item in seen] == expected
