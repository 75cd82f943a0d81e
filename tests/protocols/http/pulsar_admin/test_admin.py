"""Pulsar's admin API and HTTP lookup: calls of tools and clients, with the fields
that they read.
"""

from types import SimpleNamespace

import pytest

from braidlog.broker.cluster.placement import Owner, Placement
from braidlog.broker.positions.members import SubscriptionMember
from braidlog.broker.server.listener import Listener
from braidlog.broker.topics.shown_producers import ShownProducer
from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.asgi import call

ADMIN = "/admin/v2"
TOPIC = f"{ADMIN}/persistent/public/default/orders"
PARTS = f"{ADMIN}/persistent/public/default/parts"
ORDERS = TopicName("public", "default", "orders")


async def produce(ask, topic, *values, partition=0):
    body = {"messages": [{"value": value, "properties": {"ü": "x"}} for value in values]}
    path = f"/topics/public/default/{topic}/partitions/{partition}"
    await ask("POST", path, body, 200)


async def test_the_cluster(ask, broker):
    assert (await ask("GET", f"{ADMIN}/clusters")).json == ["standalone"]
    answer = await ask("GET", f"{ADMIN}/brokers/standalone", headers={"Host": "h:8080"})
    assert answer.json == ["h:8080"]
    for name in ("health", "ready"):
        assert (await ask("GET", f"{ADMIN}/brokers/{name}")).body == b"ok"
    assert (await ask("GET", f"{ADMIN}/brokers/version")).body.decode() == broker.version
    runtime = (await ask("GET", f"{ADMIN}/brokers/configuration/runtime")).json
    assert runtime["clusterName"] == "standalone"
    assert all(isinstance(value, str) for value in runtime.values())


class Three(Placement):
    """Two other brokers, the second without such a listener."""

    def others(self):
        return [Owner(2, {"http": ("10.0.0.2", 8080)}), Owner(3, {"kafka": ("10.0.0.3", 9092)})]


async def test_the_other_brokers_of_a_cluster_are_listed(ask, broker):
    broker.placement = Three()
    broker.listeners["http"] = SimpleNamespace(name="http", protocol="http")
    answer = await ask("GET", f"{ADMIN}/brokers/standalone", headers={"Host": "h:8080"})
    assert answer.json == ["h:8080", "10.0.0.2:8080"]


async def test_tenants_and_namespaces(ask):
    assert (await ask("GET", f"{ADMIN}/tenants")).json == ["public"]
    await ask("GET", f"{ADMIN}/tenants/shop", status=404)
    await ask("PUT", f"{ADMIN}/tenants/shop", {"allowedClusters": ["standalone"]}, 204)
    await ask("PUT", f"{ADMIN}/tenants/shop", {"allowedClusters": ["standalone"]}, 409)
    await ask("PUT", f"{ADMIN}/tenants/public", {"allowedClusters": ["standalone"]}, 409)
    assert (await ask("GET", f"{ADMIN}/namespaces/shop")).json == []
    await ask("PUT", f"{ADMIN}/namespaces/shop/cash", status=204)
    await ask("PUT", f"{ADMIN}/namespaces/shop/cash", status=409)
    assert (await ask("GET", f"{ADMIN}/namespaces/shop")).json == ["shop/cash"]
    policies = (await ask("GET", f"{ADMIN}/namespaces/shop/cash")).json
    assert policies["bundles"]["numBundles"] == 1
    named = {"namespace_auth", "destination_auth", "subscription_auth_roles"}  # Apache's terms.
    assert policies["auth_policies"].keys() == named
    await ask("DELETE", f"{ADMIN}/tenants/shop", status=409)
    await ask("DELETE", f"{ADMIN}/namespaces/shop/cash", status=204)
    await ask("DELETE", f"{ADMIN}/tenants/shop", status=204)
    await ask("GET", f"{ADMIN}/namespaces/shop/cash", status=404)


