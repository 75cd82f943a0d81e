"""Messages between the command line and stock clients, in both directions."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from conformance.server import RunningBroker

pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

KEY, VALUE = b"key-\xff", b"value-\x00\xfe"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


def braidlog(broker: RunningBroker, *words: str, stdin: bytes | None = None) -> bytes:
    """Run a command and return its output."""
    command = [sys.executable, "-m", "braidlog.broker.cli.main", *words, "--url", broker.url]
    done = subprocess.run(command, input=stdin, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_message_of_kafka_is_consumed_and_imported_for_kafka(broker: RunningBroker) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.addresses["kafka"])
    headers = [("h", b"1"), ("h", b"\xff")]
    at_ms = 1_700_000_000_123
    producer.send("from-kafka", VALUE, KEY, headers, timestamp_ms=at_ms).get(30)
    producer.close()
    lines = braidlog(broker, "consume", "from-kafka", "--output", "ndjson")
    assert json.loads(lines)["publish_us"] == at_ms * 1000
    braidlog(broker, "topics", "create", "for-kafka")
    braidlog(broker, "import", "-", "for-kafka", stdin=lines)
    consumer = kafka.KafkaConsumer(
        "for-kafka", bootstrap_servers=broker.addresses["kafka"], auto_offset_reset="earliest"
    )
    message = next(consumer)
    consumer.close()
    assert (message.key, message.value, message.timestamp) == (KEY, VALUE, at_ms)
    assert message.headers == headers


def test_a_message_of_pulsar_is_consumed_and_imported_for_pulsar(broker: RunningBroker) -> None:
    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}")
    producer = client.create_producer("from-pulsar")
    producer.send(VALUE, properties={"a": "ü"}, partition_key="k", event_timestamp=5)
    lines = braidlog(broker, "consume", "from-pulsar", "--subscription", "s", "--output", "ndjson")
    publish_ms = json.loads(lines)["publish_us"] // 1000
    assert braidlog(broker, "consume", "from-pulsar", "--format", "%v") == VALUE
    braidlog(broker, "topics", "create", "for-pulsar")
    braidlog(broker, "import", "-", "for-pulsar", stdin=lines)
    consumer = client.subscribe("for-pulsar", "s", initial_position=pulsar.InitialPosition.Earliest)
    message = consumer.receive(20_000)
    assert (message.data(), message.properties()) == (VALUE, {"a": "ü"})
    assert (message.partition_key(), message.event_timestamp()) == ("k", 5)
    assert message.publish_timestamp() == publish_ms
    client.close()


def test_a_produced_message_is_read_by_both(broker: RunningBroker) -> None:
    braidlog(broker, "topics", "create", "produced")
    braidlog(broker, "produce", "produced", "-k", "k", "-P", "a=b", stdin=VALUE + b"\n")
    consumer = kafka.KafkaConsumer(
        "produced", bootstrap_servers=broker.addresses["kafka"], auto_offset_reset="earliest"
    )
    message = next(consumer)
    consumer.close()
    assert (message.key, message.value, message.headers) == (b"k", VALUE, [("a", b"b")])
    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}")
    reader = client.create_reader("produced", pulsar.MessageId.earliest)
    received = reader.read_next(20_000)
    assert (received.data(), received.partition_key(), received.properties()) == (
        VALUE,
        "k",
        {"a": "b"},
    )
    client.close()
