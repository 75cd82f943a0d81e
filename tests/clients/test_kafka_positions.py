"""Positions of many partitions after a kill, committed by a stock Kafka client in a
single request.
"""

from pathlib import Path

import pytest

from conformance.server import RunningBroker

kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

TOPICS = ("a", "b")
PARTITIONS = 40


@pytest.mark.parametrize("version", [(0, 8, 2), (0, 8, 1)], ids=str)
def test_kafka_python_finds_its_last_commit_of_each_partition(
    tmp_path: Path, version: tuple[int, ...]
) -> None:
    places = [kafka.TopicPartition(name, index) for name in TOPICS for index in range(PARTITIONS)]
    broker = RunningBroker(
        tmp_path,
        listen={"kafka": "127.0.0.1:0"},
        others=False,
        settings=[f"topics.num_partitions={PARTITIONS}"],
    )
    with broker:
        client = {"bootstrap_servers": broker.addresses["kafka"], "api_version": version}
        writer = kafka.KafkaProducer(**client)
        assert [len(writer.partitions_for(name)) for name in TOPICS] == [PARTITIONS] * 2
        writer.close()
        reader = kafka.KafkaConsumer(group_id="many", enable_auto_commit=False, **client)
        reader.assign(places)
        for turn in range(1, 20):
            offsets = {place: turn * 1000 + at for at, place in enumerate(places)}
            reader.commit(
                {
                    place: kafka.structs.OffsetAndMetadata(offset, f"turn {turn}", -1)
                    for place, offset in offsets.items()
                }
            )
        broker.kill()
        reader.close()
        broker.start()
        client["bootstrap_servers"] = broker.addresses["kafka"]
        reader = kafka.KafkaConsumer(group_id="many", enable_auto_commit=False, **client)
        assert {place: reader.committed(place) for place in places} == offsets
        reader.close()
