"""pulsar-client (Apache Pulsar's C++ library from Python)."""

from typing import Any

import pulsar

from conformance.clients.base import READ_TIMEOUT_S, ClientMessage, Timeout

MILLIS = 1000


class PulsarClientDriver:
    """Text keys, properties, batches. The library has no calls for binary keys or null values."""

    def __init__(self, address: str) -> None:
        self.url = f"pulsar://{address}"

    def produce(
        self, topic: str, messages: list[ClientMessage], compression: str | None = None
    ) -> None:
        """Send batched messages, all in flight at once."""
        client = self._client()
        failures: list[str] = []
        try:
            producer = client.create_producer(
                topic,
                batching_enabled=True,
                batching_max_publish_delay_ms=5,
                block_if_queue_full=True,
                compression_type=getattr(pulsar.CompressionType, compression or "NONE"),
            )
            for item in messages:
                producer.send_async(
                    item.value or b"",
                    lambda result, _: (
                        None if result == pulsar.Result.Ok else failures.append(str(result))
                    ),
                    partition_key=None if item.key is None else item.key.decode(),
                    properties={name: value.decode() for name, value in item.headers},
                )
            producer.flush()
        finally:
            client.close()
        if failures:
            raise Timeout(f"{len(failures)} messages failed: {failures[0]}")

    def read(self, topic: str, count: int) -> list[ClientMessage]:
        """Read with a reader from the earliest message."""
        client = self._client()
        try:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            return [_message(_next(reader.read_next, i, count)) for i in range(count)]
        finally:
            client.close()

    def read_as_group(self, topic: str, group: str, count: int) -> list[ClientMessage]:
        """Read with an Exclusive subscription; acknowledge every message individually, batch
        indexes included.
        """
        client = self._client()
        try:
            consumer = client.subscribe(
                topic,
                group,
                initial_position=pulsar.InitialPosition.Earliest,
                batch_index_ack_enabled=True,
            )
            messages = []
            for i in range(count):
                received = _next(consumer.receive, i, count)
                messages.append(_message(received))
                consumer.acknowledge(received)
            consumer.close()
            return messages
        finally:
            client.close()

    def _client(self) -> Any:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn)
        return pulsar.Client(self.url, logger=logger, operation_timeout_seconds=int(READ_TIMEOUT_S))


def _next(receive: Any, received: int, count: int) -> Any:
    try:
        return receive(int(READ_TIMEOUT_S * MILLIS))
    except pulsar.Timeout:
        raise Timeout(f"{received} of {count} messages in {READ_TIMEOUT_S:.0f} s") from None


def _message(received: Any) -> ClientMessage:
    key = received.partition_key()
    return ClientMessage(
        value=received.data(),
        key=key.encode() if key else None,
        headers=[(name, value.encode()) for name, value in sorted(received.properties().items())],
    )


DRIVER = PulsarClientDriver
