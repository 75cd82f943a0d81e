"""Pulsar's admin API shows connected clients."""

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")

pytestmark = pytest.mark.clients

ABOUT = {"team": "billing"}
MODE = pulsar.ProducerAccessMode.WaitForExclusive


KEYS = Path(__file__).parents[3] / "conformance/vectors/pulsar/statistics-keys.tsv"


def stats(broker, topic, query="", kind="stats"):
    url = f"http://{broker.addresses['http']}/admin/v2/{topic}/{kind}{query}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
def test_producers_and_consumers_are_shown_with_their_clients(broker, client, topic, kind):
    place = f"{kind}/public/default/{topic}"
    full = place.replace("/", "://", 1)
    consumer = client.subscribe(full, "s", consumer_name="reader", properties=ABOUT)
    first = client.create_producer(full, producer_name="first", properties=ABOUT, access_mode=MODE)
    topic_stats = stats(broker, place)
    (shown,) = topic_stats["publishers"]
    assert (shown["producerName"], shown["accessMode"]) == ("first", "WaitForExclusive")
    (read_by,) = topic_stats["subscriptions"]["s"]["consumers"]
    assert read_by["consumerName"] == "reader"
    for client_shown in (shown, read_by):
        assert client_shown["metadata"] == ABOUT
        assert client_shown["address"].startswith("/127.0.0.1:")
        assert client_shown["clientVersion"].startswith("Pulsar-CPP-v")
        assert client_shown["connectedSince"].endswith("Z")
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


def test_a_cursor_shows_delivered_and_acknowledged_entries(broker, client, topic):
    """Apache Pulsar 4.2.4 has the same values in the same place."""
    place = f"persistent/public/default/{topic}"
    shared = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, reader_name="r")
    for number in range(20):
        producer.send(b"%d" % number)
    received = [shared.receive(30_000) for _ in range(7)]
    for message in received[::2]:
        shared.acknowledge(message)
    ledger = received[0].message_id().ledger_id()
    expected = {
        "markDeletePosition": f"{ledger}:0",
        "readPosition": f"{ledger}:20",
        "messagesConsumedCounter": 4,
        "individuallyDeletedMessages": (
            f"[({ledger}:1..{ledger}:2],({ledger}:3..{ledger}:4],({ledger}:5..{ledger}:6]]"
        ),
        "numberOfEntriesSinceFirstNotAckedMessage": 20,
        "totalNonContiguousDeletedMessagesRange": 3,
        "waitingReadOp": True,
    }
    shown = {}
    for _ in range(300):  # The client sends acknowledgements together.
        cursors = stats(broker, place, kind="internalStats")["cursors"]
        shown = {name: cursors["s"][name] for name in expected}
        if shown == expected:
            break
        time.sleep(0.1)
    assert shown == expected
    (of_reader,) = (cursor for name, cursor in cursors.items() if name != "s")
    assert (of_reader["markDeletePosition"], of_reader["active"]) == (f"{ledger}:-1", True)
    reader.close()
    assert [*stats(broker, place, kind="internalStats")["cursors"]] == ["s"]


@pytest.mark.parametrize(
    ("policy", "mode", "slots"),
    [
        ({"allow_out_of_order_delivery": True}, ("AUTO_SPLIT", True), [[1, 65535]]),
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
    query = "?getEarliestTimeInBacklog=true"
    shown = stats(broker, place, query)["subscriptions"]["s"]
    assert (shown["backlogSize"], shown["earliestMsgPublishTimeInBacklog"]) == (0, -1)
    before_ms = time.time_ns() // 1_000_000
    client.create_producer(topic).send(b"v" * 1000)
    message = consumer.receive(30_000)
    shown = stats(broker, place, query)["subscriptions"]["s"]
    assert (shown["keySharedMode"], shown["allowOutOfOrderDelivery"]) == mode
    assert shown["consumers"][0].get("keyHashRangeArrays") == slots
    assert 1000 < shown["backlogSize"] < 2000
    assert shown["earliestMsgPublishTimeInBacklog"] == message.publish_timestamp() >= before_ms
    assert stats(broker, place)["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] == 0


def test_the_active_consumer_of_each_partition_is_shown(broker, client, topic):
    place = f"persistent/public/default/{topic}"
    url = f"http://{broker.addresses['http']}/admin/v2/{place}/partitions"
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, b"2", headers, method="PUT"), timeout=30)
    kind = pulsar.ConsumerType.Failover
    consumers = [
        client.subscribe(topic, "s", consumer_type=kind, consumer_name=name)
        for name in ("one", "two")
    ]
    active = []
    for _ in range(100):
        shown = [stats(broker, f"{place}-partition-{number}") for number in range(2)]
        active = [partition["subscriptions"]["s"]["activeConsumerName"] for partition in shown]
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


@pytest.mark.parametrize("compression", ["NONE", "ZSTD"])
def test_a_batch_is_shown_whole_and_counts_as_an_entry(broker, client, topic, compression):
    client.subscribe(topic, "s").close()
    kind = getattr(pulsar.CompressionType, compression)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=1000, compression_type=kind
    )
    ids = []
    for batch in (("a", "b", "c"), ("d", "e")):
        for value in batch:
            producer.send_async(value.encode(), lambda _, place: ids.append(place))
        producer.flush()
    place = f"http://{broker.addresses['http']}/admin/v2/persistent/public/default/{topic}"

    def shown(path):
        with urllib.request.urlopen(f"{place}/{path}", timeout=30) as answer:
            values = [piece for piece in answer.read() if chr(piece) in "abcde"]
            return answer.headers["X-Pulsar-num-batch-message"], bytes(values)

    first, second = ("3", b"abc"), ("2", b"de")
    stored = f"ledger/{ids[3].ledger_id()}/entry/{ids[3].entry_id()}"
    assert shown(stored) == second
    assert shown("subscription/s/position/1") == first
    assert shown("subscription/s/position/2") == second
    with pytest.raises(urllib.error.HTTPError, match="404"):
        shown("subscription/s/position/3")
    assert shown("examinemessage?initialPosition=earliest&messagePosition=2") == second
    assert shown("examinemessage?messagePosition=2") == first
    producer.close()


