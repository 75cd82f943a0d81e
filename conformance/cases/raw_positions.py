"""Kafka's commit of N equals Iggy's stored offset N - 1 and a Pulsar subscription's next message N,
in both directions.
"""

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire, message
from conformance.clients.raw.pulsar import PulsarWire
from conformance.runner import RAW, Context

CLIENTS = [RAW]
GROUP = "billing"


def run(context: Context) -> None:
    topic = context.topic()
    with KafkaWire(context.address("kafka")) as kafka, IggyWire(context.address("iggy")) as iggy:
        kafka.create(topic)
        kafka.produce(topic, b"".join(message(None, b"%d" % i) for i in range(10)))
        assert kafka.committed(GROUP, topic) == -1
        assert iggy.stored_offset(topic, GROUP) is None
        assert kafka.commit(GROUP, topic, 4) == 0
        assert iggy.stored_offset(topic, GROUP) == 3
        with PulsarWire(context.address("pulsar")) as pulsar:
            pulsar.subscribe(topic, GROUP)
            assert pulsar.next_message().entry == 4
        iggy.store_offset(topic, GROUP, 6)
        assert kafka.committed(GROUP, topic) == 7
        with PulsarWire(context.address("pulsar")) as pulsar:
            pulsar.subscribe(topic, GROUP)
            assert pulsar.next_message().entry == 7