async def test_a_tenant_keeps_its_roles(ask):
    tenant = f"{ADMIN}/tenants/public"
    assert (await ask("GET", tenant)).json["adminRoles"] == []
    own = {"allowedClusters": ["standalone"]}
    await ask("POST", tenant, {"adminRoles": ["clerk", "boss"], **own}, 204)
    assert (await ask("GET", tenant)).json["adminRoles"] == ["clerk", "boss"]
    for roles in ("clerk", [1], ["x" * 5000]):
        await ask("POST", tenant, {"adminRoles": roles, **own}, 400)
    await ask("POST", f"{ADMIN}/tenants/nobody", own, 404)


async def test_a_subscription_creates_its_topic(ask, broker):
    await ask("PUT", f"{TOPIC}/subscription/s", "earliest", 204)
    assert (await ask("GET", f"{TOPIC}/subscriptions")).json == ["s"]
    answer = await ask("DELETE", f"{TOPIC}/subscription/other", status=404)
    assert answer.json["reason"].startswith("Subscription other not found for topic")


async def test_a_deleted_schema_is_no_longer_in_force(ask):
    schemas = f"{ADMIN}/schemas/public/default/orders"
    await ask("PUT", TOPIC, status=204)
    await ask("DELETE", f"{schemas}/schema", status=404)
    text = {"type": "STRING", "schema": "", "properties": {}}
    await ask("POST", f"{schemas}/schema", text, 200)
    assert (await ask("DELETE", f"{schemas}/schema")).json == {"version": 1}
    for path in ("schema", "schema/1", "schemas"):
        await ask("GET", f"{schemas}/{path}", status=200 if path == "schemas" else 404)
    await ask("DELETE", f"{schemas}/schema", status=404)
    assert (await ask("GET", f"{schemas}/schema/0")).json["type"] == "STRING"
    number = {"type": "INT32", "schema": "", "properties": {}}  # A schema without rules.
    assert (await ask("POST", f"{schemas}/compatibility", number)).json["compatibility"]
    answer = await ask("POST", f"{schemas}/schema", number, 200)
    assert answer.json == {"version": {"version": 2}}
    versions = (await ask("GET", f"{schemas}/schemas")).json["getSchemaResponses"]
    assert [(schema["version"], schema["type"]) for schema in versions] == [
        (0, "STRING"),
        (2, "INT32"),
    ]


async def test_topics_are_created_listed_grown_and_deleted(ask, broker):
    await ask("PUT", TOPIC, status=204)
    answer = await ask("PUT", TOPIC, status=409)
    assert answer.json["reason"]
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    namespace = f"{ADMIN}/persistent/public/default"
    listed = [
        "persistent://public/default/orders",
        "persistent://public/default/parts-partition-0",
        "persistent://public/default/parts-partition-1",
    ]
    assert sorted((await ask("GET", namespace)).json) == listed
    topics = f"{ADMIN}/namespaces/public/default/topics"
    assert sorted((await ask("GET", f"{topics}?mode=PERSISTENT")).json) == listed
    assert (await ask("GET", f"{topics}?mode=NON_PERSISTENT")).json == []
    partitioned = (await ask("GET", f"{namespace}/partitioned")).json
    assert partitioned == ["persistent://public/default/parts"]
    for path in ("public/default", "public/default/partitioned"):
        assert (await ask("GET", f"{ADMIN}/non-persistent/{path}", status=200)).json == []
    for path, count in [(TOPIC, 0), (PARTS, 2), (f"{PARTS}-partition-0", 0)]:
        answer = await ask("GET", f"{path}/partitions")
        assert answer.json == {"partitions": count, "deleted": False}
    await ask("POST", f"{PARTS}/partitions", 3, 204)
    assert (await ask("GET", f"{PARTS}/partitions")).json["partitions"] == 3
    for count in (0, -1, "x", 20_000, {}):
        await ask("PUT", f"{ADMIN}/persistent/public/default/bad/partitions", count, 406)
    await ask("DELETE", PARTS, status=409)
    await ask("DELETE", f"{PARTS}/partitions", status=204)
    await ask("DELETE", TOPIC, status=204)
    await ask("DELETE", TOPIC, status=404)
    assert len(broker.topics) == 0


async def test_partitions_of_a_missing_topic(ask):
    await ask("GET", f"{TOPIC}/partitions", status=404)
    answer = await ask("GET", f"{TOPIC}/partitions?checkAllowAutoCreation=true")
    assert answer.json == {"partitions": 0, "deleted": False}


