"""HTTP beside the stock clients of the other protocols, on a broker in its own process."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest

from conformance.server import RunningBroker

kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
pytest.importorskip("iggy_py", reason="iggy-py is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

TOPIC = "orders"
BASE = f"/topics/public/default/{TOPIC}"
EVENT_MS = 1764000000001
BYTES = bytes(range(256))
RECEIVE_MS = 30_000
# iggy-py 0.4.0 may abort when Python ends under its threads, after all work was done.
EXIT_CODES = (0, -signal.SIGABRT)

POLL = """
import asyncio, sys
from iggy_py import IggyClient, PollingStrategy

async def main():
    client = IggyClient(sys.argv[1])
    await client.connect()
    await client.login_user("iggy", "iggy")
    found = await client.poll_messages(
        "default", "orders", 1, PollingStrategy.Next(), int(sys.argv[2]), True
    )
    for message in found:
        print(message.offset(), message.payload().hex(), flush=True)

asyncio.run(main())
"""


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        ask(running, "/api/v1/topics/public/default/orders", {}, method="PUT")
        yield running


def ask(broker: RunningBroker, path: str, body: Any = None, *, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if body is not None else {}
    with urlopen(Request(f"{broker.url}{path}", data, headers, method=method)) as answer:
        return json.loads(answer.read())


def produce(broker: RunningBroker, *messages: dict[str, Any], **fields: Any) -> list[str]:
    answer = ask(broker, BASE, {"messages": messages, **fields})
    return [result["messageId"] for result in answer["messageIds"]]


def poll_iggy(broker: RunningBroker, count: int) -> list[tuple[int, bytes]]:
    command = [sys.executable, "-c", POLL, broker.addresses["iggy"], str(count)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ, timeout=120, check=False
    )
    assert done.returncode in EXIT_CODES, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return [(int(offset), bytes.fromhex(payload)) for offset, payload in lines]


def read_kafka(broker: RunningBroker, count: int, **options: Any) -> list[Any]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.addresses["kafka"],
        api_version=(0, 8, 2),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    )
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    all_records: list[Any] = []
    while len(all_records) < count:
        for records in consumer.poll(RECEIVE_MS, max_records=count - len(all_records)).values():
            all_records += records
    if "group_id" in options:
        consumer.commit()
    consumer.close()
    return all_records


def test_other_clients_read_messages_of_http(broker: RunningBroker) -> None:
    text = base64.b64encode(BYTES).decode()
    properties = {"a": "1", "b": "", "ü": "é"}
    ids = produce(
        broker,
        {"key": "k", "value": "v", "properties": properties, "eventTime": EVENT_MS},
        {"key": text, "key_encoding": "base64", "value": text, "encoding": "base64"},
        {"key": "gone"},
    )
    records = read_kafka(broker, 3)
    assert [(record.key, record.value) for record in records] == [
        (b"k", b"v"),
        (BYTES, BYTES),
        (b"gone", None),
    ]
    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}")
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    first, second, third = (reader.read_next(RECEIVE_MS) for _ in range(3))
    assert (first.partition_key(), first.data(), first.properties()) == ("k", b"v", properties)
    assert first.event_timestamp() == EVENT_MS
    assert second.data() == BYTES
    assert third.partition_key() == "gone"
    # An id of HTTP is a client's id: the same entry, and a seek goes there.
    wanted = pulsar.MessageId.deserialize(base64.b64decode(ids[1]))
    found_id = second.message_id()
    assert (wanted.ledger_id(), wanted.entry_id()) == (found_id.ledger_id(), found_id.entry_id())
    consumer = client.subscribe(TOPIC, "seeking")
    consumer.seek(wanted)  # The library itself leaves out the message at the sought id.
    assert consumer.receive(RECEIVE_MS).partition_key() == "gone"
    serialized = base64.b64encode(first.message_id().serialize()).decode()
    query = f"message_id={serialized}&max_messages=1".replace("+", "%2B")
    (after,) = ask(broker, f"{BASE}/partitions/0/messages?{query}")["messages"]
    assert after["messageId"] == ids[1]
    client.close()
    assert poll_iggy(broker, 10) == [(0, b"v"), (1, BYTES)]  # Iggy cannot carry a null.


def test_a_delay_of_http_applies_only_to_shared_pulsar_consumers(broker: RunningBroker) -> None:
    produce(broker, {"value": "later", "deliverAfterMs": 1500}, {"value": "now"})
    assert [record.value for record in read_kafka(broker, 2)] == [b"later", b"now"]
    (shown, _) = ask(broker, f"{BASE}/partitions/0/messages")["messages"]
    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}")
    consumer = client.subscribe(
        TOPIC,
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    values = [consumer.receive(RECEIVE_MS).data() for _ in range(2)]
    arrived_ms = time.time() * 1000
    client.close()
    assert values == [b"now", b"later"]
    assert arrived_ms >= shown["deliverAt"] > shown["publishTime"]


def test_http_reads_messages_of_other_clients(broker: RunningBroker) -> None:
    writer = kafka.KafkaProducer(bootstrap_servers=broker.addresses["kafka"], api_version=(0, 8, 2))
    writer.send(TOPIC, b"v", key=b"k")
    writer.send(TOPIC, BYTES, key=BYTES)
    writer.send(TOPIC, None, key=b"gone")
    writer.flush()
    writer.close()
    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}")
    producer = client.create_producer(TOPIC, producer_name="shop")
    producer.send(
        BYTES, partition_key="p", properties={"a": "ä"}, event_timestamp=EVENT_MS, sequence_id=7
    )
    client.close()
    messages = ask(broker, f"{BASE}/partitions/0/messages")["messages"]
    text = base64.b64encode(BYTES).decode()
    assert (messages[0]["key"], messages[0]["value"], messages[0]["encoding"]) == ("k", "v", "utf8")
    assert (messages[1]["key"], messages[1]["key_encoding"]) == (text, "base64")
    assert (messages[1]["value"], messages[1]["encoding"]) == (text, "base64")
    assert (messages[2]["key"], messages[2]["value"]) == ("gone", None)
    assert (messages[3]["key"], messages[3]["value"]) == ("p", text)
    assert messages[3]["properties"] == {"a": "ä"}
    assert (messages[3]["eventTime"], messages[3]["sequenceId"]) == (EVENT_MS, 7)
    assert messages[3]["producerName"] == "shop"


def test_four_protocols_take_turns_on_one_subscription(broker: RunningBroker) -> None:
    produce(broker, *({"value": f"{number}"} for number in range(8)))
    kafka_read = read_kafka(broker, 2, group_id="1")
    assert [record.value for record in kafka_read] == [b"0", b"1"]

    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}")
    consumer = client.subscribe(TOPIC, "1", consumer_type=pulsar.ConsumerType.Exclusive)
    for expected in (b"2", b"3"):
        message = consumer.receive(RECEIVE_MS)
        assert message.data() == expected
        consumer.acknowledge(message)
    consumer.close()
    client.close()

    subscription = f"{BASE}/subscription/1"
    ask(broker, subscription, {"id": "w1"})
    path = f"{subscription}/consumer/w1/messages?timeout=30000&max_messages=2"
    messages = ask(broker, path)["messages"]
    assert [message["value"] for message in messages] == ["4", "5"]
    ids = [message["messageId"] for message in messages]
    cursor = ask(broker, f"{subscription}/cursor", {"type": "Individual", "messageIds": ids})
    assert cursor["cursor"]["backlog"] == 2
    with urlopen(Request(f"{broker.url}{subscription}/consumers/w1", method="DELETE")) as answer:
        assert answer.status == 204

    assert poll_iggy(broker, 10) == [(6, b"6"), (7, b"7")]
    assert ask(broker, f"{subscription}/cursor")["cursor"]["backlog"] == 0


def test_messages_arrive_as_events_until_the_client_disconnects(broker: RunningBroker) -> None:
    produce(broker, {"value": "0"})
    request = Request(
        f"{broker.url}{BASE}/partitions/0/messages", headers={"Accept": "text/event-stream"}
    )
    with urlopen(request, timeout=60) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        lines = iter(stream.readline, b"")
        assert json.loads(_data(lines))["value"] == "0"
        produce(broker, {"value": "1"})
        assert json.loads(_data(lines))["value"] == "1"


def _data(lines: Iterator[bytes]) -> bytes:
    return next(line for line in lines if line.startswith(b"data: ")).removeprefix(b"data: ")


def test_a_pulsar_client_with_an_http_address_finds_everything(broker: RunningBroker) -> None:
    ask_admin(broker, "PUT", "/persistent/public/default/parts/partitions", 2)
    client = pulsar.Client(broker.url)
    assert len(client.get_topic_partitions("parts")) == 2
    producer = client.create_producer("parts", schema=pulsar.schema.StringSchema())
    consumer = client.subscribe(
        "parts",
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
        schema=pulsar.schema.StringSchema(),
    )
    for number in range(4):
        producer.send(f"{number}")
    values = sorted(consumer.receive(RECEIVE_MS).value() for _ in range(4))
    assert values == ["0", "1", "2", "3"]
    client.close()
    shown = ask(broker, "/admin/v2/schemas/public/default/parts/schema")
    assert (shown["type"], shown["version"]) == ("STRING", 0)


def ask_admin(broker: RunningBroker, method: str, path: str, body: Any = None) -> None:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{broker.url}/admin/v2{path}", data, headers, method=method)) as answer:
        assert answer.status == 204
