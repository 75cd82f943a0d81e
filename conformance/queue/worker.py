"""A consumer of the queue: `python -m conformance.queue.worker KIND ADDRESS TOPIC`.

Prints a line for each event: nanoseconds of the monotonic clock, the event, the value, and for a
receipt the delivery count (0: unknown). Events: `R` received, `L` handed back, `D` acknowledged,
and the broker has answered. A receipt is written before its acknowledgement is sent: otherwise a
killed worker's acknowledgements would be nobody's. Ends with the first error: the run starts
another worker.
"""

import base64
import random
import sys
import time
from collections.abc import Callable
from typing import Final

GROUP: Final = "queue"
RELEASED_PART: Final = 0.05  # Of the records.
PACE_S: Final = 0.001  # For each record, so that kills meet work.
POLL_S: Final = 1.0
HTTP_POLL_MS: Final = 1000
SETTLE_S: Final = 1.0  # A Pulsar acknowledgement without a receipt is with the broker by then.


def say(event: str, value: bytes, count: int = 0) -> None:
    """Print an event."""
    print(time.monotonic_ns(), event, value.decode(), count, flush=False)


def share(address: str, topic: str) -> None:
    """Take records as a member of a share group."""
    import confluent_kafka as kafka

    consumer = kafka.ShareConsumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    while True:
        done, messages = [], list(consumer.poll(POLL_S))
        for message in messages:  # At once: the times are those of the receipts.
            if message.error():
                raise RuntimeError(message.error())
            say("R", message.value(), _delivery_count(message))
        sys.stdout.flush()
        for message in messages:
            value = message.value()
            time.sleep(PACE_S)
            if random.random() < RELEASED_PART:
                consumer.acknowledge(message, kafka.AcknowledgeType.RELEASE)
                say("L", value)
            else:
                consumer.acknowledge(message, kafka.AcknowledgeType.ACCEPT)
                done.append(value)
        results = consumer.commit_sync(10.0)
        if any(error is not None for error in results.values()):
            raise RuntimeError(results)
        for value in done:
            say("D", value)
        sys.stdout.flush()


def _delivery_count(message: object) -> int:
    count = getattr(message, "delivery_count", None)
    return int(count() or 0) if callable(count) else 0


def pulsar_shared(address: str, topic: str) -> None:
    """Receive messages as a consumer of a Shared subscription."""
    import pulsar

    client = pulsar.Client(address, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        topic,
        GROUP,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=50,
        batch_index_ack_enabled=True,
    )
    waiting: list[tuple[float, bytes]] = []
    while True:
        try:
            message = consumer.receive(int(POLL_S * 1000))
        except pulsar.Timeout:
            message = None
        if message is not None:
            value = message.data()
            say("R", value)
            sys.stdout.flush()
            time.sleep(PACE_S)
            # No negative acknowledgement: it returns the whole batch, while the client keeps the
            # other messages of the batch.
            consumer.acknowledge(message)
            waiting.append((time.monotonic() + SETTLE_S, value))
        while waiting and waiting[0][0] <= time.monotonic():
            say("D", waiting.pop(0)[1])
        sys.stdout.flush()


def http(address: str, topic: str) -> None:
    """Fetch messages as a Shared consumer over HTTP."""
    import httpx

    base = f"/topics/public/default/{topic}/subscription/{GROUP}"
    with httpx.Client(base_url=address, timeout=30) as client:
        created = client.post(base, json={"initial_position": "Earliest", "ack_timeout_ms": 0})
        created.raise_for_status()
        path = f"{base}/consumer/{created.json()['id']}/messages"
        query = {"max_messages": 50, "encoding": "base64", "timeout": HTTP_POLL_MS}
        while True:
            answer = client.get(path, params=query)
            answer.raise_for_status()
            received = [
                (message["messageId"], base64.b64decode(message["value"]))
                for message in answer.json()["messages"]
            ]
            for _, value in received:
                say("R", value)
            sys.stdout.flush()
            time.sleep(PACE_S * len(received))
            if received:
                done = {"type": "Individual", "messageIds": [number for number, _ in received]}
                client.post(f"{base}/cursor", json=done).raise_for_status()
            for _, value in received:
                say("D", value)
            sys.stdout.flush()


KINDS: Final[dict[str, Callable[[str, str], None]]] = {
    "share": share,
    "pulsar": pulsar_shared,
    "http": http,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](sys.argv[2], sys.argv[3])