async def test_subscriptions_are_created_moved_and_deleted(ask, broker):
    await ask("PUT", TOPIC, status=204)
    await produce(ask, "orders", *"01234")
    subscription = f"{TOPIC}/subscription/s"
    await ask("PUT", subscription, "earliest", 204)
    await ask("PUT", subscription, "earliest", 409)
    assert (await ask("GET", f"{TOPIC}/subscriptions")).json == ["s"]
    stored = broker.subscriptions.get(broker.topics.get(ORDERS), b"s")
    assert stored.position(0) == 0
    await ask("POST", f"{subscription}/skip/2", status=204)
    assert stored.position(0) == 2
    stored.ack(0, [(3, 4)], lazy=False)
    answer = await ask("GET", f"{subscription}/position/2", status=200)
    assert answer.body == b"4"
    assert answer.headers["x-pulsar-message-id"] == "1:4"
    assert answer.headers["x-pulsar-property"] == '{"\\u00fc":"x"}'
    await ask("GET", f"{subscription}/position/3", status=404)
    await ask("POST", f"{subscription}/skip_all", status=204)
    assert stored.position(0) == 5
    await ask("POST", f"{subscription}/resetcursor/0", status=204)
    assert stored.position(0) == 0
    place = {"ledgerId": 1, "entryId": 3, "partitionIndex": -1, "batchIndex": -1}
    await ask("POST", f"{subscription}/resetcursor", place, 204)
    assert stored.position(0) == 3
    for name in ("excluded", "isExcluded"):  # As Java's client sends the name, and as documented.
        stored.seek(0, 0)
        await ask("POST", f"{subscription}/resetcursor", {**place, name: True}, 204)
        assert stored.position(0) == 4
    await ask("POST", f"{subscription}/resetcursor", {"ledgerId": "x"}, 422)
    await ask("DELETE", subscription, status=204)
    await ask("DELETE", subscription, status=404)


async def test_a_topic_is_emptied_for_all_subscriptions(ask, broker):
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    for partition in (0, 1):
        await produce(ask, "parts", *"01234", partition=partition)
    await ask("PUT", f"{PARTS}/subscription/s", "earliest", 204)
    topic = broker.topics.get(TopicName("public", "default", "parts"))
    other = broker.subscriptions.open(topic, b"group")
    other.start(1, 2)
    await ask("DELETE", f"{PARTS}-partition-0/truncate", status=204)
    assert [partition.log_start_offset for partition in topic.partitions] == [5, 0]
    await ask("DELETE", f"{PARTS}/truncate", status=204)
    assert [partition.log_start_offset for partition in topic.partitions] == [5, 5]
    subscription = broker.subscriptions.get(topic, b"s")
    assert [subscription.position(index) for index in (0, 1)] == [5, 5]
    assert [other.position(index) for index in (0, 1)] == [None, 5]
    await produce(ask, "parts", "5", partition=1)
    assert (await ask("GET", f"{PARTS}-partition-1/subscription/s/position/1")).body == b"5"
    await ask("DELETE", f"{TOPIC}/truncate", status=404)


async def test_there_is_nothing_to_unload(ask):
    await ask("PUT", f"{ADMIN}/namespaces/public/default/unload", status=204)
    await ask("PUT", f"{ADMIN}/namespaces/public/other/unload", status=404)


async def test_figures_name_the_consumers_and_the_members_of_other_protocols(ask, broker):
    await ask("PUT", TOPIC, status=204)
    await produce(ask, "orders", "0", "1")
    path = "/topics/public/default/orders/subscription/s"
    created = await ask("POST", path, {"name": "w1", "initial_position": "Earliest"}, 201)
    await ask("GET", f"{path}/consumers/{created.json['id']}/messages?timeout=0", status=200)
    broker.members.add_source(
        lambda topic, name: [SubscriptionMember("kafka", "k-1", "10.0.0.1", [0])]
    )
    stats = (await ask("GET", f"{TOPIC}/stats", status=200)).json["subscriptions"]["s"]
    assert (stats["type"], stats["unackedMessages"]) == ("Shared", 2)
    own, other = stats["consumers"]
    assert (own["consumerName"], own["msgOutCounter"], own["unackedMessages"]) == ("w1", 2, 2)
    assert (other["consumerName"], other["msgOutCounter"]) == ("k-1", 0)
    assert (other["address"], other["metadata"]) == ("10.0.0.1", {"protocol": "kafka"})


