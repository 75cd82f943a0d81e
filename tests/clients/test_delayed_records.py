"""Delivery times with stock clients: who wrote a record, and who reads it, makes no difference."""

import base64
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from conformance.server import RunningBroker
from tests.waiting import HANG_S

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

TOPIC, HEADER = "late", "braidlog.deliver_at"
DELAY_MS, HOUR_MS = 2000, 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        command = [sys.executable, "-m", "braidlog.broker.cli.main", "topics", "create", TOPIC]
        command += ["--set", "deliver_at_header=true", "--url", running.url]
        subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)
        yield running


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def produce(broker: RunningBroker) -> dict[str, int]:
    """Produce records by every client; return the times before which no consumer of a queue may
    get them.
    """
    now = now_ms()
    due = now + DELAY_MS
    producer = confluent.Producer({"bootstrap.servers": broker.addresses["kafka"], "linger.ms": 50})
    for value, time_ms in [("k0", 0), ("k1", due), ("k2", now + HOUR_MS), ("k3", due + 300)]:
        headers = {HEADER: str(time_ms)} if time_ms else None
        producer.produce(TOPIC, value.encode(), headers=headers)
    producer.produce(TOPIC, b"k4", headers={HEADER: "soon"})
    assert producer.flush(HANG_S) == 0
    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}", logger=quiet())
    for name, batching in (("p", False), ("b", True)):
        sender = client.create_producer(
            TOPIC, batching_enabled=batching, batching_max_publish_delay_ms=50
        )
        sender.send_async(b"%b0" % name.encode(), None)
        sender.send_async(b"%b1" % name.encode(), None, properties={HEADER: str(due)})
        sender.flush()
        sender.send(b"%b2" % name.encode(), deliver_at=due)
        sender.close()
    client.close()
    messages = [
        {"value": "h0"},
        {"value": "h1", "properties": {HEADER: str(due)}},
        {"value": "h2", "deliverAt": due},
    ]
    answer = httpx.post(f"{broker.url}/topics/public/default/{TOPIC}", json={"messages": messages})
    answer.raise_for_status()
    times = dict.fromkeys(("k0", "k4", "p0", "b0", "h0"), now)
    times |= {"k1": due, "k3": due + 300}
    return times | dict.fromkeys(("p1", "p2", "b1", "b2", "h1", "h2"), due)


def quiet() -> object:
    return pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def members(broker: RunningBroker, group: str) -> Iterator[tuple[str, int]]:
    address = {"bootstrap.servers": broker.addresses["kafka"]}
    early = admin.ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=admin.AlterConfigOpType.SET
    )
    resource = admin.ConfigResource(
        admin.ConfigResource.Type.GROUP, group, incremental_configs=[early]
    )
    tools = admin.AdminClient(address)
    for future in tools.incremental_alter_configs([resource]).values():
        future.result(HANG_S)
    consumer = confluent.ShareConsumer({**address, "group.id": group})
    consumer.subscribe([TOPIC])
    try:
        while True:
            for message in consumer.poll(0.2):
                assert message.error() is None, message.error()
                yield message.value().decode(), now_ms()
    finally:
        consumer.close()


def subscribers(broker: RunningBroker, group: str, kind: object) -> Iterator[tuple[str, int]]:
    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}", logger=quiet())
    consumer = client.subscribe(
        TOPIC,
        group,
        consumer_type=kind,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )
    try:
        while True:
            message = consumer.receive()
            yield message.data().decode(), now_ms()
            consumer.acknowledge(message)
    finally:
        client.close()


def over_http(broker: RunningBroker, group: str) -> Iterator[tuple[str, int]]:
    base = f"/topics/public/default/{TOPIC}/subscription/{group}"
    with httpx.Client(base_url=broker.url, timeout=HANG_S) as client:
        created = client.post(base, json={"initial_position": "Earliest"})
        created.raise_for_status()
        path = f"{base}/consumer/{created.json()['id']}/messages"
        while True:
            query = {"max_messages": 5, "encoding": "base64", "timeout": 200}
            answer = client.get(path, params=query)
            answer.raise_for_status()
            for message in answer.json()["messages"]:
                yield base64.b64decode(message["value"]).decode(), now_ms()


def received(take: Iterator[tuple[str, int]], count: int) -> dict[str, int]:
    """Return the first values that a consumer receives, with their times."""
    try:
        return dict(next(take) for _ in range(count))
    finally:
        take.close()  # type: ignore[attr-defined]


def test_every_consumer_of_a_queue_waits_for_the_times_of_every_producer(
    broker: RunningBroker,
) -> None:
    due = produce(broker)
    shared, by_key = pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared
    consumers = {
        "share": members(broker, "share"),
        "shared": subscribers(broker, "shared", shared),
        "key-shared": subscribers(broker, "key-shared", by_key),
        "http": over_http(broker, "http"),
    }
    with ThreadPoolExecutor(len(consumers)) as pool:
        runs = {name: pool.submit(received, take, len(due)) for name, take in consumers.items()}
        for name, run in runs.items():
            times = run.result()
            assert times.keys() == due.keys(), name
            early = {value: due[value] - at for value, at in times.items() if at < due[value]}
            assert not early, name


def test_readers_in_order_do_not_wait(broker: RunningBroker) -> None:
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": broker.addresses["kafka"],
            "group.id": "in-order",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    values = []
    while "k2" not in values:
        message = consumer.poll(1.0)
        if message is not None:
            values.append(message.value().decode())
    consumer.close()
    exclusive = subscribers(broker, "exclusive", pulsar.ConsumerType.Exclusive)
    assert "k2" in received(exclusive, 5)
