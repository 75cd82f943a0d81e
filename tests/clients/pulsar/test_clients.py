"""The stock Pulsar client: producing, subscribing, acknowledging, redelivery, names and modes."""

import contextlib
import os
import random
import threading
import time
from typing import Any

import pytest

from conformance.server import RunningBroker
from tests.clients.pulsar.kit import (
    EARLIEST,
    RECEIVE_MS,
    SHARED,
    assert_empty,
    new_client,
    numbered,
    produce,
    pulsar,
    share_out,
    take,
    values,
)
from tests.waiting import HANG_S

pytestmark = [pytest.mark.clients, pytest.mark.slow]

COMPRESSIONS = ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"]


# Producing and reading back.


def test_basic(client: Any, topic: str) -> None:
    producer = client.create_producer(topic, producer_name="p-basic")
    before = int(time.time() * 1000)
    message_id = producer.send(
        b"hello",
        properties={"a": "1", "b": "zwei"},
        partition_key="k1",
        event_timestamp=123,
    )
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    (message,) = take(consumer, 1)
    assert message.data() == b"hello"
    assert message.properties() == {"a": "1", "b": "zwei"}
    assert message.partition_key() == "k1"
    assert message.event_timestamp() == 123
    assert before <= message.publish_timestamp() <= int(time.time() * 1000)
    assert message.message_id() == message_id
    assert message.redelivery_count() == 0


def test_ordering_key_and_producer_name(client: Any, topic: str) -> None:
    producer = client.create_producer(topic, producer_name="p-ordering")
    producer.send(b"x", partition_key="k", ordering_key="o")
    (message,) = take(client.subscribe(topic, "s", initial_position=EARLIEST), 1)
    assert (message.partition_key(), message.ordering_key()) == ("k", "o")
    assert message.producer_name() == "p-ordering"


def test_empty_payload_is_not_a_null_value(client: Any, topic: str) -> None:
    client.create_producer(topic).send(b"")
    (message,) = take(client.subscribe(topic, "s", initial_position=EARLIEST), 1)
    assert (message.data(), message.has_null_value()) == (b"", False)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_comes_back_in_order(
    client: Any, topic: str, compression: str, batched: bool
) -> None:
    producer = client.create_producer(
        topic,
        compression_type=getattr(pulsar.CompressionType, compression),
        batching_enabled=batched,
        batching_max_messages=7,
        block_if_queue_full=True,
    )
    sent = [b"%d " % number * 50 for number in range(20)]
    for payload in sent:
        producer.send_async(payload, None)
    producer.flush()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert values(take(consumer, 20)) == sent


def test_thousands_in_flight_come_back_in_order(client: Any, topic: str) -> None:
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=2000)
    failed: list[Any] = []

    def done(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    for number in range(5000):
        producer.send_async(b"m%d" % number, done)
    producer.flush()
    assert not failed
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert values(take(consumer, 5000)) == numbered(0, 5000)


def test_chunking(client: Any, topic: str) -> None:
    payload = os.urandom(12 * 1024 * 1024)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    client.create_producer(topic, chunking_enabled=True).send(payload)
    (message,) = take(consumer, 1)
    assert message.data() == payload
    consumer.close()
    assert_empty(client.subscribe(topic, "s"))


def test_chunks_go_to_one_of_two_shared_consumers(client: Any, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=SHARED) for _ in range(2)]
    producer = client.create_producer(topic, chunking_enabled=True)
    sent = [bytes([number]) * (11 * 1024 * 1024) for number in range(4)]
    for payload in sent:
        producer.send(payload)
    first, second = share_out(consumers, 4)
    assert sorted(first + second) == sent


def test_almost_5_mib(client: Any, topic: str) -> None:
    payload = os.urandom(5 * 1024 * 1024 - 1000)
    client.create_producer(topic).send(payload)
    (message,) = take(client.subscribe(topic, "s", initial_position=EARLIEST), 1)
    assert message.data() == payload


# Subscriptions.


def test_latest_is_the_default(client: Any, topic: str) -> None:
    produce(client, topic, 2)
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"newer")
    assert values(take(consumer, 1)) == [b"newer"]
    assert_empty(consumer)


def test_durable_resume(client: Any, topic: str) -> None:
    produce(client, topic, 4)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    take(consumer, 2)
    consumer.close()
    consumer = client.subscribe(topic, "s")
    assert values(take(consumer, 2)) == numbered(2, 4)
    assert_empty(consumer)


