"""The programs of docs/tasks move topics and groups from one broker to another."""

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent

import pulsar
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from conformance.server import RunningBroker
from tests.waiting import until_seen

PAGES = Path(__file__).resolve().parent.parent / "docs" / "tasks"
PROGRAM = re.compile(r'^   ```python\n(   """.*?: (\w+\.py) .*?)^   ```$', re.MULTILINE | re.DOTALL)
RUN_TIMEOUT_S, RECEIVE_MS = 120, 60_000
KAFKA_08 = (0, 8, 2)
TOPIC, GROUP = "orders", "billing"
FIRST, LAST, LATER = (
    3,
    10,
    14,
)  # Kept offsets of partition 1 at first; offsets written during a copy.

pytestmark = [pytest.mark.slow, pytest.mark.clients]


@pytest.fixture
def brokers():
    with ExitStack() as held:
        yield [held.enter_context(RunningBroker()) for _ in range(2)]


def write_programs(folder, page, addresses):
    """Write the programs of a page, with the addresses of two brokers; return their names."""
    names = []
    for text, name in PROGRAM.findall((PAGES / page).read_text()):
        text = dedent(text)
        for shown, address in addresses.items():
            text = text.replace(shown, address)
        (folder / name).write_text(text)
        names.append(name)
    return names


def produce(address, first, last):
    with KafkaProducer(bootstrap_servers=address, api_version=KAFKA_08) as producer:
        for number in range(first, last):
            producer.send(TOPIC, b"v%d" % number, b"k%d" % number, partition=1)


def read(address, partition=1):
    """Return (offset, key, value) of each record of a partition."""
    place = TopicPartition(TOPIC, partition)
    with KafkaConsumer(bootstrap_servers=address) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning()
        end, records = consumer.end_offsets([place])[place], []
        while consumer.position(place) < end:
            records += consumer.poll(1000).get(place, [])
    return [(record.offset, record.key, record.value) for record in records]


def committed(address):
    with KafkaConsumer(bootstrap_servers=address, group_id=GROUP) as consumer:
        return [consumer.committed(TopicPartition(TOPIC, number)) for number in range(3)]


def run(folder, *words):
    """Run a program to its end."""
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=RUN_TIMEOUT_S
    )


def test_the_programs_copy_a_topic_and_carry_a_position_over(brokers, tmp_path):
    old, new = (broker.addresses["kafka"] for broker in brokers)
    addresses = {"old-kafka:9092": old, "127.0.0.1:9092": new}
    names = write_programs(tmp_path, "from-kafka.md", addresses)
    assert names == ["copy_topics.py", "move_group.py"]
    for address in (old, new):
        with KafkaAdminClient(bootstrap_servers=address) as admin:
            admin.create_topics({TOPIC: {"num_partitions": 3, "replication_factor": 1}})
    produce(old, 0, LAST)
    with KafkaAdminClient(bootstrap_servers=old) as admin:
        admin.delete_records({TopicPartition(TOPIC, 1): FIRST})
    with KafkaConsumer(bootstrap_servers=old, api_version=(0, 8, 1), group_id=GROUP) as consumer:
        consumer.commit({TopicPartition(TOPIC, 1): OffsetAndMetadata(7, "", -1)})

    copying = [sys.executable, "copy_topics.py", TOPIC]
    copied = tmp_path / "copied.json"
    process = subprocess.Popen(copying, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        until_seen(lambda: copied.exists() and f'"next": {LAST}' in copied.read_text())
        produce(old, LAST, LATER)
        until_seen(lambda: f'"next": {LATER}' in copied.read_text())
    finally:
        process.kill()
        process.wait()
    expected = [
        (number - FIRST, b"k%d" % number, b"v%d" % number) for number in range(FIRST, LATER)
    ]
    assert read(new) == expected
    notes = json.loads(copied.read_text())
    assert notes[f"{TOPIC}/1"] == {"first": FIRST, "next": LATER}

    moved = run(tmp_path, "move_group.py", GROUP, TOPIC)
    assert moved.returncode == 0, moved.stderr
    assert moved.stdout == f"{TOPIC}/1: 7 is {7 - FIRST} at Braidlog\n"
    assert committed(new) == [None, 7 - FIRST, None]
    unknown = run(tmp_path, "move_group.py", "nobody", TOPIC)
    assert unknown.returncode == 1 and "no position of group nobody" in unknown.stderr

    copied.unlink()  # A second copy without its notes would store every record again.
    again = run(tmp_path, "copy_topics.py", TOPIC)
    assert again.returncode == 1 and "expected an empty topic" in again.stderr
    missing = run(tmp_path, "copy_topics.py", "nothing-here")
    assert missing.returncode == 1, missing.stdout


def test_the_programs_copy_a_pulsar_topic_and_carry_a_position_over(brokers, tmp_path):
    old, new = brokers
    addresses = {
        "old-pulsar:6650": old.addresses["pulsar"],
        "old-pulsar:8080": old.addresses["http"],
        "127.0.0.1:8080": new.addresses["http"],
    }
    names = write_programs(tmp_path, "from-pulsar.md", addresses)
    assert names == ["copy_pulsar_topic.py", "move_subscription.py"]
    topic = f"public/default/{TOPIC}"
    for broker in brokers:
        with KafkaAdminClient(bootstrap_servers=broker.addresses["kafka"]) as admin:
            admin.create_topics({TOPIC: {"num_partitions": 2, "replication_factor": 1}})
    client = pulsar.Client(f"pulsar://{old.addresses['pulsar']}")
    consumer = client.subscribe(topic, GROUP, initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(LAST):
        producer.send(b"v%d" % number, {"n": str(number)}, partition_key="k", event_timestamp=7)
    for _ in range(FIRST):
        consumer.acknowledge(consumer.receive(RECEIVE_MS))
    consumer.close()

    copying = [sys.executable, "copy_pulsar_topic.py", topic]
    process = subprocess.Popen(copying, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        until_seen(lambda: copied_lines(tmp_path) == LAST)
        producer.send(b"later", partition_key="k")  # The other partition stays empty.
        until_seen(lambda: copied_lines(tmp_path) == LAST + 1)
    finally:
        process.kill()
        process.wait()
    client.close()
    unknown = run(tmp_path, "move_subscription.py", "nobody", topic)
    assert unknown.returncode == 1 and "has no subscription nobody" in unknown.stderr
    (tmp_path / "elsewhere").mkdir()
    again = run(tmp_path / "elsewhere", "../copy_pulsar_topic.py", topic)
    assert again.returncode == 1 and "expected an empty topic" in again.stderr

    moved = run(tmp_path, "move_subscription.py", GROUP, topic)
    assert moved.returncode == 0, moved.stderr
    client = pulsar.Client(f"pulsar://{new.addresses['pulsar']}")
    consumer = client.subscribe(topic, GROUP)
    messages = [consumer.receive(RECEIVE_MS) for _ in range(LAST + 1 - FIRST)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(100)
    client.close()
    values = [*(b"v%d" % n for n in range(FIRST, LAST)), b"later"]
    assert [message.data() for message in messages] == values
    assert messages[0].properties() == {"n": str(FIRST)} and messages[0].event_timestamp() == 7


def copied_lines(folder):
    return sum(len(file.read_text().splitlines()) for file in folder.glob("copied-*.txt"))
