"""A group that stock clients of a protocol take over from clients of another protocol."""

from pathlib import Path

import pytest

from conformance.server import RunningBroker
from tests.clients.pulsar.kit import EARLIEST, SHARED, new_client, pulsar, take, values

kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
kafka_admin = pytest.importorskip("kafka.admin", reason="kafka-python is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

EXCLUSIVE = pulsar.ConsumerType.Exclusive
SENT = [b"%d" % number for number in range(10)]
PLACE = kafka.TopicPartition("t", 0)


def test_kafka_reads_through_pulsars_acknowledged_ranges_and_keeps_them(
    tmp_path: Path,
) -> None:
    """Kafka's commits inside a range are forward commits: acknowledgements above stay."""
    with RunningBroker(tmp_path) as broker:
        client = new_client(f"pulsar://{broker.addresses['pulsar']}")
        producer = client.create_producer("t", batching_enabled=False)
        for value in SENT:
            producer.send(value)
        consumer = client.subscribe("t", "g", SHARED, initial_position=EARLIEST)
        held = take(consumer, len(SENT), ack=False)
        for number in (2, 3, 4, 7):
            consumer.acknowledge(held[number])
        consumer.close()
        reader = kafka.KafkaConsumer(
            bootstrap_servers=broker.addresses["kafka"], group_id="g", enable_auto_commit=False
        )
        reader.assign([PLACE])
        for number in range(4):
            assert next(reader).value == SENT[number]
            reader.commit({PLACE: kafka.structs.OffsetAndMetadata(number + 1, "", -1)})
            assert reader.committed(PLACE) == number + 1
        reader.close()
        consumer = client.subscribe("t", "g", SHARED)
        assert values(take(consumer, 4, ack=False)) == [b"5", b"6", b"8", b"9"]
        client.close()


def test_kafka_does_not_delete_a_group_that_a_pulsar_consumer_reads(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker:
        client = new_client(f"pulsar://{broker.addresses['pulsar']}")
        producer = client.create_producer("t", batching_enabled=False)
        for value in SENT:
            producer.send(value)
        consumer = client.subscribe("t", "g", initial_position=EARLIEST)
        take(consumer, 4)
        admin = kafka_admin.KafkaAdminClient(bootstrap_servers=broker.addresses["kafka"])
        assert "NonEmptyGroupError" in str(admin.delete_groups(["g"]))
        consumer.close()
        consumer = client.subscribe("t", "g")
        assert values(take(consumer, 6)) == SENT[4:]
        consumer.close()
        assert admin.delete_groups(["g"]) == {"g": "OK"}
        client.close()


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_a_chunked_message_before_kafkas_position_is_delivered_whole(
    tmp_path: Path, kind: pulsar.ConsumerType
) -> None:
    """Kafka sees the message at the offset of its last chunk: the other chunks are below Kafka's
    commit.
    """
    with RunningBroker(tmp_path) as broker:
        client = new_client(f"pulsar://{broker.addresses['pulsar']}")
        producer = client.create_producer("t", batching_enabled=False, chunking_enabled=True)
        large = b"0123456789" * 600_000  # More than a Pulsar frame holds.
        for value in (b"first", large, b"last"):
            producer.send(value)
        reader = kafka.KafkaConsumer(
            bootstrap_servers=broker.addresses["kafka"],
            group_id="g",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        reader.assign([PLACE])
        first, second = next(reader), next(reader)
        assert (first.offset, second.offset, second.value == large) == (0, 2, True)
        reader.commit({PLACE: kafka.structs.OffsetAndMetadata(second.offset, "", -1)})
        reader.close()
        consumer = client.subscribe("t", "g", kind)
        assert values(take(consumer, 2)) == [large, b"last"]
        consumer.close()
        client.close()
