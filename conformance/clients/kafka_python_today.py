"""kafka-python 3 with its default settings: record batches, and groups with a coordinator."""

import time
from typing import Any

from kafka import KafkaConsumer

from conformance.clients.base import READ_TIMEOUT_S, Message, Timeout
from conformance.clients.kafka_python import KafkaPython

POLL_MS = 500


class KafkaPythonToday(KafkaPython):
    """Keys, values and headers; `subscribe` in a group, as today's users do."""

    def __init__(self, address: str) -> None:
        self.common = {"bootstrap_servers": address}
        self.producing = {}  # The library's own idempotence.

    def sent(self, item: Message) -> dict[str, Any]:
        """See `KafkaPython.sent`; with headers."""
        return {**super().sent(item), "headers": item.headers}

    def consume(self, topic: str, group: str | None, count: int) -> list[Message]:
        """See `KafkaPython.consume`; as a member of the group."""
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
