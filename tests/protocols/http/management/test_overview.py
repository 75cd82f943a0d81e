"""The open connections and the totals of a broker."""

from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.asgi import call
from tests.protocols.http.opened import connection


async def test_connections_are_listed_by_id_in_pages(app, broker, autojump_clock):
    broker.connections |= {connection(n) for n in (3, 1, 2)} | {connection(4, is_open=False)}
    first = (await call(app, "GET", "/api/v1/connections?limit=2")).json
    assert [one["id"] for one in first["connections"]] == [1, 2]
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


async def test_a_bad_place_is_refused(app):
    answer = await call(app, "GET", "/api/v1/connections?after=x")
    assert (answer.status, answer.json["code"]) == (400, "bad_query")


async def test_stats_are_sums_over_topics_by_protocol(app, broker):
    for name in ("a", "b"):
        topic = await broker.topics.create(TopicName("public", "default", name), 2)
        broker.metrics.records_in("kafka", topic.name.full, 3, 100)
        broker.metrics.records_out("pulsar", topic.name.full, 1, 7)
    broker.metrics.number("braidlog_open_connections", "kafka").inc(5)
    found = (await call(app, "GET", "/api/v1/stats")).json
    assert (found["topics"], found["partitions"]) == (2, 4)
    assert found["disk_bytes"] > found["disk_free_bytes"] > 0
    kafka, pulsar = found["protocols"]["kafka"], found["protocols"]["pulsar"]
    assert (kafka["records_in"], kafka["bytes_in"], kafka["connections"]) == (6, 200, 5)
    assert (pulsar["records_out"], pulsar["bytes_out"], pulsar["records_in"]) == (2, 14, 0)
