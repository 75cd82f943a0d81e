"""The stock Pulsar client on Failover and Key_Shared subscriptions, and with delayed messages."""

import datetime
import time
from collections import defaultdict
from typing import Any

import pytest

from tests.clients.pulsar.kit import (
    EARLIEST,
    RECEIVE_MS,
    SHARED,
    assert_empty,
    numbered,
    produce,
    pulsar,
    take,
    values,
)
from tests.waiting import HANG_S

pytestmark = [pytest.mark.clients, pytest.mark.slow]

FAILOVER = pulsar.ConsumerType.Failover
KEY_SHARED = pulsar.ConsumerType.KeyShared

# Slots of a sticky subscription, as Apache's own code has them.
STICKY_SLOTS = {
    "a": 27058,
    "k1": 24618,
    "key-1": 5536,
    "hello world": 36623,
    "user-12345": 34464,
}


def by_consumer(consumers: list[Any], count: int, *, ack: bool = True) -> list[list[Any]]:
    """Return the share of each of several consumers of `count` messages."""
    shares: list[list[Any]] = [[] for _ in consumers]
    deadline = time.monotonic() + HANG_S
    while sum(map(len, shares)) < count:
        assert time.monotonic() < deadline, f"of {count} came {[*map(len, shares)]}"
        for share, consumer in zip(shares, consumers, strict=True):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            if ack:
                consumer.acknowledge(message)
            share.append(message)
    return shares


def test_failover(client: Any, topic: str) -> None:
    consumers = [
        client.subscribe(
            topic, "s", consumer_type=FAILOVER, consumer_name=f"c{n}", initial_position=EARLIEST
        )
        for n in range(3)
    ]
    produce(client, topic, 10)
    shares = by_consumer(consumers, 10, ack=False)
    (active,) = [place for place, share in enumerate(shares) if share]
    assert values(shares[active]) == numbered(0, 10)
    for message in shares[active][:4]:
        consumers[active].acknowledge(message)
    consumers.pop(active).close()
    rest = [share for share in by_consumer(consumers, 6) if share]
    assert [values(share) for share in rest] == [numbered(4, 10)]
    for consumer in consumers:
        assert_empty(consumer)


def test_kind_is_fixed_while_a_failover_consumer_is_there(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=FAILOVER)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", consumer_type=SHARED)
    client.create_producer(topic).send(b"m0")
    assert values(take(consumer, 1)) == [b"m0"]


def test_key_shared(client: Any, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=KEY_SHARED) for _ in range(2)]
    producer = client.create_producer(topic)
    for number in range(40):
        producer.send(b"%d" % number, partition_key=f"key{number % 8}")
    owners: dict[str, set[int]] = defaultdict(set)
    order: dict[str, list[int]] = defaultdict(list)
    for place, share in enumerate(by_consumer(consumers, 40)):
        for message in share:
            owners[message.partition_key()].add(place)
            order[message.partition_key()].append(int(message.data()))
    assert all(len(places) == 1 for places in owners.values())
    assert all(numbers == sorted(numbers) for numbers in order.values())


def test_key_shared_consumer_that_leaves_gives_its_keys_on(client: Any, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=KEY_SHARED) for _ in range(2)]
    producer = client.create_producer(topic)
    for number in range(40):
        producer.send(b"%d" % number, partition_key=f"key{number % 8}")
    shares = by_consumer(consumers, 40, ack=False)
    for message in shares[1]:
        consumers[1].acknowledge(message)
    consumers[0].close()
    again = by_consumer(consumers[1:], len(shares[0]))
    assert sorted(values(again[0])) == sorted(values(shares[0]))
    assert_empty(consumers[1])


def sticky(*ranges: tuple[int, int]) -> Any:
    mode = pulsar.KeySharedMode.Sticky
    return pulsar.ConsumerKeySharedPolicy(mode, sticky_ranges=[*ranges])


def test_key_shared_sticky(client: Any, topic: str) -> None:
    split = 30_000
    consumers = [
        client.subscribe(topic, "s", consumer_type=KEY_SHARED, key_shared_policy=sticky(key_range))
        for key_range in ((0, split), (split + 1, 65_535))
    ]
    with pytest.raises(pulsar.ConsumerAssignError):
        client.subscribe(topic, "s", consumer_type=KEY_SHARED, key_shared_policy=sticky((10, 20)))
    producer = client.create_producer(topic)
    for key in STICKY_SLOTS:
        producer.send(key.encode(), partition_key=key)
    low, high = by_consumer(consumers, len(STICKY_SLOTS))
    assert {m.partition_key() for m in low} == {k for k, s in STICKY_SLOTS.items() if s <= split}
    assert {m.partition_key() for m in high} == {k for k, s in STICKY_SLOTS.items() if s > split}


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_delayed(client: Any, topic: str, kind: Any) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    producer = client.create_producer(topic)
    begun = time.monotonic()
    producer.send(b"later", deliver_after=datetime.timedelta(seconds=1))
    producer.send(b"now")
    assert values(take(consumer, 1)) == [b"now"]
    message = consumer.receive(RECEIVE_MS)
    assert message.data() == b"later"
    assert time.monotonic() - begun >= 0.9


def test_delayed_is_not_held_for_an_exclusive_subscription(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"later", deliver_after=datetime.timedelta(hours=1))
    assert values(take(consumer, 1)) == [b"later"]
