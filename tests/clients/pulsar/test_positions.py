"""The stock Pulsar client: seeks, readers, last ids, table views, schemas, refusals."""

import subprocess
import sys
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


# Seeking.


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_seek_by_id(client: Any, topic: str, kind: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=getattr(pulsar.ConsumerType, kind))
    ids = produce(client, topic, 5)
    take(consumer, 5)
    consumer.seek(ids[1])
    assert values(take(consumer, 3)) == numbered(2, 5)
    consumer.seek(pulsar.MessageId.earliest)
    assert values(take(consumer, 5)) == numbered(0, 5)
    consumer.seek(pulsar.MessageId.latest)
    assert_empty(consumer)
    client.create_producer(topic).send(b"newer")
    assert values(take(consumer, 1)) == [b"newer"]


def test_seek_into_a_batch(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    ids = produce(client, topic, 10, batched=True)
    take(consumer, 10)
    consumer.seek(ids[6])
    assert values(take(consumer, 3)) == numbered(7, 10)
    assert_empty(consumer)


def test_seek_by_time(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    times = []
    for number in range(4):
        times.append(int(time.time() * 1000))
        producer.send(b"m%d" % number)
        time.sleep(0.05)
    take(consumer, 4)
    consumer.seek(times[2])
    assert values(take(consumer, 2)) == numbered(2, 4)
    consumer.seek(int(time.time() * 1000) + 60_000)
    assert_empty(consumer)


def test_seek_forgets_acks_and_closes_the_others(url: str, client: Any, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=SHARED)]
    other = new_client(url)
    consumers.append(other.subscribe(topic, "s", consumer_type=SHARED))
    produce(client, topic, 20)
    share_out(consumers, 20)
    consumers[0].seek(pulsar.MessageId.earliest)
    first, second = share_out(consumers, 20)
    assert sorted(first + second) == sorted(numbered(0, 20))
    other.close()


# Readers.


def read(reader: Any) -> list[bytes]:
    got = []
    while reader.has_message_available():
        got.append(reader.read_next(RECEIVE_MS).data())
    return got


@pytest.mark.parametrize("batched", [False, True])
def test_reader(client: Any, topic: str, batched: bool) -> None:
    ids = produce(client, topic, 5, batched=batched)
    assert read(client.create_reader(topic, pulsar.MessageId.earliest)) == numbered(0, 5)
    assert read(client.create_reader(topic, ids[1])) == numbered(2, 5)
    latest = client.create_reader(topic, pulsar.MessageId.latest)
    assert not latest.has_message_available()
    producer = client.create_producer(topic)
    producer.send(b"newer")
    assert latest.has_message_available()
    assert read(latest) == [b"newer"]
    assert not latest.has_message_available()


@pytest.mark.parametrize("batched", [False, True])
def test_reader_from_an_id_on(client: Any, topic: str, batched: bool) -> None:
    ids = produce(client, topic, 5, batched=batched)
    reader = client.create_reader(topic, ids[1], start_message_id_inclusive=True)
    assert read(reader) == numbered(1, 5)


def test_reader_of_an_empty_topic(client: Any, topic: str) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert not reader.has_message_available()


def test_reader_seeks(client: Any, topic: str) -> None:
    ids = produce(client, topic, 5)
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    reader.seek(ids[2])
    assert read(reader) == numbered(3, 5)
    reader.seek(pulsar.MessageId.earliest)
    assert read(reader) == numbered(0, 5)
    reader.seek(int(time.time() * 1000) + 60_000)
    assert not reader.has_message_available()
    client.create_producer(topic).send(b"newer")
    assert reader.read_next(RECEIVE_MS).data() == b"newer"


def test_reader_position_after_a_restart(broker: RunningBroker, url: str, topic: str) -> None:
    client = new_client(url)
    ids = produce(client, topic, 5)
    client.close()
    broker.stop()
    broker.start()
    client = new_client(url)
    assert read(client.create_reader(topic, ids[2])) == numbered(3, 5)
    client.close()


def test_last_id(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    ids = produce(client, topic, 3)
    assert consumer.get_last_message_id() == ids[-1]
    batch = produce(client, topic, 4, batched=True)
    last = consumer.get_last_message_id()
    assert (last.ledger_id(), last.entry_id(), last.batch_index()) == (
        batch[-1].ledger_id(),
        batch[-1].entry_id(),
        3,
    )


def test_table_view(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    for number in range(6):
        producer.send(b"v%d" % number, partition_key=f"k{number % 3}")
    view = client.create_table_view(topic)
    for number in range(3):
        assert view.get(f"k{number}") == b"v%d" % (number + 3)
    view.close()


def test_pause_in_delivery_while_the_queue_is_full(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=4)
    produce(client, topic, 10, batched=True)
    produce(client, topic, 50)
    assert values(take(consumer, 60)) == numbered(0, 10) + numbered(0, 50)


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_queue_size_0_gets_one_by_one(client: Any, topic: str, kind: str) -> None:
    consumer_type = getattr(pulsar.ConsumerType, kind)
    consumer = client.subscribe(topic, "s", consumer_type, receiver_queue_size=0)
    produce(client, topic, 5)
    got = []
    for _ in range(5):
        message = consumer.receive()  # The client takes no timeout here.
        consumer.acknowledge(message)
        got.append(message.data())
    assert got == numbered(0, 5)


# Several partitions.


@pytest.fixture
def partitioned(broker: RunningBroker, topic: str) -> str:
    """Return a topic with three partitions, created by another listener."""
    name = topic.replace("_", "-")
    command = [sys.executable, "-m", "braidlog.broker.cli.main", "topics", "create", name]
    command += ["--partitions", "3", "--url", broker.url]
    assert subprocess.run(command, check=False, timeout=HANG_S).returncode == 0
    return name


def test_partitioned_topic(client: Any, partitioned: str) -> None:
    consumer = client.subscribe(partitioned, "s", initial_position=EARLIEST)
    producer = client.create_producer(partitioned)
    sent = [b"m%d" % number for number in range(30)]
    ids = [producer.send(payload, partition_key=payload.decode()) for payload in sent]
    assert {message_id.partition() for message_id in ids} == {0, 1, 2}
    messages = take(consumer, 30)
    assert sorted(values(messages)) == sorted(sent)
    by_id = {place(message_id): payload for message_id, payload in zip(ids, sent, strict=True)}
    assert all(by_id[place(message.message_id())] == message.data() for message in messages)
    assert_empty(consumer)
    consumer.unsubscribe()
    reader = client.create_reader(f"{partitioned}-partition-1", pulsar.MessageId.earliest)
    assert len(read(reader)) == sum(message_id.partition() == 1 for message_id in ids)


def place(message_id: Any) -> tuple[int, int]:
    return message_id.ledger_id(), message_id.entry_id()


# Schemas.


class SchemaRow(pulsar.schema.Record):
    a = pulsar.schema.String()
    b = pulsar.schema.Integer()


@pytest.mark.parametrize("kind", ["JsonSchema", "AvroSchema"])
def test_schema(client: Any, topic: str, kind: str) -> None:
    if kind == "AvroSchema":
        pytest.importorskip("fastavro")
    schema = getattr(pulsar.schema, kind)(SchemaRow)
    client.create_producer(topic, schema=schema).send(SchemaRow(a="x", b=3))
    consumer = client.subscribe(topic, "s", schema=schema, initial_position=EARLIEST)
    (message,) = take(consumer, 1)
    value = message.value()
    assert (value.a, value.b) == ("x", 3)
    assert message.schema_version() in (bytes(8), "\0" * 8)


def test_schema_incompatible(client: Any, topic: str) -> None:
    client.create_producer(topic, schema=pulsar.schema.JsonSchema(SchemaRow))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=pulsar.schema.StringSchema())
    client.create_producer(topic).send(b"without")


# Refusals.


def test_missing_namespace_is_refused(client: Any, topic: str) -> None:
    with pytest.raises((pulsar.TopicNotFound, pulsar.LookupError)):
        client.create_producer(f"persistent://public/nowhere/{topic}")
