"""Compaction set by a Kafka client's admin calls (librdkafka's), with records of several protocols.

A Kafka consumer, Pulsar's compacted readers and table views, and an Iggy reader see the remaining
records, also after a SIGKILL during a compaction.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest

from conformance.clients.raw.iggy import IggyWire
from conformance.server import RunningBroker
from tests.waiting import HANG_S, until_seen

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin_of = pytest.importorskip("confluent_kafka.admin", reason="confluent-kafka is not installed")
pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

KEYS, RECORDS, VALUE_BYTES = 40, 1500, 200
SEGMENT_BYTES = 65536
COMPACTS = {
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3600000",
}
SMALL_BYTES = 3 * SEGMENT_BYTES  # Of about 300,000 bytes written between two kills.
KILLS = 3
QUIET = {"logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)}

Values = dict[int, tuple[bytes, bytes | None]]  # By offset: key and value.


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings=["log.compaction_check_ms=50"]) as running:
        yield running


class Setter:
    """Kafka's admin client, which sets the cleanup policies of topics."""

    def __init__(self, address: str) -> None:
        self._admin = admin_of.AdminClient({"bootstrap.servers": address})

    def create(self, topic: str, config: dict[str, str]) -> None:
        created = self._admin.create_topics([admin_of.NewTopic(topic, 1, 1, config=config)])
        created[topic].result(HANG_S)

    def change(self, topic: str, operation: Any, changes: dict[str, str]) -> None:
        """Change settings individually: other settings stay."""
        entries = [
            admin_of.ConfigEntry(name, value, incremental_operation=operation)
            for name, value in changes.items()
        ]
        self._done(self._admin.incremental_alter_configs([self._topic(topic, entries)]))

    def replace(self, topic: str, config: dict[str, str]) -> None:
        """Replace all settings."""
        about = admin_of.ConfigResource(admin_of.ResourceType.TOPIC, topic, set_config=config)
        self._done(self._admin.alter_configs([about]))

    def policy(self, topic: str) -> set[str]:
        """Return the topic's cleanup policy."""
        (config,) = self._admin.describe_configs([self._topic(topic, None)]).values()
        return set(config.result(HANG_S)["cleanup.policy"].value.split(","))

    def _topic(self, topic: str, entries: Any) -> Any:
        kind = admin_of.ResourceType.TOPIC
        return admin_of.ConfigResource(kind, topic, incremental_configs=entries)

    def _done(self, futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(HANG_S)


def some_values(rng: random.Random, count: int) -> list[tuple[bytes, bytes | None]]:
    """Return records of a few keys; some are tombstones."""
    return [
        (
            b"key-%d" % rng.randrange(KEYS),
            None if rng.random() < 0.05 else rng.randbytes(VALUE_BYTES // 2).hex().encode(),
        )
        for _ in range(count)
    ]


def produce(
    address: str, topic: str, values: Iterable[tuple[bytes | None, bytes | None]]
) -> Values:
    """Produce; return the acknowledged records, by offset."""
    acked: Values = {}
    producer = confluent.Producer({"bootstrap.servers": address, "compression.type": "lz4"})

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        acked[message.offset()] = (message.key(), message.value())

    for number, (key, value) in enumerate(values):
        producer.produce(topic, value, key, on_delivery=delivered)
        if number % 50 == 49:
            assert producer.flush(HANG_S) == 0
    assert producer.flush(HANG_S) == 0
    return acked


def by_kafka(address: str, topic: str, end: int) -> Values:
    """Return a consumer's records from the first offset to the end."""
    group = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = confluent.Consumer({"bootstrap.servers": address, **group})
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    values: Values = {}
    while (message := consumer.poll(HANG_S)) is not None:
        if message.error() is None:
            assert message.offset() not in values
            values[message.offset()] = (message.key(), message.value())
        elif message.error().code() == confluent.KafkaError._PARTITION_EOF:
            assert message.offset() == end
            break
    consumer.close()
    return values


def latest(values: Values) -> dict[bytes, tuple[int, bytes | None]]:
    """Return the last offset and value of each key."""
    return {values[at][0]: (at, values[at][1]) for at in sorted(values)}


def check(values: Values, written: Values) -> None:
    """Check the records: the last of each key must exist, others may exist during a compaction."""
    assert {at: written[at] for at in values} == values
    assert latest(values) == latest(written)


def partition_of(http: httpx.Client, topic: str) -> dict[str, Any]:
    description: dict[str, Any] = http.get(f"/api/v1/topics/public/default/{topic}").json()
    (partition,) = description["partitions"]
    return dict(partition)


def bytes_of(http: httpx.Client, topic: str) -> int:
    return sum(segment["size_bytes"] for segment in partition_of(http, topic)["segments"])


def by_pulsar(client: Any, topic: str) -> dict[str, bytes]:
    """Return the latest value of each key with a value, from a compacted reader."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    values: dict[str, bytes] = {}
    while reader.has_message_available():
        message = reader.read_next(int(HANG_S * 1000))
        values[message.partition_key()] = message.data()
    reader.close()
    return {key: value for key, value in values.items() if value}


def by_iggy(broker: RunningBroker, topic: str, end: int) -> Values:
    """Return an Iggy client's records; Iggy has no keys of other protocols and no absent values."""
    values: Values = {}
    with IggyWire(broker.address("iggy")) as wire:
        while max(values, default=-1) < end - 1:
            polled = wire.poll(topic, 1000, 1, max(values, default=-1) + 1)
            if not polled:
                break
            for message in polled:
                ((_, _, key),) = [
                    header for header in message.headers if header[0] == b"braidlog.key"
                ]
                values[message.offset] = (key, message.payload)
    return values


def test_kafka_admin_calls_compact_the_records_of_all_protocols(
    broker: RunningBroker,
) -> None:
    address, topic = broker.addresses["kafka"], "compacted-by-kafka"
    setter = Setter(address)
    setter.create(topic, {"segment.bytes": str(SEGMENT_BYTES)})
    assert setter.policy(topic) == {"delete"}
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    written = produce(address, topic, some_values(random.Random(seed), RECORDS))
    with httpx.Client(base_url=broker.url, timeout=HANG_S) as http:
        size = bytes_of(http, topic)
        assert size > 2 * SEGMENT_BYTES
        setter.change(
            topic, admin_of.AlterConfigOpType.SET, {**COMPACTS, "cleanup.policy": "compact"}
        )
        assert setter.policy(topic) == {"compact"}
        with pytest.raises(AssertionError):
            produce(address, topic, [(None, b"a record without a key")])
        client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}", **QUIET)
        producer = client.create_producer(topic)
        producer.send(b"by pulsar", partition_key="key-1")
        producer.close()
        sent = {"messages": [{"key": "key-2", "value": "by http"}, {"key": "new", "value": "x"}]}
        http.post(f"/topics/public/default/{topic}", json=sent).raise_for_status()
        written |= {
            RECORDS: (b"key-1", b"by pulsar"),
            RECORDS + 1: (b"key-2", b"by http"),
            RECORDS + 2: (b"new", b"x"),
        }
        written |= produce(address, topic, [(b"key-3", None), (b"key-4", b"by kafka")])
        end = RECORDS + 5
        assert sorted(written) == list(range(end))
        until_seen(lambda: bytes_of(http, topic) < size // 2)
        assert partition_of(http, topic)["high_watermark"] == end
        read_values = by_kafka(address, topic, end)
        check(read_values, written)
        assert len(read_values) < 2 * RECORDS // 3
        values = {key.decode(): value for key, (_, value) in latest(written).items() if value}
        assert by_pulsar(client, topic) == values
        view = client.create_table_view(topic)
        assert {key: view.get(key) for key in values} == values and len(view) == len(values)
        view.close()
        client.close()
        check_iggy(by_iggy(broker, topic, end), written)
        setter.change(topic, admin_of.AlterConfigOpType.APPEND, {"cleanup.policy": "delete"})
        assert setter.policy(topic) == {"compact", "delete"}
        setter.change(topic, admin_of.AlterConfigOpType.SUBTRACT, {"cleanup.policy": "compact"})
        assert setter.policy(topic) == {"delete"}
        setter.replace(topic, {**COMPACTS, "cleanup.policy": "compact"})
        assert setter.policy(topic) == {"compact"}


def check_iggy(values: Values, written: Values) -> None:
    """Check an Iggy client's records: tombstones are left out."""
    assert {at: written[at] for at in values} == values
    shown = {at: pair for at, pair in written.items() if at in values}
    wanted = {key: pair for key, pair in latest(written).items() if pair[1] is not None}
    newest = latest(shown)
    assert {key: newest[key] for key in wanted} == wanted


def test_a_broker_killed_during_compaction_keeps_the_latest_of_each_key(
    broker: RunningBroker,
) -> None:
    topic = "killed-while-compacting"
    Setter(broker.addresses["kafka"]).create(topic, {**COMPACTS, "cleanup.policy": "compact"})
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    written: Values = {}
    for _ in range(KILLS):
        written |= produce(broker.addresses["kafka"], topic, some_values(rng, RECORDS))
        with httpx.Client(base_url=broker.url, timeout=HANG_S) as http:
            for _ in range(rng.randrange(8)):  # The kill comes at a random answer.
                bytes_of(http, topic)
        broker.kill()
        broker.start()
        end = max(written) + 1
        check(by_kafka(broker.addresses["kafka"], topic, end), written)
    with httpx.Client(base_url=broker.url, timeout=HANG_S) as http:
        until_seen(lambda: bytes_of(http, topic) < SMALL_BYTES)
    check(by_kafka(broker.addresses["kafka"], topic, end), written)
    check_iggy(by_iggy(broker, topic, end), written)
    broker.stop()
    broker.verify()