def test_exclusive_busy(url: str, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")
    other = new_client(url)
    with pytest.raises(pulsar.ConsumerBusy):
        other.subscribe(topic, "s")
    other.close()
    consumer.close()
    client.subscribe(topic, "s").close()


def test_type_conflict(client: Any, topic: str) -> None:
    client.subscribe(topic, "s", consumer_type=SHARED)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Failover)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")


def test_shared(client: Any, topic: str) -> None:
    consumers = [
        client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=10) for _ in range(2)
    ]
    produce(client, topic, 100)
    shares = share_out(consumers, 100)
    assert sorted(shares[0] + shares[1]) == sorted(numbered(0, 100))
    assert min(len(share) for share in shares) >= 10
    for consumer in consumers:
        assert_empty(consumer)


def test_unsubscribe(client: Any, topic: str) -> None:
    produce(client, topic, 2)
    client.subscribe(topic, "s", initial_position=EARLIEST).unsubscribe()
    consumer = client.subscribe(topic, "s")
    assert_empty(consumer)
    client.create_producer(topic).send(b"newer")
    assert values(take(consumer, 1)) == [b"newer"]


def test_several_topics(client: Any, topic: str) -> None:
    topics = [f"{topic}-{letter}" for letter in "ab"]
    consumer = client.subscribe(topics, "s")
    for name in topics:
        client.create_producer(name).send(name.encode())
    assert sorted(values(take(consumer, 2))) == sorted(name.encode() for name in topics)


def test_pattern(client: Any, topic: str) -> None:
    import re

    for letter in "ab":
        client.create_producer(f"{topic}-{letter}").send(letter.encode())
    client.create_producer(f"other-{topic}").send(b"other")
    pattern = re.compile(f"persistent://public/default/{topic}-.*")
    consumer = client.subscribe(pattern, "s", initial_position=EARLIEST)
    assert sorted(values(take(consumer, 2))) == [b"a", b"b"]
    assert_empty(consumer)


# Acknowledging.


def test_cumulative(client: Any, topic: str) -> None:
    produce(client, topic, 4)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    consumer.acknowledge_cumulative(take(consumer, 3, ack=False)[-1])
    consumer.close()
    consumer = client.subscribe(topic, "s")
    assert values(take(consumer, 1)) == [b"m3"]
    assert_empty(consumer)


def test_cumulative_in_the_middle_of_a_batch_keeps_the_batch(client: Any, topic: str) -> None:
    produce(client, topic, 3, batched=True)
    produce(client, topic, 5, batched=True)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    consumer.acknowledge_cumulative(take(consumer, 5, ack=False)[-1])
    consumer.close()
    consumer = client.subscribe(topic, "s")
    assert values(take(consumer, 5)) == numbered(0, 5)
    assert_empty(consumer)


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_batch_index_ack(client: Any, topic: str, kind: str) -> None:
    settings = {
        "batch_index_ack_enabled": True,
        "consumer_type": getattr(pulsar.ConsumerType, kind),
    }
    consumer = client.subscribe(topic, "s", **settings)
    produce(client, topic, 10, batched=True)
    messages = take(consumer, 10, ack=False)
    for number in (0, 3):
        consumer.acknowledge(messages[number])
    consumer.close()
    consumer = client.subscribe(topic, "s", **settings)
    left = [b"m%d" % number for number in range(10) if number not in (0, 3)]
    assert values(take(consumer, 8)) == left
    assert_empty(consumer)


