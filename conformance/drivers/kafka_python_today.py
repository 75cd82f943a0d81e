"""kafka-python 3 with its default settings: record batches, groups that the broker coordinates."""

import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from conformance.drivers.base import READ_TIMEOUT_S, Message, Timeout

POLL_MS = 500


class KafkaPythonToday:
    """Keys, values and headers; `subscribe` in a group, as today's users do."""

    def __init__(self, address: str) -> None:
        self.common: dict[str, Any] = {"bootstrap_servers": address}

    def produce(self, topic: str, messages: list[Message], compression: str | None = None) -> None:
        """The library's own batching and idempotence."""
        producer = KafkaProducer(linger_ms=5, compression_type=compression, **self.common)
        try:
            futures = [
                producer.send(
                    topic,
                    value=item.value,
                    key=item.key,
                    headers=item.headers,
                    partition=item.partition,
                )
                for item in messages
            ]
            for future in futures:
                future.get(READ_TIMEOUT_S)
        finally:
            producer.close()

    def read(self, topic: str, count: int) -> list[Message]:
        """From the beginning, without a group."""
        return self._consume(topic, None, count)

    def read_as_group(self, topic: str, group: str, count: int) -> list[Message]:
        """As a member of the group; commits what was taken."""
        return self._consume(topic, group, count)

    def _consume(self, topic: str, group: str | None, count: int) -> list[Message]:
        taken: list[Message] = []
        consumer = KafkaConsumer(
            topic,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **self.common,
        )
        deadline = time.monotonic() + READ_TIMEOUT_S
        try:
            while len(taken) < count:
                found = consumer.poll(POLL_MS, max_records=count - len(taken))
                taken += [_message(record) for records in found.values() for record in records]
                if len(taken) < count and time.monotonic() > deadline:
                    raise Timeout(f"{len(taken)} of {count} messages in {READ_TIMEOUT_S:.0f} s")
            if group is not None:
                consumer.commit()
        finally:
            consumer.close()
        return taken


def _message(record: Any) -> Message:
    headers = [(name, value or b"") for name, value in record.headers]
    return Message(
        record.value, record.key, headers, partition=record.partition, offset=record.offset
    )


DRIVER = KafkaPythonToday