async def test_figures_count_a_producer_of_several_partitions_once(ask, broker):
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    known = ShownProducer("p", 3, "Shared", False, "10.0.0.1:5000", "", 0, {})
    waiting = ShownProducer("w", 4, "WaitForExclusive", True, "10.0.0.1:5000", "", 0, {})
    broker.shown_producers.add_source(lambda partition_id: [known, waiting])
    stats = (await ask("GET", f"{PARTS}/partitioned-stats", status=200)).json
    (publisher,) = stats["publishers"]
    assert (publisher["producerName"], publisher["producerId"], publisher["metadata"]) == (
        "p",
        3,
        {},
    )
    assert publisher["address"] == "/10.0.0.1:5000"
    assert stats["waitingPublishers"] == 1


async def test_figures_and_single_messages(ask):
    await ask("PUT", TOPIC, status=204)
    last = (await ask("GET", f"{TOPIC}/lastMessageId")).json
    assert (last["entryId"], last["partitionIndex"]) == (-1, -1)
    await produce(ask, "orders", "0", "1", "2")
    await ask("PUT", f"{TOPIC}/subscription/s", "earliest", 204)
    stats = (await ask("GET", f"{TOPIC}/stats", status=200)).json
    assert stats["msgInCounter"] == 3 and stats["storageSize"] > 0 and stats["backlogSize"] > 0
    assert stats["subscriptions"]["s"]["msgBacklog"] == 3
    assert stats["subscriptions"]["s"]["type"] == "None"
    assert stats["subscriptions"]["s"]["backlogSize"] == stats["backlogSize"]
    internal = (await ask("GET", f"{TOPIC}/internalStats", status=200)).json
    assert internal["lastConfirmedEntry"] == "1:2"
    assert internal["cursors"]["s"]["markDeletePosition"] == "1:-1"
    assert internal["cursors"]["s"]["numberOfEntriesSinceFirstNotAckedMessage"] == 1
    assert internal["schemaLedgers"] == []
    schema = {"type": "STRING", "schema": "", "properties": {}}
    await ask("POST", f"{ADMIN}/schemas/public/default/orders/schema", schema, 200)
    (ledger,) = (await ask("GET", f"{TOPIC}/internalStats", status=200)).json["schemaLedgers"]
    place = (await ask("GET", f"{ADMIN}/schemas/public/default/orders/metadata")).json["info"]
    assert (ledger["ledgerId"], ledger["entries"]) == (place["ledgerId"], place["entryId"] + 1)
    assert (await ask("GET", f"{TOPIC}/lastMessageId")).json["entryId"] == 2
    assert (await ask("GET", f"{TOPIC}/messageid/0")).json["entryId"] == 0
    assert (await ask("GET", f"{TOPIC}/ledger/1/entry/1")).body == b"1"
    for path in ("ledger/1/entry/9", "ledger/9/entry/1", "ledger/x/entry/1"):
        await ask("GET", f"{TOPIC}/{path}", status=404)
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    await ask("GET", f"{PARTS}/lastMessageId", status=404)
    await ask("GET", f"{PARTS}-partition-1/lastMessageId", status=200)
    whole = (await ask("GET", f"{PARTS}/partitioned-stats?perPartition=true")).json
    assert whole["metadata"] == {"partitions": 2, "deleted": False}
    assert "persistent://public/default/parts-partition-1" in whole["partitions"]


