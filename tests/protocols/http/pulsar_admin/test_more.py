"""Rare uses of Pulsar's admin API: each has its own answer."""

import json

import pytest

from braidlog.broker.positions.members import SubscriptionMember
from braidlog.storage.formats.record import Header
from tests.broker.records import append
from tests.protocols.http.pulsar_admin.test_admin import ADMIN, ORDERS, PARTS, TOPIC

NON_PERSISTENT = f"{ADMIN}/non-persistent/public/default"
POSITION = f"{TOPIC}/subscription/s/resetcursor"


@pytest.fixture
async def orders(broker):
    return await broker.topics.create(ORDERS, 1, partitioned=False)


@pytest.fixture
async def parts(ask):
    await ask("PUT", f"{PARTS}/partitions", 2, 204)


async def test_a_topic_without_partitions_does_not_grow(ask, orders):
    answer = await ask("POST", f"{TOPIC}/partitions", 2, 409)
    assert "is not the partitioned topic" in answer.json["reason"]


async def test_a_topic_is_deleted_only_by_the_call_for_its_kind(ask, orders, parts):
    for force in ("", "?force=true"):
        answer = await ask("DELETE", f"{PARTS}{force}", status=409)
        assert "partitioned topic" in answer.json["reason"]
        answer = await ask("DELETE", f"{TOPIC}/partitions{force}", status=409)
        assert "partitioned topic" in answer.json["reason"]
    assert (await ask("GET", f"{PARTS}/partitions")).json["partitions"] == 2


async def test_a_topic_does_not_shrink(ask, parts):
    for count in (1, 0, -1):
        answer = await ask("POST", f"{PARTS}/partitions", count, 422)
        assert "partitions" in answer.json["reason"]
    assert (await ask("GET", f"{PARTS}/partitions")).json["partitions"] == 2


async def test_a_message_is_shown_with_all_its_fields(ask, broker, orders):
    fields = {
        "key": b"k\xff",
        "event_us": 1_764_000_000_123_000,
        "deliver_at_us": 1_764_000_001_123_000,
        "sequence_id": 9,
        "producer_name": b"p",
        "headers": [Header(b"a", b"1")],
    }
    await append(broker, orders.partitions[0], "plain", [{"value": None, **fields}, b"v"])
    ledger = orders.partitions[0].partition_id
    answer = await ask("GET", f"{TOPIC}/ledger/{ledger}/entry/0", status=200)
    assert answer.body == b""
    shown = {name: value for name, value in answer.headers.items() if name.startswith("x-pulsar-")}
    assert shown["x-pulsar-null-value"] == "true"
    assert shown["x-pulsar-event-time"].startswith("2025-11-24T16:00:00.123")
    assert shown["x-pulsar-deliver-at-time"].startswith("2025-11-24T16:00:01.123")
    assert shown["x-pulsar-sequence-id"] == "9"
    assert shown["x-pulsar-partition-key"] == "a/8="
    assert shown["x-pulsar-partition-key-b64-encoded"] == "true"
    assert json.loads(shown["x-pulsar-property"]) == {"a": "1"}
    answer = await ask("GET", f"{TOPIC}/ledger/{ledger}/entry/1", status=200)
    assert answer.body == b"v" and "x-pulsar-null-value" not in answer.headers
    await ask("GET", f"{TOPIC}/ledger/{ledger}/entry/2", status=404)


async def test_a_message_is_examined_from_either_end(ask, broker, orders):
    await ask("GET", f"{TOPIC}/examinemessage", status=412)
    await append(broker, orders.partitions[0], "plain", [b"a", b"b", b"c"])

    async def seen(query: str) -> bytes:
        return (await ask("GET", f"{TOPIC}/examinemessage?{query}", status=200)).body

    assert await seen("") == b"c"
    assert await seen("initialPosition=latest&messagePosition=2") == b"b"
    assert await seen("initialPosition=earliest") == b"a"
    assert await seen("initialPosition=earliest&messagePosition=3") == b"c"
    for beyond in (4, 2**63):
        assert await seen(f"initialPosition=earliest&messagePosition={beyond}") == b"c"
        assert await seen(f"messagePosition={beyond}") == b"a"
    assert await seen("initialPosition=earliest&messagePosition=-5") == b"a"
    await append(broker, orders.partitions[0], "plain", [b"x"] * 10_001)
    query = "messagePosition=10001"  # Too many entries on the way.
    await ask("GET", f"{TOPIC}/examinemessage?{query}", status=412)
    broker.retention.delete_below(orders.partitions[0], 1)
    assert await seen("initialPosition=earliest") == b"b"
    assert await seen("messagePosition=99999") == b"b"
    broker.retention.delete_below(orders.partitions[0], 10_004)
    await ask("GET", f"{TOPIC}/examinemessage", status=412)
    await ask("GET", f"{TOPIC}/examinemessage?messagePosition=x", status=400)


