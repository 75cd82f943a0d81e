"""Stock Kafka clients, configured for a 0.8 broker, against a broker in its own process."""

import json
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.server import RunningBroker

kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

VERSIONS = [(0, 8, 2), (0, 8, 1), (0, 8, 0)]
CODECS = ["none", "gzip", "snappy", "lz4"]
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield host and port of a broker whose new topics have three partitions."""
    running = RunningBroker(
        tmp_path_factory.mktemp("broker"),
        listen={"kafka": "127.0.0.1:0"},
        others=False,
        settings=["topics.num_partitions=3"],
    )
    with running:
        yield running.addresses["kafka"]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"t-{name}"[:200]


def producer(address: str, version: tuple[int, ...] = (0, 8, 2), **settings: Any) -> Any:
    return kafka.KafkaProducer(bootstrap_servers=address, api_version=version, **settings)


def consumer(address: str, version: tuple[int, ...] = (0, 8, 2), **settings: Any) -> Any:
    settings.setdefault("auto_offset_reset", "earliest")
    settings.setdefault("enable_auto_commit", False)
    settings.setdefault("consumer_timeout_ms", int(TIMEOUT_S * 1000))
    return kafka.KafkaConsumer(bootstrap_servers=address, api_version=version, **settings)


def partitions_of(reader: Any, topic: str) -> list[Any]:
    deadline = time.monotonic() + TIMEOUT_S
    while not (indexes := reader.partitions_for_topic(topic)):
        assert time.monotonic() < deadline, f"no partitions of {topic}"
    return [kafka.TopicPartition(topic, index) for index in sorted(indexes)]


def read(reader: Any, count: int) -> list[Any]:
    records = []
    for record in reader:
        records.append(record)
        if len(records) == count:
            return records
    raise AssertionError(f"{len(records)} of {count} records came")


# kafka-python.


@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_its_own_records(
    address: str, topic: str, version: tuple[int, ...], codec: str
) -> None:
    if codec == "lz4" and version < (0, 8, 2):
        pytest.skip("lz4 came with 0.8.2")
    sent: dict[int, list[tuple[Any, Any]]] = {0: [], 1: [], 2: []}
    writer = producer(
        address, version, compression_type=None if codec == "none" else codec, linger_ms=5
    )
    futures = []
    for at in range(300):
        key = None if at % 3 else b"k%d" % at
        is_null = key and at % 2 and version > (0, 8, 0)  # The library sends none to 0.8.0.
        value = None if is_null else b"v%d" % at * (at % 7)
        futures.append(writer.send(topic, value, key, partition=at % 3))
        sent[at % 3].append((key, value))
    places = [future.get(TIMEOUT_S) for future in futures]
    writer.close()
    assert [place.offset for place in places if place.partition == 1] == list(range(100))
    reader = consumer(address, version)
    reader.assign(partitions_of(reader, topic))
    got: dict[int, list[tuple[Any, Any]]] = {0: [], 1: [], 2: []}
    for record in read(reader, 300):
        assert record.offset == len(got[record.partition])
        got[record.partition].append((record.key, record.value))
    reader.close()
    assert got == sent


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_kafka_python_acks(address: str, topic: str, acks: Any) -> None:
    writer = producer(address, acks=acks)
    places = [writer.send(topic, b"%d" % at, partition=0) for at in range(50)]
    writer.flush(TIMEOUT_S)
    offsets = [place.get(TIMEOUT_S).offset for place in places]
    if acks != 0:  # Otherwise the library invents the offsets.
        assert offsets == list(range(50))
    reader = consumer(address)
    reader.assign([kafka.TopicPartition(topic, 0)])
    assert [record.value for record in read(reader, 50)] == [b"%d" % at for at in range(50)]
    writer.close()
    reader.close()


def test_kafka_python_megabyte_messages(address: str, topic: str) -> None:
    rng = random.Random(1)
    values = [rng.randbytes(size) for size in (999_000, 1, 999_986, 500_000)]
    writer = producer(address, max_request_size=1 << 21, acks=1)
    for value in values:
        writer.send(topic, value, partition=0).get(TIMEOUT_S)
    too_large = writer.send(topic, bytes(999_987), partition=0)
    with pytest.raises(kafka.errors.MessageSizeTooLargeError):
        too_large.get(TIMEOUT_S)
    writer.close()
    reader = consumer(address)
    reader.assign([kafka.TopicPartition(topic, 0)])
    assert [record.value for record in read(reader, 4)] == values
    reader.close()


def test_kafka_python_seeks_to_any_offset_in_compressed_sets(address: str, topic: str) -> None:
    writer = producer(address, compression_type="gzip", linger_ms=50)
    futures = [writer.send(topic, b"%d" % at, partition=0) for at in range(500)]
    for future in futures:
        future.get(TIMEOUT_S)
    writer.close()
    place = kafka.TopicPartition(topic, 0)
    reader = consumer(address)
    reader.assign([place])
    for offset in (0, 1, 77, 250, 498, 499):
        reader.seek(place, offset)
        first = read(reader, 1)[0]
        assert (first.offset, first.value) == (offset, b"%d" % offset)
    assert reader.beginning_offsets([place]) == {place: 0}
    assert reader.end_offsets([place]) == {place: 500}
    reader.close()


@pytest.mark.parametrize("version", VERSIONS[:2], ids=str)
def test_kafka_python_commits_are_kept(address: str, topic: str, version: tuple[int, ...]) -> None:
    writer = producer(address)
    for at in range(20):
        writer.send(topic, b"%d" % at, partition=0)
    writer.flush(TIMEOUT_S)
    writer.close()
    place = kafka.TopicPartition(topic, 0)
    group = f"group-{topic}"
    first = consumer(address, version, group_id=group)
    first.assign([place])
    assert first.committed(place) is None
    records = read(first, 7)
    first.commit({place: kafka.structs.OffsetAndMetadata(records[-1].offset + 1, "half way", -1)})
    assert first.committed(place) == 7
    first.close()
    second = consumer(address, version, group_id=group)
    second.assign([place])
    assert [record.value for record in read(second, 13)] == [b"%d" % at for at in range(7, 20)]
    second.close()


def test_kafka_python_versions_share_a_groups_position(address: str, topic: str) -> None:
    writer = producer(address)
    for at in range(10):
        writer.send(topic, b"%d" % at, partition=0)
    writer.flush(TIMEOUT_S)
    writer.close()
    place = kafka.TopicPartition(topic, 0)
    by_1 = consumer(address, (0, 8, 2), group_id="shared-versions")
    by_1.assign([place])
    by_1.commit({place: kafka.structs.OffsetAndMetadata(4, "", -1)})
    by_1.close()
    by_0 = consumer(address, (0, 8, 1), group_id="shared-versions")
    by_0.assign([place])
    assert read(by_0, 1)[0].offset == 4
    by_0.close()


def test_kafka_python_waiting_consumer_gets_a_record_without_its_wait(
    address: str, topic: str
) -> None:
    writer = producer(address)
    writer.send(topic, b"first", partition=0).get(TIMEOUT_S)
    reader = consumer(address, fetch_max_wait_ms=20_000)
    reader.assign([kafka.TopicPartition(topic, 0)])
    assert read(reader, 1)[0].value == b"first"
    for at in range(20):
        writer.send(topic, b"%d" % at, partition=0)
        assert read(reader, 1)[0].value == b"%d" % at  # Each read would hang without the wake-up.
    writer.close()
    reader.close()


def test_kafka_python_many_partitions_and_topics(address: str, topic: str) -> None:
    names = [f"{topic}-{at}" for at in range(12)]
    writer = producer(address, linger_ms=5)
    futures = [
        writer.send(name, f"{name}/{index}".encode(), partition=index)
        for name in names
        for index in range(3)
    ]
    for future in futures:
        future.get(TIMEOUT_S)
    writer.close()
    reader = consumer(address)
    assert set(names) <= reader.topics()
    reader.assign([kafka.TopicPartition(name, index) for name in names for index in range(3)])
    got = {(record.topic, record.partition): record.value for record in read(reader, 36)}
    assert got == {(name, i): f"{name}/{i}".encode() for name in names for i in range(3)}
    reader.close()


def test_kafka_python_offset_out_of_range_starts_over(address: str, topic: str) -> None:
    writer = producer(address)
    writer.send(topic, b"only", partition=0).get(TIMEOUT_S)
    writer.close()
    place = kafka.TopicPartition(topic, 0)
    reader = consumer(address)
    reader.assign([place])
    reader.seek(place, 1000)
    assert read(reader, 1)[0].value == b"only"
    reader.close()


# confluent-kafka (librdkafka).


def rd(address: str, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "api.version.request": False,
        "broker.version.fallback": "0.8.2.1",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def rd_read(reader: Any, count: int) -> list[Any]:
    messages: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        message = reader.poll(0.5)
        if message is None:
            continue
        assert message.error() is None, message.error()
        messages.append(message)
    return messages


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_librdkafka_reads_its_own_records(address: str, topic: str, codec: str, acks: str) -> None:
    failures: list[Any] = []
    writer = confluent_kafka.Producer(rd(address, compression_type=codec, acks=acks, linger_ms=5))
    sent = []
    for at in range(2000):
        key = None if at % 2 else b"k%d" % at
        value = None if key and at % 5 == 0 else b"v%d" % at
        sent.append((key, value))
        writer.produce(
            topic,
            value,
            key,
            partition=1,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert writer.flush(TIMEOUT_S) == 0
    assert not failures
    reader = confluent_kafka.Consumer(rd(address, group_id="x", enable_auto_commit=False))
    reader.assign([confluent_kafka.TopicPartition(topic, 1, confluent_kafka.OFFSET_BEGINNING)])
    got = rd_read(reader, 2000)
    reader.close()
    assert [message.offset() for message in got] == list(range(2000))
    assert [(message.key(), message.value()) for message in got] == sent


def test_librdkafka_commits_are_kept(address: str, topic: str) -> None:
    writer = confluent_kafka.Producer(rd(address))
    for at in range(10):
        writer.produce(topic, b"%d" % at, partition=0)
    assert writer.flush(TIMEOUT_S) == 0
    place = confluent_kafka.TopicPartition(topic, 0, 6, metadata="note")
    reader = confluent_kafka.Consumer(rd(address, group_id=f"rd-{topic}", enable_auto_commit=False))
    reader.commit(offsets=[place], asynchronous=False)
    reader.close()
    again = confluent_kafka.Consumer(
        rd(address, group_id=f"rd-{topic}", auto_offset_reset="earliest", enable_auto_commit=False)
    )
    (position,) = again.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    assert position.offset == 6
    again.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_STORED)])
    assert [message.offset() for message in rd_read(again, 4)] == [6, 7, 8, 9]
    low, high = again.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), TIMEOUT_S)
    assert (low, high) == (0, 10)
    again.close()


# kcat.


@pytest.fixture
def kcat(address: str) -> list[str]:
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        pytest.skip("kcat is not installed")
    version = ["-X", "api.version.request=false", "-X", "broker.version.fallback=0.8.2.1"]
    return [path, "-b", address, *version]


def run(command: list[str], stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_produces_lists_and_reads(kcat: list[str], topic: str, codec: str) -> None:
    lines = [f"key{at}:value{at}" for at in range(100)]
    run([*kcat, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec], "\n".join(lines) + "\n")
    listed = json.loads(run([*kcat, "-L", "-J", "-t", topic]))
    assert [partition["partition"] for partition in listed["topics"][0]["partitions"]] == [0, 1, 2]
    out = run([*kcat, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-K:"])
    assert out.splitlines() == lines
    tail = run([*kcat, "-C", "-t", topic, "-p", "0", "-o", "-3", "-e", "-q", "-f", "%o %s\\n"])
    assert tail.splitlines() == [f"{at} value{at}" for at in (97, 98, 99)]


# Across libraries.


def test_libraries_read_each_others_compressed_sets(address: str, topic: str) -> None:
    for codec in CODECS:
        producer_ = producer(address, compression_type=None if codec == "none" else codec)
        producer_.send(topic, f"kafka-python {codec}".encode(), partition=0).get(TIMEOUT_S)
        producer_.close()
        other = confluent_kafka.Producer(rd(address, compression_type=codec))
        other.produce(topic, f"librdkafka {codec}".encode() * 10, partition=0)
        assert other.flush(TIMEOUT_S) == 0
    expected = [
        text.encode()
        for codec in CODECS
        for text in (f"kafka-python {codec}", f"librdkafka {codec}" * 10)
    ]
    reader = consumer(address)
    reader.assign([kafka.TopicPartition(topic, 0)])
    assert [record.value for record in read(reader, 8)] == expected
    reader.close()
    other = confluent_kafka.Consumer(rd(address, group_id="y", enable_auto_commit=False))
    other.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    assert [message.value() for message in rd_read(other, 8)] == expected
    other.close()