def test_cumulative_batch_index_ack(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    produce(client, topic, 10, batched=True)
    consumer.acknowledge_cumulative(take(consumer, 5, ack=False)[-1])
    consumer.close()
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    assert values(take(consumer, 5)) == numbered(5, 10)
    assert_empty(consumer)


def test_batch_is_done_once_all_its_messages_are(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    produce(client, topic, 10, batched=True)
    messages = take(consumer, 10, ack=False)
    random.Random(1).shuffle(messages)
    for message in messages:
        consumer.acknowledge(message)
    consumer.close()
    assert_empty(client.subscribe(topic, "s", consumer_type=SHARED))


def test_position_survives_a_kill(broker: RunningBroker, url: str, topic: str) -> None:
    client = new_client(url)
    ids = produce(client, topic, 10)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    for message in take(consumer, 4):
        assert message.message_id() in ids
    consumer.close()  # The client flushes the acks.
    # The acks wait for no disk. A new subscription does, and all positions are in the same journal.
    client.subscribe(topic, "another").close()
    client.close()
    broker.kill()
    broker.start()
    client = new_client(url)
    consumer = client.subscribe(topic, "s")
    messages = take(consumer, 6)
    assert values(messages) == numbered(4, 10)
    assert [message.message_id() for message in messages] == ids[4:]
    client.close()


# Redelivery.


def test_nack_count(client: Any, topic: str) -> None:
    consumer = client.subscribe(
        topic, "s", consumer_type=SHARED, negative_ack_redelivery_delay_ms=100
    )
    produce(client, topic, 1)
    for count in range(3):
        message = consumer.receive(RECEIVE_MS)
        assert message.redelivery_count() == count
        if count < 2:
            consumer.negative_acknowledge(message)
    consumer.acknowledge(message)
    consumer.close()
    assert_empty(client.subscribe(topic, "s", consumer_type=SHARED))


def test_nack_on_exclusive_sends_all_unacknowledged_again(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", negative_ack_redelivery_delay_ms=100)
    produce(client, topic, 4)
    messages = take(consumer, 4, ack=False)
    consumer.acknowledge(messages[1])
    consumer.negative_acknowledge(messages[2])
    assert values(take(consumer, 3)) == [b"m0", b"m2", b"m3"]
    assert_empty(consumer)


def test_redeliver_unacknowledged(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    produce(client, topic, 5)
    consumer.acknowledge(take(consumer, 5, ack=False)[0])
    consumer.redeliver_unacknowledged_messages()
    again = take(consumer, 4)
    assert sorted(values(again)) == numbered(1, 5)
    assert {message.redelivery_count() for message in again} == {1}


def test_dead_letter(client: Any, topic: str) -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(
        max_redeliver_count=1,
        dead_letter_topic=f"{topic}-dead",
        initial_subscription_name="undertaker",
    )
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=SHARED,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=policy,
    )
    produce(client, topic, 1)
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(RECEIVE_MS))
    assert_empty(consumer)
    # The producer created the subscription: its default position, Latest, has no effect.
    (dead,) = take(client.subscribe(f"{topic}-dead", "undertaker"), 1)
    assert dead.data() == b"m0"
    assert "REAL_TOPIC" in dead.properties()


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_redeliver_on_close(client: Any, topic: str, kind: str) -> None:
    settings = {"consumer_type": getattr(pulsar.ConsumerType, kind)}
    first = client.subscribe(topic, "s", **settings)
    produce(client, topic, 2)
    first.acknowledge(take(first, 2, ack=False)[0])
    first.close()
    second = client.subscribe(topic, "s", **settings)
    (message,) = take(second, 1)
    assert (message.data(), message.redelivery_count()) == (b"m1", 0)
    assert_empty(second)


# Producers.


def test_producer_name(client: Any, topic: str) -> None:
    first = client.create_producer(topic, producer_name="p")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="p")
    first.close()
    client.create_producer(topic, producer_name="p").send(b"x")


def test_exclusive_producer(client: Any, topic: str) -> None:
    exclusive = pulsar.ProducerAccessMode.Exclusive
    first = client.create_producer(topic, access_mode=exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    first.send(b"x")
    first.close()
    client.create_producer(topic).send(b"y")


def test_fencing_producer(url: str, client: Any, topic: str) -> None:
    old_client = new_client(url)
    exclusive = pulsar.ProducerAccessMode.Exclusive
    old = old_client.create_producer(topic, access_mode=exclusive, send_timeout_millis=30_000)
    old.send(b"old")
    fencing = pulsar.ProducerAccessMode.ExclusiveWithFencing
    client.create_producer(topic, access_mode=fencing).send(b"new")
    with pytest.raises(pulsar.PulsarException):
        old.send(b"older")
    with contextlib.suppress(pulsar.AlreadyClosed):  # Usually closed with its only producer.
        old_client.close()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert values(take(consumer, 2)) == [b"old", b"new"]
    assert_empty(consumer)


def test_producer_waits_for_its_turn(url: str, client: Any, topic: str) -> None:
    waiting_mode = pulsar.ProducerAccessMode.WaitForExclusive
    first = client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    other = new_client(url)
    done: list[Any] = []

    def wait() -> None:
        done.append(other.create_producer(topic, access_mode=waiting_mode).send(b"second"))

    thread = threading.Thread(target=wait)
    thread.start()
    first.send(b"first")
    time.sleep(0.3)
    assert not done
    first.close()
    thread.join(HANG_S)
    assert len(done) == 1
    other.close()