async def test_the_id_of_a_time_after_the_last_message_names_no_message(ask, broker, orders):
    await append(broker, orders.partitions[0], "plain", [b"v"])
    message_id = (await ask("GET", f"{TOPIC}/messageid/1", status=200)).json
    assert message_id["entryId"] == 0
    late = (await ask("GET", f"{TOPIC}/messageid/{2**42}", status=200)).json
    assert late["entryId"] == -1


@pytest.mark.parametrize(
    ("body", "position"),
    [
        ({"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}, 3),
        ({"ledgerId": 1, "entryId": -1}, 0),
        ({"ledgerId": 1, "entryId": 1}, 1),
    ],
)
async def test_a_cursor_is_reset_to_the_ids_that_name_both_ends(
    ask,
    broker,
    orders,
    body,
    position,
):
    await append(broker, orders.partitions[0], "plain", [b"a", b"b", b"c"])
    broker.subscriptions.open(orders, b"s").start(0, 2)
    await ask("POST", POSITION, body, 204)
    assert broker.subscriptions.get(orders, b"s").position(0) == position


async def test_a_cursor_is_not_reset_to_an_invalid_position(ask, broker, orders):
    broker.subscriptions.open(orders, b"s").start(0, 0)
    answer = await ask("POST", POSITION, ["earliest"])
    assert answer.status in (400, 412, 422), answer.body
    assert "expected earliest, latest or a message id" in answer.json["reason"]


async def test_a_subscription_of_a_single_partition_is_deleted_separately(ask, broker, parts):
    topic = broker.topics.get(ORDERS.__class__("public", "default", "parts"))
    subscription = broker.subscriptions.open(topic, b"s")
    for index in (0, 1):
        subscription.start(index, 0)
    await ask("DELETE", f"{PARTS}-partition-1/subscription/s", status=204)
    left = broker.subscriptions.get(topic, b"s")
    assert (left.position(0), left.position(1)) == (0, None)


async def test_a_subscription_in_use_by_another_protocol_is_deleted_only_by_force(
    ask,
    broker,
    parts,
):
    topic = broker.topics.get(ORDERS.__class__("public", "default", "parts"))
    for index in (0, 1):
        broker.subscriptions.open(topic, b"s").start(index, 0)
    broker.members.add_source(lambda topic, name: [SubscriptionMember("kafka", "k", "", (1,))])
    await ask("DELETE", f"{PARTS}-partition-0/subscription/s", status=204)
    for place in (PARTS, f"{PARTS}-partition-1"):
        answer = await ask("DELETE", f"{place}/subscription/s", status=412)
        assert "active connected consumers" in answer.json["reason"]
    assert broker.subscriptions.get(topic, b"s").position(1) == 0
    await ask("DELETE", f"{PARTS}/subscription/s?force=true", status=204)
    assert broker.subscriptions.find(topic, b"s") is None


async def test_a_namespace_is_deleted_with_its_topics_only_by_force(ask, broker):
    await ask("PUT", f"{ADMIN}/namespaces/public/gone", status=204)
    await ask("PUT", f"{ADMIN}/persistent/public/gone/t", status=204)
    await ask("DELETE", f"{ADMIN}/namespaces/public/gone", status=409)
    await ask("DELETE", f"{ADMIN}/namespaces/public/gone?force=true", status=204)
    await ask("GET", f"{ADMIN}/namespaces/public/gone", status=404)


async def test_health_reports_that_records_cannot_be_stored(ask, broker, monkeypatch):
    async def full():
        return False

    monkeypatch.setattr(broker, "has_room", full)
    answer = await ask("GET", f"{ADMIN}/brokers/health", status=503)
    assert "no room" in answer.json["reason"]
    broker.stopping.set()
    await ask("GET", f"{ADMIN}/brokers/health", status=503)


@pytest.mark.parametrize("app", [{"advertised_url": "https://braidlog.example"}], indirect=True)
async def test_tools_receive_the_advertised_url(ask):
    answer = await ask("GET", f"{ADMIN}/brokers/standalone", headers={"Host": "h:1"})
    assert answer.json == ["braidlog.example"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"type": "STRING", "schema": 5}, "schema is a text"),
        ({"type": "STRING", "schema": "", "properties": {"a": 1}}, "properties a map of texts"),
        ({"type": "NONE", "schema": ""}, "NONE has no schema"),
        ({"type": "BYTES", "schema": ""}, "BYTES has no schema"),
    ],
)
async def test_an_invalid_schema_is_not_registered(ask, orders, body, reason):
    answer = await ask("POST", f"{ADMIN}/schemas/public/default/orders/schema", body)
    assert answer.status in (400, 422) and reason in answer.json["reason"]
    assert not orders.meta.schemas


