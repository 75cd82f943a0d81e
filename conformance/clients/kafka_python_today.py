"""kafka-python 3 with its default settings: record batches, and groups with a coordinator."""

import time
from typing import Any

from kafka import KafkaConsumer

from conformance.clients.base import READ_TIMEOUT_S, ClientMessage, Timeout
from conformance.clients.kafka_python import KafkaPythonDriver

POLL_MS = 500


class KafkaPythonToday(KafkaPythonDriver):
    """Keys, values and headers; `subscribe` in a group, as today's users do."""

    def __init__(self, address: str) -> None:
        self.common = {"bootstrap_servers": address}
        self.producing = {}  # The library's own idempotence.

    def sent(self, item: ClientMessage) -> dict[str, Any]:
        """See `KafkaPythonDriver.sent`; with headers."""
        return {**super().sent(item), "headers": item.headers}

    def consume(self, topic: str, group: str | None, count: int) -> list[ClientMessage]:
        """See `KafkaPythonDriver.consume`; as a member of the group."""
        messages: list[ClientMessage] = []
        consumer = KafkaConsumer(
            topic,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **self.common,
        )
        deadline = time.monotonic() + READ_TIMEOUT_S
        try:
            while len(messages) < count:
                polled = consumer.poll(POLL_MS, max_records=count - len(messages))
                messages += [_message(record) for records in polled.values() for record in records]
                if len(messages) < count and time.monotonic() > deadline:
                    raise Timeout(f"{len(messages)} of {count} messages in {READ_TIMEOUT_S:.0f} s")
            if group is not None:
                consumer.commit()
        finally:
            consumer.close()
        return messages


def _message(record: Any) -> ClientMessage:
    headers = [(name, value or b"") for name, value in record.headers]
    return ClientMessage(
        record.value, record.key, headers, partition=record.partition, offset=record.offset
    )


DRIVER = KafkaPythonToday
