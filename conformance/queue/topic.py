"""The topic of the queue: its records, its settings and the group's backlog."""

from typing import Final

import confluent_kafka
import httpx
import pulsar
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from conformance.queue.worker import GROUP
from conformance.server import RunningBroker

DEAD_LETTERS: Final = "queue-dead"
HTTP_BATCH: Final = 500
UNSENT_MAX: Final = 50_000  # Of the 100,000 records that librdkafka's queue takes.


def produce(broker: RunningBroker, topic: str, count: int) -> set[str]:
    """Fill the topic by producers of three protocols; return the values."""
    values = [f"v{number}" for number in range(count)]
    third = count // 3
    by_kafka, by_pulsar, by_http = values[:third], values[third : 2 * third], values[2 * third :]
    kafka = confluent_kafka.Producer(
        {"bootstrap.servers": broker.addresses["kafka"], "enable.idempotence": True}
    )
    for value in by_kafka:
        while len(kafka) >= UNSENT_MAX:
            kafka.poll(0.1)
        kafka.produce(topic, value, on_delivery=_check_delivery)
        kafka.poll(0)
    kafka.flush()
    client = pulsar.Client(
        f"pulsar://{broker.addresses['pulsar']}",
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    for value in by_pulsar:
        producer.send_async(value.encode(), lambda result, _: None)
    producer.flush()
    client.close()
    with httpx.Client(base_url=f"http://{broker.addresses['http']}", timeout=30) as http:
        for first in range(0, len(by_http), HTTP_BATCH):
            messages = [{"value": value} for value in by_http[first : first + HTTP_BATCH]]
            http.post(
                f"/topics/public/default/{topic}", json={"messages": messages}
            ).raise_for_status()
    return set(values)


def backlog(broker: RunningBroker, topic: str) -> int:
    """Return how many records the group has not acknowledged."""
    path = f"http://{broker.addresses['http']}/topics/public/default/{topic}/subscription/{GROUP}/cursor"
    answer = httpx.get(path, timeout=30)
    if answer.status_code == httpx.codes.NOT_FOUND:
        return 1  # No worker has joined yet.
    answer.raise_for_status()
    return int(answer.json()["cursor"]["backlog"])


def _check_delivery(error: object, _: object) -> None:
    if error is not None:
        raise RuntimeError(error)


def prepare(broker: RunningBroker, topic: str) -> None:
    """Create the topics; let the group begin at the first record, with long locks."""
    admin = AdminClient({"bootstrap.servers": broker.addresses["kafka"]})
    topics = [NewTopic(topic, 2, 1), NewTopic(DEAD_LETTERS, 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result()
    settings = {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": "60000",
        "errors.deadletterqueue.topic.name": DEAD_LETTERS,
    }
    resource = ConfigResource(
        ConfigResource.Type.GROUP,
        GROUP,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ],
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def dead_letters(broker: RunningBroker) -> set[str]:
    """Return the values in the dead letter topic."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.addresses["kafka"],
            "group.id": "dead-letters",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(DEAD_LETTERS, 0, 0)])
    values: set[str] = set()
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.add(message.value().decode())
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            consumer.close()
            return values
        else:
            raise RuntimeError(error)