async def test_a_binary_name_in_the_path_is_refused(ask):
    answer = await ask("GET", f"{ADMIN}/tenants/%FF")
    assert answer.status in (400, 412) and "is not UTF-8" in answer.json["reason"]


async def test_a_pair_of_schemas_is_an_object_of_both(ask, orders):
    """Java's admin client reads and writes this form; producers join both parts behind their
    lengths.
    """
    path = f"{ADMIN}/schemas/public/default/orders/schema"
    record = '{"type":"record","name":"U","fields":[{"name":"n","type":"int"}]}'
    text = f'{{"key":"","value":{record}}}'
    kinds = {"key.schema.type": "STRING", "value.schema.type": "JSON"}
    body = {"type": "KEY_VALUE", "schema": text, "properties": kinds}
    assert (await ask("POST", path, body)).status == 200
    (stored,) = orders.meta.schemas
    size = len(record).to_bytes(4, "big")
    assert stored.data == bytes(4) + size + record.encode()
    assert (await ask("GET", path)).json["data"] == text


async def test_an_invalid_pair_of_schemas_is_not_registered(ask, orders):
    body = {"type": "KEY_VALUE", "schema": "x"}
    answer = await ask("POST", f"{ADMIN}/schemas/public/default/orders/schema", body)
    assert answer.status == 422 and "key and value" in answer.json["reason"]
    assert not orders.meta.schemas


async def test_the_time_of_the_last_message_is_zero_before_the_first(broker, ask, orders):
    stats = (await ask("GET", f"{TOPIC}/stats")).json
    assert stats["topicCreationTimeStamp"] > 0 and stats["lastPublishTimeStamp"] == 0
    await append(broker, orders.partitions[0], "plain", [b"x"])
    assert (await ask("GET", f"{TOPIC}/stats")).json["lastPublishTimeStamp"] > 0


async def test_a_peek_shows_the_first_messages_to_a_new_subscription(broker, ask, orders):
    await append(broker, orders.partitions[0], "plain", [b"x"])
    assert (await ask("GET", f"{TOPIC}/subscription/new/position/1")).body == b"x"
    answer = await ask("GET", f"{TOPIC}/subscription/new/position/2", status=404)
    assert answer.json["reason"] == "Message not found"
    assert broker.subscriptions.find(orders, b"new") is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{ADMIN}/namespaces/public/default/maxTopicsPerNamespace", "maxTopicsPerNamespace must"),
        (f"{TOPIC}/maxProducers", "maxProducers must be 0 or more"),
        (
            f"{ADMIN}/namespaces/public/default/subscriptionExpirationTime",
            "Invalid value for subscription expiration time",
        ),
    ],
    ids=["namespace", "topic", "expiration"],
)
async def test_a_limit_below_zero_is_refused_in_the_words_of_apache(ask, orders, path, text):
    answer = await ask("POST", path, -5, 412)
    assert answer.json["reason"].startswith(text)
