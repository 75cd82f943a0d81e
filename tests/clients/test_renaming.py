"""A topic and a stream renamed by Iggy's own client while stock clients of all protocols use them.

Each client continues under the new name at its position, after a restart too.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from conformance.clients.raw.iggy import IggyWire, text8
from conformance.server import RunningBroker
from tests.waiting import until_seen

pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
pytest.importorskip("apache_iggy", reason="apache-iggy is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

WAIT_MS = 30_000
RENAME = """
import asyncio, os, sys
from apache_iggy import IggyClient

async def run(address, call, *arguments):
    client = IggyClient(address)
    await client.connect()
    await client.login_user("iggy", "iggy")
    await getattr(client, call)(*arguments)

asyncio.run(run(*sys.argv[1:]))
os._exit(0)  # Some of its versions abort a process that ends in order.
"""


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


def rename(broker: RunningBroker, call: str, *arguments: str) -> None:
    address = "{}:{}".format(*broker.address("iggy"))
    command = [sys.executable, "-c", RENAME, address, call, *arguments]
    subprocess.run(command, check=True, timeout=120)


def produce(broker: RunningBroker, topic: str, first: int, end: int) -> None:
    writer = kafka.KafkaProducer(bootstrap_servers=broker.addresses["kafka"])
    for number in range(first, end):
        writer.send(topic, b"%d" % number, partition=0).get(timeout=60)
    writer.close()


def read_kafka(broker: RunningBroker, topic: str, count: int) -> list[int]:
    reader = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.addresses["kafka"],
        group_id="by-kafka",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=1,
    )
    values: list[int] = []
    while len(values) < count:
        for records in reader.poll(WAIT_MS, max_records=1).values():
            values += [int(record.value) for record in records]
    reader.commit()
    reader.close()
    return values


def read_http(broker: RunningBroker, topic: str, count: int) -> list[int]:
    """Read with a new consumer per call, which acknowledges the received messages."""
    place = f"/topics/public/default/{topic}/subscription/by-http"
    with httpx.Client(base_url=broker.url, timeout=60) as client:
        created = client.post(place, json={"id": "w", "initialPosition": "Earliest"})
        created.raise_for_status()
        query = {"timeout": WAIT_MS, "max_messages": count}
        messages = client.get(f"{place}/consumer/w/messages", params=query).json()["messages"]
        ids = [message["messageId"] for message in messages]
        acked = client.post(f"{place}/cursor", json={"type": "Individual", "messageIds": ids})
        acked.raise_for_status()
        client.delete(f"{place}/consumers/w").raise_for_status()
    return [int(message["value"]) for message in messages]


class StayingConsumer:
    """A Pulsar consumer that stays connected."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self.client = pulsar.Client(
            "pulsar://{}:{}".format(*broker.address("pulsar")),
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        self.consumer = self.client.subscribe(
            topic, "by-pulsar", initial_position=pulsar.InitialPosition.Earliest
        )

    def read(self, count: int) -> list[int]:
        values = []
        for _ in range(count):
            message = self.consumer.receive(WAIT_MS)
            values.append(int(message.data()))
            self.consumer.acknowledge(message)
        return values

    def close(self) -> None:
        self.client.close()


def read_iggy(broker: RunningBroker, topic: str, count: int) -> list[int]:
    with IggyWire(broker.address("iggy")) as wire:
        return wire.poll_next(topic, count, "by-iggy")


def subscription(broker: RunningBroker, topic: str) -> dict[str, Any]:
    """Return the admin API's stats of Pulsar's subscription."""
    url = f"{broker.url}/admin/v2/persistent/public/{topic}/stats"
    subscription_shown: dict[str, Any] = httpx.get(url, timeout=60).json()["subscriptions"][
        "by-pulsar"
    ]
    return subscription_shown


def test_all_protocols_continue_under_the_new_name_of_a_topic(broker: RunningBroker) -> None:
    produce(broker, "orders", 0, 10)
    subscribed = StayingConsumer(broker, "public/default/orders")
    readers: list[Callable[[str], list[int]]] = [
        lambda topic: read_kafka(broker, topic, 3),
        lambda topic: read_iggy(broker, topic, 3),
        lambda topic: read_http(broker, topic, 3),
    ]
    assert [read("orders") for read in readers] == [[0, 1, 2]] * 3
    assert subscribed.read(3) == [0, 1, 2]
    until_seen(lambda: subscription(broker, "default/orders")["msgBacklog"] == 7)
    rename(broker, "update_topic", "default", "orders", "sales")
    assert [read("sales") for read in readers] == [[3, 4, 5]] * 3
    assert not subscription(broker, "default/sales")["consumers"]
    again = StayingConsumer(broker, "public/default/sales")
    assert again.read(3) == [3, 4, 5]
    until_seen(lambda: subscription(broker, "default/sales")["msgBacklog"] == 4)
    produce(broker, "sales", 10, 12)
    for client in (subscribed, again):
        client.close()
    assert broker.stop() == 0
    broker.start()
    assert [read("sales") for read in readers] == [[6, 7, 8]] * 3
    again = StayingConsumer(broker, "public/default/sales")
    assert again.read(6) == [6, 7, 8, 9, 10, 11]
    again.close()
    shown = httpx.get(f"{broker.url}/admin/v2/persistent/public/default", timeout=60).json()
    assert shown == ["persistent://public/default/sales"]


def test_a_renamed_stream_keeps_its_topics(broker: RunningBroker) -> None:
    with IggyWire(broker.address("iggy")) as wire:
        wire.ok(202, bytes(4) + text8("shop"))
        for topic in ("a", "b"):
            wire.create_topic(topic, "shop", 2)
    for topic in ("a", "b"):
        client = StayingConsumer(broker, f"public/shop/{topic}-partition-0")
        writer = client.client.create_producer(f"public/shop/{topic}-partition-0")
        for number in range(4):
            writer.send(b"%d" % number)
        assert client.read(2) == [0, 1]
        place = f"shop/{topic}-partition-0"
        until_seen(lambda place=place: subscription(broker, place)["msgBacklog"] == 2)
        client.close()
    rename(broker, "update_stream", "shop", "store")
    assert broker.stop() == 0
    broker.start()
    for topic in ("a", "b"):
        client = StayingConsumer(broker, f"public/store/{topic}-partition-0")
        assert client.read(2) == [2, 3]
        client.close()
    shown = httpx.get(f"{broker.url}/admin/v2/namespaces/public", timeout=60).json()
    assert sorted(shown) == ["public/default", "public/store"]