def keys_of(answer, place=""):
    """Yield the keys of a JSON value as `statistics-keys.tsv` writes them."""
    if isinstance(answer, list):
        for value in answer:
            yield from keys_of(value, f"{place[:-1]}[].")
    elif isinstance(answer, dict):
        for key, value in answer.items():
            yield place + key
            if key in ("subscriptions", "cursors", "partitions"):
                for named in value.values():
                    yield from keys_of(named, f"{place}{key}.*.")
            elif key != "metadata":
                yield from keys_of(value, f"{place}{key}.")


def apaches_keys(answer):
    rows = [row.split("\t") for row in KEYS.read_text().splitlines()[1:]]
    return {key for name, key in rows if name == answer}


KINDS = (
    ("persistent", "stats", 132),
    ("persistent", "internalStats", 41),
    ("non-persistent", "stats", 130),
    ("non-persistent", "internalStats", 18),
)


def test_statistics_have_the_keys_of_apache(broker, client, topic):
    kinds = pulsar.ConsumerType
    for domain in ("persistent", "non-persistent"):
        full = f"{domain}://public/default/{topic}"
        for kind in (kinds.KeyShared, kinds.Exclusive, kinds.Failover, kinds.Shared):
            client.subscribe(full, f"s-{kind.name}", consumer_type=kind)
        client.create_producer(full).send(b"x")
    client.create_reader(topic, pulsar.MessageId.earliest)
    for domain, answer, count in KINDS:
        wanted = apaches_keys(f"{domain}/{answer}")
        assert len(wanted) == count
        assert (
            wanted - set(keys_of(stats(broker, f"{domain}/public/default/{topic}", kind=answer)))
            == set()
        )


def test_clients_can_be_left_out_of_statistics(broker, client, topic):
    place = f"persistent/public/default/{topic}"
    client.subscribe(topic, "s")
    client.create_producer(topic)
    shown = stats(broker, place, "?excludePublishers=true")
    assert shown["publishers"] == [] and shown["subscriptions"]["s"]["consumers"]
    shown = stats(broker, place, "?excludeConsumers=true")
    assert shown["publishers"] and shown["subscriptions"]["s"]["consumers"] == []


def test_messages_of_a_consumer_and_of_a_partition_are_counted(broker, client, topic):
    place = f"public/default/{topic}"
    url = f"http://{broker.addresses['http']}/admin/v2/persistent/{place}/partitions"
    is_json = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, b"2", is_json, method="PUT")
    urllib.request.urlopen(request, timeout=30).close()
    first, second = (f"{topic}-partition-{index}" for index in range(2))
    consumer = client.subscribe(first, "s", consumer_type=pulsar.ConsumerType.KeyShared)
    batching = {"batching_enabled": True, "batching_max_publish_delay_ms": 1000}
    producer = client.create_producer(first, **batching)
    for _ in range(4):
        producer.send_async(b"x", lambda *_: None)
    producer.flush()
    client.create_producer(second).send(b"y")
    for _ in range(4):
        consumer.receive(10_000)
    by_partition = stats(broker, f"persistent/{place}", "?perPartition=true", "partitioned-stats")[
        "partitions"
    ]
    shown = by_partition[f"persistent://public/default/{first}"]
    assert (shown["msgInCounter"], shown["msgOutCounter"]) == (4, 4)
    (read_by,) = shown["subscriptions"]["s"]["consumers"]
    assert read_by["avgMessagesPerEntry"] == 4
    assert read_by["keyHashRangeArrays"] == [[1, 65535]]
    names = ("firstConsumedFlowTimestamp", "firstMessagesSentTimestamp", "lastConsumedTimestamp")
    times = [read_by[name] for name in names]
    assert sorted(times) == times and times[0] >= shown["topicCreationTimeStamp"] > 0
    assert shown["subscriptions"]["s"]["lastConsumedTimestamp"] == times[-1]
    other = by_partition[f"persistent://public/default/{second}"]
    assert (other["msgInCounter"], other["msgOutCounter"]) == (1, 0)
