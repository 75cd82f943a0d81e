"""Stock clients' views of compaction: Pulsar's compacted readers and table views, Kafka's compacted
topics, and the other protocols' views of the remaining records.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.folder_reader import list_partitions, open_folder
from conformance.server import RunningBroker
from tests.waiting import HANG_S

pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
kafka_admin = pytest.importorskip("kafka.admin", reason="kafka-python is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

EARLIEST = pulsar.MessageId.earliest
TIMEOUT_MS = 60_000
Row = tuple[int, bytes | None, bytes | None]  # offset, key, value


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings=["log.compaction_check_ms=50"]) as running:
        yield running


@pytest.fixture
def http(broker: RunningBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{broker.addresses['http']}", timeout=60) as client:
        yield client


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Any]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    connected = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}", logger=quiet)
    yield connected
    connected.close()


def until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_S
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def compact(http: httpx.Client, topic: str) -> None:
    """Compact as `pulsar-admin topics compact` and `compaction-status -w` do."""
    path = f"/admin/v2/persistent/public/default/{topic}/compaction"
    assert http.put(path).status_code == 204
    until(lambda: http.get(path).json()["status"] != "RUNNING")
    assert http.get(path).json() == {"status": "SUCCESS", "lastError": ""}


def read_all(client: Any, topic: str, *, compacted: bool) -> list[Any]:
    reader = client.create_reader(topic, EARLIEST, is_read_compacted=compacted)
    messages = []
    while reader.has_message_available():
        messages.append(reader.read_next(TIMEOUT_MS))
    reader.close()
    return messages


def fields_of(messages: list[Any]) -> list[tuple[str, bytes, tuple[int, int]]]:
    return [
        (
            message.partition_key(),
            message.data(),
            (message.message_id().entry_id(), message.message_id().batch_index()),
        )
        for message in messages
    ]


def send(client: Any, topic: str, messages: list[tuple[str, bytes]], *, batched: bool) -> None:
    settings = {"batching_enabled": batched, "batching_max_publish_delay_ms": 10_000}
    producer = client.create_producer(topic, batching_max_messages=5, **settings)
    for key, value in messages:
        producer.send_async(value, lambda *_: None, partition_key=key)
    producer.flush()
    producer.close()


@pytest.mark.parametrize("batched", [False, True])
def test_pulsar_compacted_readers_and_table_views(
    client: Any, http: httpx.Client, batched: bool
) -> None:
    topic = f"compacted-{batched}"
    messages = [(f"k{n % 7}", b"v%d" % n) for n in range(23)] + [("k3", b""), ("k4", b"last")]
    send(client, topic, messages, batched=batched)
    everything = fields_of(read_all(client, topic, compacted=False))
    assert [message[:2] for message in everything] == messages
    assert fields_of(read_all(client, topic, compacted=True)) == everything  # Not compacted yet.
    compact(http, topic)
    latest = dict(messages)
    wanted = [
        message
        for place, message in enumerate(everything)
        if message[1] and message[0] not in {later[0] for later in everything[place + 1 :]}
    ]
    assert fields_of(read_all(client, topic, compacted=True)) == wanted
    assert fields_of(read_all(client, topic, compacted=False)) == everything
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in latest if view.get(key)} == {
        key: value for key, value in latest.items() if value
    }
    send(client, topic, [("k0", b"after"), ("new", b"1")], batched=batched)
    until(lambda: view.get("k0") == b"after" and view.get("new") == b"1")
    view.close()
    assert [message[:2] for message in fields_of(read_all(client, topic, compacted=True))[-2:]] == [
        ("k0", b"after"),
        ("new", b"1"),
    ]
    compact(http, topic)
    assert [message[1] for message in fields_of(read_all(client, topic, compacted=True))].count(
        b"after"
    ) == 1
    subscription = {"is_read_compacted": True, "initial_position": pulsar.InitialPosition.Earliest}
    consumer = client.subscribe(topic, "s", **subscription)
    for _ in wanted:
        consumer.acknowledge(consumer.receive(TIMEOUT_MS))
    consumer.close()
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(
            topic, "shared", consumer_type=pulsar.ConsumerType.Shared, is_read_compacted=True
        )


def test_a_view_is_created_above_the_threshold(client: Any, http: httpx.Client) -> None:
    base = "/admin/v2/persistent/public/default/by-threshold"
    send(client, "by-threshold", [("k", b"%d" % n) for n in range(10)], batched=False)
    assert http.post(f"{base}/compactionThreshold", json=500).status_code == 204
    assert http.get(f"{base}/compactionThreshold").json() == 500
    until(lambda: len(read_all(client, "by-threshold", compacted=True)) == 1)
    space = "/admin/v2/namespaces/public/default/compactionThreshold"
    assert http.put(space, json=1 << 30).status_code == 204
    assert http.get(space).json() == 1 << 30
    assert http.delete(space).status_code == 204
    metrics = http.get("/metrics").text
    assert 'braidlog_compactions_total{kind="view",result="done"}' in metrics


def kafka_topic(address: str, name: str) -> Any:
    admin = kafka_admin.KafkaAdminClient(bootstrap_servers=address)
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": "65536",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "3600000",
    }
    admin.create_topics([kafka_admin.NewTopic(name, 1, 1, topic_configs=configs)])
    return admin


def consume(address: str, name: str, end: int, start: int = 0) -> list[Row]:
    place = kafka.TopicPartition(name, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    consumer.assign([place])
    consumer.seek(place, start)
    rows: list[Row] = []
    while consumer.position(place) < end:
        for batch in consumer.poll(1000).values():
            rows += [(message.offset, message.key, message.value) for message in batch]
    consumer.close()
    return rows


def in_files(broker: RunningBroker, name: str) -> list[Row]:
    """Return the records as `braidlog export` and Spark read them, without the broker."""
    (folder,) = [
        partition
        for partition in list_partitions(broker.data_dir)
        if partition.topic == f"public/default/{name}"
    ]
    with open_folder(folder.folder) as stored:
        return [
            (record.offset, record.key, record.value)
            for batch in stored.batches(0)
            if not batch.header.flags & BatchFlag.GAP
            for record in codec_for(batch.header.body_format)
            .decode(batch.body, batch.base_offset, 0)
            .records
        ]


def test_every_protocol_reads_the_rest_of_a_compacted_kafka_topic(
    broker: RunningBroker, client: Any, http: httpx.Client
) -> None:
    address, name = broker.addresses["kafka"], "kafka-compacted"
    admin = kafka_topic(address, name)
    producer = kafka.KafkaProducer(bootstrap_servers=address, compression_type="gzip")
    count = 4000
    chosen = random.Random(1)
    values = [None if n in (3990, 3991) else chosen.randbytes(200) for n in range(count)]
    keys = [b"rare-%d" % n if n % 97 == 0 else b"key-%d" % (n % 50) for n in range(count)]
    for n, (key, value) in enumerate(zip(keys, values, strict=True)):
        producer.send(name, value, key=key)
        if n % 100 == 99:
            producer.flush()
    with pytest.raises(kafka.errors.KafkaError):
        producer.send(name, b"no key").get(60)
    producer.close()
    send(client, name, [("key-1", b"from pulsar"), ("p", b"x")], batched=True)
    partition = f"/api/v1/topics/public/default/{name}"

    def is_small() -> bool:
        segments = http.get(partition).json()["partitions"][0]["segments"]
        return bool(sum(segment["size_bytes"] for segment in segments) < 200_000)

    until(is_small)
    end = http.get(partition).json()["partitions"][0]["high_watermark"]
    assert end == count + 2
    written = [(n, key, value) for n, (key, value) in enumerate(zip(keys, values, strict=True))]
    written += [(count, b"key-1", b"from pulsar"), (count + 1, b"p", b"x")]
    latest = {key: (n, value) for n, key, value in written}

    def check(rows: list[Row], start: int = 0) -> None:
        """Check the records: the latest of each key must exist, older records may exist during a
        compaction.
        """
        assert all(written[row[0]] == row for row in rows)
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        last = {key: (n, value) for n, key, value in rows}
        assert last == {key: row for key, row in latest.items() if row[0] >= start}

    rows = consume(address, name, end)
    check(rows)
    assert len(rows) < count // 2
    gap = next(b[0] - 1 for a, b in itertools.pairwise(rows) if b[0] > a[0] + 1)
    check(consume(address, name, end, gap), gap)
    by_pulsar = [
        (message.message_id().entry_id() + max(message.message_id().batch_index(), 0), message)
        for message in read_all(client, name, compacted=False)
    ]
    check(
        [
            (n, message.partition_key().encode(), None if written[n][2] is None else message.data())
            for n, message in by_pulsar
        ]
    )
    check(in_files(broker, name))
    resource = kafka_admin.ConfigResource(kafka_admin.ConfigResourceType.TOPIC, name)
    text = str(admin.describe_configs([resource]))
    assert "min.cleanable.dirty.ratio" in text and "0.01" in text and "compact" in text
    admin.close()
    broker.stop()
    broker.start()
    check(consume(address, name, end))
