"""confluent-kafka (librdkafka), configured for a Kafka 0.8.2.1 broker."""

import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, Producer, TopicPartition

from conformance.clients.base import READ_TIMEOUT_S, ClientMessage, Timeout


class ConfluentKafka:
    """Keys and values; Kafka 0.8 has no headers, and a group's members assign themselves."""

    def __init__(self, address: str) -> None:
        self.common: dict[str, Any] = {
            "bootstrap.servers": address,
            "api.version.request": False,
            "broker.version.fallback": "0.8.2.1",
        }

    def produce(
        self, topic: str, messages: list[ClientMessage], compression: str | None = None
    ) -> None:
        """Send with acks -1 and the library's own batching."""
        failures: list[str] = []
        codec = {"compression.type": compression or "none"}
        producer = Producer({**self.common, **codec, "acks": "all", "linger.ms": 5})
        for item in messages:
            producer.produce(
                topic,
                value=item.value,
                key=item.key,
                partition=item.partition,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
        left = producer.flush(READ_TIMEOUT_S)
        if left or failures:
            raise Timeout(f"{left} messages unanswered, failures: {failures[:3]}")

    def read(self, topic: str, count: int) -> list[ClientMessage]:
        """Read from the beginning of every partition."""
        return self._consume(topic, "reader-without-commits", OFFSET_BEGINNING, count)

    def read_as_group(self, topic: str, group: str, count: int) -> list[ClientMessage]:
        """Read from the committed offsets; commit the received messages."""
        return self._consume(topic, group, OFFSET_STORED, count)

    def _consume(self, topic: str, group: str, start: int, count: int) -> list[ClientMessage]:
        consumer = Consumer(
            {
                **self.common,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            partitions = (
                consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].partitions
            )
            consumer.assign([TopicPartition(topic, p, start) for p in partitions])
            messages = _take(consumer, count)
            if start == OFFSET_STORED and messages:
                last = {item.partition: item.offset for item in messages}
                consumer.commit(
                    offsets=[TopicPartition(topic, p, (o or 0) + 1) for p, o in last.items()],
                    asynchronous=False,
                )
            return messages
        finally:
            consumer.close()


def _take(consumer: Any, count: int) -> list[ClientMessage]:
    messages: list[ClientMessage] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    while len(messages) < count:
        message = consumer.poll(0.5)
        if message is None or message.error():
            if time.monotonic() > deadline:
                raise Timeout(f"{len(messages)} of {count} messages in {READ_TIMEOUT_S:.0f} s")
            continue
        messages.append(
            ClientMessage(
                message.value(),
                message.key(),
                partition=message.partition(),
                offset=message.offset(),
            )
        )
    return messages


DRIVER = ConfluentKafka
