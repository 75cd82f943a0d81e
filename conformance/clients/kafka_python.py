"""kafka-python (2 and 3), configured for a Kafka 0.8.2 broker."""

import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from conformance.clients.base import READ_TIMEOUT_S, ClientMessage, Timeout

API_VERSION = (0, 8, 2)


class KafkaPythonDriver:
    """Keys and values; Kafka 0.8 has no headers."""

    def __init__(self, address: str) -> None:
        self.common: dict[str, Any] = {"bootstrap_servers": address, "api_version": API_VERSION}
        self.producing: dict[str, Any] = {"acks": "all"}

    def produce(
        self, topic: str, messages: list[ClientMessage], compression: str | None = None
    ) -> None:
        """Send with the library's own batching."""
        producer = KafkaProducer(
            linger_ms=5, compression_type=compression, **self.producing, **self.common
        )
        try:
            futures = [producer.send(topic, **self.sent(item)) for item in messages]
            for future in futures:
                future.get(READ_TIMEOUT_S)
        finally:
            producer.close()

    def sent(self, item: ClientMessage) -> dict[str, Any]:
        """Return the send arguments of a message."""
        return {"value": item.value, "key": item.key, "partition": item.partition}

    def read(self, topic: str, count: int) -> list[ClientMessage]:
        """Read from the beginning of every partition, without a group."""
        return self.consume(topic, None, count)

    def read_as_group(self, topic: str, group: str, count: int) -> list[ClientMessage]:
        """Read from the committed offsets; commit the received messages."""
        return self.consume(topic, group, count)

    def consume(self, topic: str, group: str | None, count: int) -> list[ClientMessage]:
        """Take `count` messages; in a group, commit them."""
        consumer = KafkaConsumer(
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            consumer_timeout_ms=int(READ_TIMEOUT_S * 1000),
            **self.common,
        )
        try:
            partitions = [TopicPartition(topic, p) for p in _partitions(consumer, topic)]
            consumer.assign(partitions)
            if group is None:
                consumer.seek_to_beginning(*partitions)
            messages, positions = _take(consumer, count)
            if group is not None and positions:
                consumer.commit({tp: _commit(offset) for tp, offset in positions.items()})
            return messages
        finally:
            consumer.close()


def _take(consumer: Any, count: int) -> tuple[list[ClientMessage], dict[Any, int]]:
    messages: list[ClientMessage] = []
    positions: dict[Any, int] = {}
    if not count:
        return messages, positions
    for record in consumer:
        messages.append(
            ClientMessage(
                record.value, record.key, partition=record.partition, offset=record.offset
            )
        )
        positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
        if len(messages) == count:
            return messages, positions
    raise Timeout(f"{len(messages)} of {count} messages in {READ_TIMEOUT_S:.0f} s")


def _partitions(consumer: Any, topic: str) -> list[int]:
    deadline = time.monotonic() + READ_TIMEOUT_S
    while time.monotonic() < deadline:
        numbers = consumer.partitions_for_topic(topic)
        if numbers:
            return sorted(numbers)
    raise Timeout(f"no partitions of {topic} in {READ_TIMEOUT_S:.0f} s")


def _commit(offset: int) -> OffsetAndMetadata:
    # Version 3 of the library has a third field, the leader epoch, that version 2.0 lacks.
    return OffsetAndMetadata(*(offset, "", -1)[: len(OffsetAndMetadata._fields)])


DRIVER = KafkaPythonDriver
