"""Common steps of the tests with the real Pulsar client."""

import time
from typing import Any

import pytest

from tests.waiting import HANG_S, until_seen

pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")

OPERATION_S = 60
RECEIVE_MS = 60_000
NOTHING_MS = 400  # Wait of a receive that should stay empty.
EARLIEST = pulsar.InitialPosition.Earliest
SHARED = pulsar.ConsumerType.Shared


def new_client(url: str) -> Any:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(url, operation_timeout_seconds=OPERATION_S, logger=quiet)


def take(consumer: Any, count: int, *, ack: bool = True) -> list[Any]:
    """Return the next messages of a consumer."""
    messages = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        if ack:
            consumer.acknowledge(message)
        messages.append(message)
    return messages


def values(messages: list[Any]) -> list[bytes]:
    return [message.data() for message in messages]


def share_out(consumers: list[Any], count: int) -> list[list[bytes]]:
    """Return the share of each of several consumers of `count` messages."""
    shares: list[list[bytes]] = [[] for _ in consumers]
    deadline = time.monotonic() + HANG_S
    while sum(map(len, shares)) < count:
        assert time.monotonic() < deadline, f"of {count} came {[*map(len, shares)]}"
        for share, consumer in zip(shares, consumers, strict=True):
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            share.append(message.data())
    return shares


def assert_empty(consumer: Any) -> None:
    """Check that no more messages come."""
    with pytest.raises(pulsar.Timeout):
        surplus = consumer.receive(NOTHING_MS)
        pytest.fail(f"{surplus.data()!r} came besides")


def produce(client: Any, topic: str, count: int, *, batched: bool = False) -> list[Any]:
    """Send `m0`, `m1` and so on, optionally as a batch; return the message ids."""
    settings: dict[str, Any] = {}
    if batched:
        settings = {
            "batching_enabled": True,
            "batching_max_messages": count,
            "batching_max_publish_delay_ms": 10_000,
        }
    producer = client.create_producer(topic, **settings)
    ids: list[Any] = []

    def stored(result: Any, message_id: Any) -> None:
        assert result == pulsar.Result.Ok
        ids.append(message_id)

    for number in range(count):
        if batched:
            producer.send_async(b"m%d" % number, stored)
        else:
            ids.append(producer.send(b"m%d" % number))
    producer.flush()
    until_seen(lambda: len(ids) == count)  # Client 3.1 returns from `flush` before that.
    producer.close()
    return ids


def numbered(first: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, end)]
