"""The open connections and the totals of a broker."""

from types import SimpleNamespace

from braidlog.broker.cluster.placement import ClusterPlacement, Owner
from braidlog.broker.server.tls import DAY_US
from braidlog.storage.metadata.names import TopicName
from tests.broker.server.certificates import tls_settings
from tests.protocols.http.asgi import call
from tests.protocols.http.opened import connection


async def test_connections_are_listed_by_id_in_pages(app, broker, autojump_clock):
    broker.connections |= {connection(n) for n in (3, 1, 2)} | {connection(4, is_open=False)}
    first = (await call(app, "GET", "/api/v1/connections?limit=2")).json
    assert [connection["id"] for connection in first["connections"]] == [1, 2]
    second = (await call(app, "GET", f"/api/v1/connections?after={first['next']}")).json
    broker.connections.clear()
    assert second == {
        "connections": [
            {
                "id": 3,
                "protocol": "kafka",
                "listener": "kafka",
                "address": "10.0.0.1:3",
                "user": "anna",
                "library": "librdkafka 2.12.1",
                "encrypted": True,
                "idle_s": 1.5,
                "bytes_in": 1000,
                "bytes_out": 2000,
            }
        ],
        "next": None,
    }


async def test_writers_of_a_topic_are_listed(app, broker, autojump_clock):
    topic = await broker.topics.create(TopicName("public", "default", "orders"), 1)
    writers = [connection(n) for n in (1, 2, 3)]
    broker.connections.update(writers)
    for writer in writers[1:]:
        writer.written_topics.note(topic.resource)
    path = "/api/v1/topics/public/default/orders/writers"
    first = (await call(app, "GET", f"{path}?limit=1")).json
    second = (await call(app, "GET", f"{path}?after={first['next']}")).json
    missing = await call(app, "GET", path.replace("orders", "nothing"))
    broker.connections.clear()
    assert [writer["id"] for writer in first["connections"] + second["connections"]] == [2, 3]
    assert second["next"] is None
    assert (missing.status, missing.json["code"]) == (404, "topic_not_found")


async def test_a_bad_place_is_refused(app):
    answer = await call(app, "GET", "/api/v1/connections?after=x")
    assert (answer.status, answer.json["code"]) == (400, "bad_query")


async def test_stats_are_sums_over_topics_by_protocol(app, broker):
    for name in ("a", "b"):
        topic = await broker.topics.create(TopicName("public", "default", name), 2)
        broker.metrics.records_in("kafka", topic.name.full, 3, 100)
        broker.metrics.records_out("pulsar", topic.name.full, 1, 7)
    broker.metrics.number("braidlog_open_connections", "kafka").inc(5)
    stats = (await call(app, "GET", "/api/v1/stats")).json
    assert (stats["topics"], stats["partitions"]) == (2, 4)
    assert stats["disk_bytes"] > stats["disk_free_bytes"] > 0
    kafka, pulsar = stats["protocols"]["kafka"], stats["protocols"]["pulsar"]
    assert (kafka["records_in"], kafka["bytes_in"], kafka["connections"]) == (6, 200, 5)
    assert (pulsar["records_out"], pulsar["bytes_out"], pulsar["records_in"]) == (2, 14, 0)


async def test_http_connections_are_listed(app, broker, autojump_clock):
    broker.connections.add(connection(1))
    broker.served_connections.add(connection(2, library="curl/8"))
    listed = (await call(app, "GET", "/api/v1/connections")).json["connections"]
    broker.connections.clear()
    assert [row["library"] for row in listed] == ["librdkafka 2.12.1", "curl/8"]


async def test_a_broker_without_a_cluster_is_the_only_broker(app, broker):
    listing = (await call(app, "GET", "/api/v1/brokers")).json
    assert listing["is_cluster"] is False and listing["shards_without_owner"] == []
    (here,) = listing["brokers"]
    assert (here["node"], here["is_here"], here["changes_catalogue"]) == (1, True, True)


async def test_brokers_of_a_cluster_have_their_shards(app, broker):
    placement = ClusterPlacement(2, lambda name: 1, lambda shard: True)
    other = Owner(7, {"http": ("10.0.0.7", 8080)}, 3)
    placement.show({0: other, 3: other}, [other], epochs=dict.fromkeys(range(5), 1))
    placement.hold(1)
    placement.hold(2)
    broker.placement = placement
    listing = (await call(app, "GET", "/api/v1/brokers")).json
    assert listing["is_cluster"] is True and listing["shards_without_owner"] == [4]
    here, remote = listing["brokers"]
    assert (here["node"], here["shards"], here["changes_catalogue"]) == (2, [1, 2], False)
    assert (remote["node"], remote["shards"], remote["changes_catalogue"]) == (7, [0, 3], True)
    assert remote["addresses"] == {"http": "10.0.0.7:8080"}


async def test_stats_show_errors_certificates_and_durability(app, broker, tmp_path):
    for code, count in (("3", 2), ("56", 5)):
        broker.metrics.number("braidlog_errors", "kafka", code).inc(count)
    tls = tls_settings(tmp_path)
    tls.certificate_end_us = broker.now_us() + 3 * DAY_US
    unknown = tls_settings(tmp_path)
    unknown.certificate_end_us = None
    for name, settings in (("kafka", tls), ("iggy", unknown), ("http", None)):
        broker.listeners[name] = SimpleNamespace(name=name, tls=settings)
    stats = (await call(app, "GET", "/api/v1/stats")).json
    end_us = tls.certificate_end_us
    broker.listeners.clear()
    assert stats["durability"] == "synced"
    assert stats["refused"] == [
        {"protocol": "kafka", "error": "56", "requests": 5},
        {"protocol": "kafka", "error": "3", "requests": 2},
    ]
    assert stats["certificates"] == [
        {"listener": "iggy", "expires_us": None, "days_left": None},
        {"listener": "kafka", "expires_us": end_us, "days_left": 2},
    ]