async def test_schemas(ask):
    schemas = f"{ADMIN}/schemas/public/default/orders"
    await ask("GET", f"{schemas}/schema", status=404)
    await ask("PUT", TOPIC, status=204)
    schema = {"type": "STRING", "schema": "", "properties": {"a": "b"}}
    answer = await ask("POST", f"{schemas}/schema", schema, 200)
    assert answer.json == {"version": {"version": 0}}
    answer = await ask("GET", f"{schemas}/schema")
    shown = {"version": 0, "type": "STRING", "data": "", "properties": {"a": "b"}}
    shown["timestamp"] = answer.json["timestamp"]
    assert answer.json == shown
    assert (await ask("GET", f"{schemas}/schema/0")).json == shown
    assert (await ask("GET", f"{schemas}/schemas")).json == {"getSchemaResponses": [shown]}
    await ask("GET", f"{schemas}/schema/1", status=404)
    await ask("POST", f"{schemas}/schema", {"type": "INT32", "schema": ""}, 409)
    await ask("POST", f"{schemas}/schema", {"type": "AVRO", "schema": "{"}, 422)
    answer = await ask("POST", f"{schemas}/compatibility", {"type": "INT32", "schema": ""})
    assert answer.json == {"compatibility": False, "schemaCompatibilityStrategy": "FULL"}


