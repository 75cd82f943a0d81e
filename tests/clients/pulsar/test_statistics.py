"""Pulsar's admin API shows connected clients."""

import json
import time
import urllib.error
import urllib.request

import pytest

pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")

pytestmark = pytest.mark.clients

ABOUT = {"team": "billing"}
MODE = pulsar.ProducerAccessMode.WaitForExclusive


def stats(broker, topic, query=""):
    url = f"http://{broker.addresses['http']}/admin/v2/{topic}/stats{query}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
def test_producers_and_consumers_are_shown_with_their_clients(broker, client, topic, kind):
    place = f"{kind}/public/default/{topic}"
    full = place.replace("/", "://", 1)
    consumer = client.subscribe(full, "s", consumer_name="reader", properties=ABOUT)
    first = client.create_producer(full, producer_name="first", properties=ABOUT, access_mode=MODE)
    found = stats(broker, place)
    (shown,) = found["publishers"]
    assert (shown["producerName"], shown["accessMode"]) == ("first", "WaitForExclusive")
    (read_by,) = found["subscriptions"]["s"]["consumers"]
    assert read_by["consumerName"] == "reader"
    for one in (shown, read_by):
        assert one["metadata"] == ABOUT
        assert one["address"].startswith("/127.0.0.1:")
        assert one["clientVersion"].startswith("Pulsar-CPP-v")
        assert one["connectedSince"].endswith("Z")
    first.close()
    consumer.close()
    assert stats(broker, place)["publishers"] == []


def test_a_reader_is_shown_while_it_is_connected(broker, client, topic):
    place = f"persistent/public/default/{topic}"
    producer = client.create_producer(topic)
    first = producer.send(b"1")
    producer.send(b"2")
    reader = client.create_reader(topic, first)
    ((name, shown),) = stats(broker, place)["subscriptions"].items()
    assert name.startswith("reader")
    assert (shown["isDurable"], shown["type"], len(shown["consumers"])) == (False, "Exclusive", 1)
    reader.close()
    assert stats(broker, place)["subscriptions"] == {}


@pytest.mark.parametrize(
    ("policy", "mode", "slots"),
    [
        ({"allow_out_of_order_delivery": True}, ("AUTO_SPLIT", True), None),
        (
            {
                "key_shared_mode": pulsar.KeySharedMode.Sticky,
                "sticky_ranges": [(0, 9), (20, 65535)],
            },
            ("STICKY", False),
            [[0, 9], [20, 65535]],
        ),
    ],
)
def test_key_ranges_and_waiting_entries_are_shown(broker, client, topic, policy, mode, slots):
    place = f"persistent/public/default/{topic}"
    sharing = pulsar.ConsumerKeySharedPolicy(**policy)
    kind = pulsar.ConsumerType.KeyShared
    consumer = client.subscribe(topic, "s", consumer_type=kind, key_shared_policy=sharing)
    asked = "?getEarliestTimeInBacklog=true"
    shown = stats(broker, place, asked)["subscriptions"]["s"]
    assert (shown["backlogSize"], shown["earliestMsgPublishTimeInBacklog"]) == (0, -1)
    before_ms = time.time_ns() // 1_000_000
    client.create_producer(topic).send(b"v" * 1000)
    message = consumer.receive(30_000)
    shown = stats(broker, place, asked)["subscriptions"]["s"]
    assert (shown["keySharedMode"], shown["allowOutOfOrderDelivery"]) == mode
    assert shown["consumers"][0].get("keyHashRangeArrays") == slots
    assert 1000 < shown["backlogSize"] < 2000
    assert shown["earliestMsgPublishTimeInBacklog"] == message.publish_timestamp() >= before_ms
    assert "earliestMsgPublishTimeInBacklog" not in stats(broker, place)["subscriptions"]["s"]


def test_the_active_consumer_of_each_partition_is_shown(broker, client, topic):
    place = f"persistent/public/default/{topic}"
    url = f"http://{broker.addresses['http']}/admin/v2/{place}/partitions"
    told = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, b"2", told, method="PUT"), timeout=30)
    kind = pulsar.ConsumerType.Failover
    consumers = [
        client.subscribe(topic, "s", consumer_type=kind, consumer_name=name)
        for name in ("one", "two")
    ]
    active = []
    for _ in range(100):
        shown = [stats(broker, f"{place}-partition-{number}") for number in range(2)]
        active = [one["subscriptions"]["s"]["activeConsumerName"] for one in shown]
        if "" not in active and len(set(active)) == 2:
            break
        time.sleep(0.1)  # The displaced consumer may acknowledge its messages for a second.
    assert active == ["one", "two"]
    for consumer in consumers:
        consumer.close()


def delete(broker, topic, query=""):
    url = f"http://{broker.addresses['http']}/admin/v2/persistent/public/default/{topic}{query}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="DELETE")) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["reason"]


def test_a_topic_in_use_is_deleted_only_by_force(broker, client, topic):
    producer = client.create_producer(topic)
    producer.send(b"kept")
    assert delete(broker, topic) == (412, "Topic has 0 consumers and 1 producers connected")
    producer.close()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert delete(broker, topic) == (412, "Topic has 1 consumers and 0 producers connected")
    assert reader.read_next(10_000).data() == b"kept"
    assert delete(broker, topic, "?force=true") == (204, "")