async def test_a_schema_has_the_time_of_its_version(ask, broker):
    schemas, before_ms = f"{ADMIN}/schemas/public/default/orders", broker.now_us() // 1000
    for version in ("1", "2", "1"):
        schema = {"type": "STRING", "schema": "", "properties": {"version": version}}
        await ask("POST", f"{schemas}/schema", schema, 200)
    first, second = (await ask("GET", f"{schemas}/schemas")).json["getSchemaResponses"]
    times_ms = [first["timestamp"], second["timestamp"]]
    assert before_ms <= times_ms[0] <= times_ms[1] <= broker.now_us() // 1000
    stored = [schema.created_us // 1000 for schema in broker.topics.get(ORDERS).meta.schemas]
    assert stored == times_ms


@pytest.mark.parametrize(
    "path",
    [
        "/admin/v2/functions/public/default",
        "/admin/v2/brokers/internal-configuration",
        "/admin/v3/functions/public/default/f",
        "/admin/",
        "/lookup/v2/topic/persistent/public/default/orders/more",
    ],
)
async def test_unserved_calls_are_refused_with_a_reason(ask, path):
    answer = await ask("GET", path, status=501)
    assert answer.json == {"reason": f"GET {path} is not served here"}


async def test_an_error_has_a_reason_alone_as_in_apache(ask):
    """Go's admin client reads `code` as a number, and fails on a name."""
    answer = await ask("GET", f"{ADMIN}/tenants/shop", status=404)
    assert answer.json == {"reason": "Tenant does not exist"}


async def test_a_topic_without_partitions_has_no_partitioned_figures(ask):
    await ask("PUT", TOPIC, status=204)
    full = "persistent://public/default/orders"
    for path, reason in [
        ("/partitioned-stats", f"Partitioned Topic {full} not found"),
        (
            "-partition-0/stats",
            f"Partitioned Topic not found: {full}-partition-0 has zero partitions",
        ),
    ]:
        answer = await ask("GET", TOPIC + path, status=404)
        assert answer.json == {"reason": reason}


async def test_numbers_as_text_are_numbers_as_in_apache(ask):
    await ask("PUT", f"{PARTS}/partitions", "3", 204)
    assert (await ask("GET", f"{PARTS}/partitions")).json["partitions"] == 3
    await ask("PUT", f"{ADMIN}/persistent/public/default/other/partitions", "x", 406)
    await ask("POST", f"{ADMIN}/namespaces/public/default/messageTTL", "120", 204)
    assert (await ask("GET", f"{ADMIN}/namespaces/public/default/messageTTL")).json == 120


async def test_a_lookup_without_a_pulsar_listener(ask):
    await ask("GET", "/lookup/v2/topic/persistent/public/default/orders", status=404)
    await ask("GET", "/lookup/v2/topic/persistent/public/nowhere/orders", status=404)


def listeners(*kinds):
    """Return bound listeners of (protocol, port, has TLS)."""
    return {
        str(port): Listener(
            name=str(port),
            protocol=protocol,
            adapter=None,
            options=None,
            listen=("127.0.0.1", port),
            advertised=None,
            tls=object() if has_tls else None,
            bound=("127.0.0.1", port),
        )
        for protocol, port, has_tls in kinds
    }


ALL_LISTENERS = (
    *(("pulsar", 6650, False), ("pulsar", 6651, True)),
    *(("http", 8080, False), ("http", 8443, True)),
)


async def test_a_lookup_by_the_name_of_a_listener(broker, ask):
    broker.listeners.update(listeners(*ALL_LISTENERS))
    named = [name for name, each in broker.listeners.items() if each.protocol == "pulsar"]
    try:
        for name in named:
            is_encrypted = broker.listeners[name].tls is not None
            shown = (await ask("GET", f"{LOOKUP}?listenerName={name}", status=200)).json
            assert ("brokerUrlTls" in shown) == is_encrypted
            assert shown["brokerUrl"].startswith("pulsar+ssl:" if is_encrypted else "pulsar:")
        for target, headers in (
            (f"{LOOKUP}?listenerName=outside", {}),
            (LOOKUP, {"X-Pulsar-ListenerName": "outside"}),
        ):
            answer = await ask("GET", target, status=404, headers=headers)
            assert answer.json["reason"] == "the broker do not have outside listener"
    finally:
        broker.listeners.clear()
    assert len(named) == 2


LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
OF_ALL = {
    "brokerUrl": "pulsar://127.0.0.1:6650",
    "brokerUrlTls": "pulsar+ssl://127.0.0.1:6651",
    "httpUrl": "http://h:1",
    "httpUrlTls": "https://127.0.0.1:8443",
    "nativeUrl": "pulsar://127.0.0.1:6650",
    "brokerUrlSsl": "",
}


@pytest.mark.parametrize(
    ("scheme", "kinds", "expected"),
    [
        ("http", ALL_LISTENERS, OF_ALL),
        (
            "https",
            ALL_LISTENERS,
            {**OF_ALL, "httpUrl": "http://127.0.0.1:8080", "httpUrlTls": "https://h:1"},
        ),
        (
            "https",
            [listener for listener in ALL_LISTENERS if listener[2]],
            {
                "brokerUrl": "pulsar+ssl://127.0.0.1:6651",
                "brokerUrlTls": "pulsar+ssl://127.0.0.1:6651",
                "httpUrlTls": "https://h:1",
                "nativeUrl": "pulsar+ssl://127.0.0.1:6651",
                "brokerUrlSsl": "",
            },
        ),
    ],
    ids=["all, http", "all, https", "TLS alone"],
)
async def test_a_lookup_has_an_address_for_each_kind_of_listener(
    broker, app, scheme, kinds, expected
):
    broker.listeners.update(listeners(*kinds))
    try:
        headers = {"host": "h:1"}
        answer = await call(app, "GET", LOOKUP, headers=headers, scheme=scheme)
        cluster = await call(
            app, "GET", f"{ADMIN}/clusters/standalone", headers=headers, scheme=scheme
        )
    finally:
        broker.listeners.clear()
    assert answer.json == expected
    names = {"serviceUrl": "httpUrl", "serviceUrlTls": "httpUrlTls"}
    names["brokerServiceUrlTls"] = "brokerUrlTls"
    if expected["brokerUrl"].startswith("pulsar:"):
        names["brokerServiceUrl"] = "brokerUrl"
    shown = {name: url for name, url in cluster.json.items() if name.endswith(("Url", "UrlTls"))}
    assert shown == {name: expected[url] for name, url in names.items() if url in expected}


async def test_a_schema_is_uploaded_before_its_topic(ask, broker):
    schemas = f"{ADMIN}/schemas/public/default/orders"
    text, number = ({"type": kind, "schema": ""} for kind in ("STRING", "INT32"))
    assert (await ask("POST", f"{schemas}/version", text, 200)).json == {"version": -1}
    assert (await ask("GET", f"{schemas}/schemas", status=200)).json == {"getSchemaResponses": []}
    assert (await ask("GET", f"{schemas}/metadata", status=200)).body == b""
    answer = await ask("POST", f"{schemas}/schema", text, 200)
    assert answer.json == {"version": {"version": 0}}
    assert (await ask("POST", f"{schemas}/version", text, 200)).json == {"version": 0}
    assert (await ask("POST", f"{schemas}/version", number, 200)).json == {"version": -1}
    assert (await ask("GET", f"{schemas}/metadata")).json["info"]["version"] == 0
    await ask("DELETE", f"{schemas}/schema", status=200)
    assert (await ask("GET", f"{schemas}/schemas", status=200)).json == {"getSchemaResponses": []}
    await ask("POST", f"{schemas}/compatibility", number, 202)
