import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.errors import TopicNotFound
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import Nothing
from tests.protocols.http.asgi import call
from tests.protocols.http.records import append_records

ORDERS = TopicName("public", "default", "orders")
PATH = "/api/v1/topics/public/default/orders"


async def test_a_created_topic_exists_for_all_listeners(app, broker):
    answer = await call(app, "PUT", PATH, {"partitions": 3})
    assert answer.status == 201
    assert answer.json["name"] == "public/default/orders"
    topic = broker.topics.get(ORDERS)
    assert len(topic.partitions) == 3
    assert [
        partition["partition_id"] for partition in answer.json["partitions"]
    ] == topic.meta.partition_ids


async def test_a_topic_is_on_disk_before_the_answer(app, broker):
    await call(app, "PUT", PATH)
    assert broker.durability.durable_ticket >= broker.topics.get(ORDERS).ticket


async def test_without_a_number_a_topic_gets_the_configured_partitions(app, broker):
    answer = await call(app, "PUT", PATH)
    assert len(answer.json["partitions"]) == broker.config.topics.num_partitions
    assert answer.json["partitioned"] is False


async def test_an_existing_topic_is_not_created_again(app, broker):
    await call(app, "PUT", PATH, {"partitions": 2})
    answer = await call(app, "PUT", PATH, {"partitions": 1})
    assert (answer.status, answer.json["code"]) == (409, "topic_exists")
    assert len(broker.topics.get(ORDERS).partitions) == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"partitions": 0}, "bad_body"),
        ({"partitions": 10_001}, "bad_body"),
        ({"partition": 1}, "bad_body"),
        ({"settings": {"segment_byts": 65536}}, "invalid_request"),
        ({"settings": {"durability": "maybe"}}, "invalid_request"),
        ({"settings": {"retention_ms": True}}, "invalid_request"),
    ],
)
async def test_an_invalid_topic_is_not_created(app, broker, body, code):
    answer = await call(app, "PUT", PATH, body)
    assert answer.json["code"] == code
    assert answer.status in (400, 422)
    assert broker.topics.find(ORDERS) is None


async def test_a_topic_without_namespace_is_not_created(app):
    answer = await call(app, "PUT", "/api/v1/topics/public/nowhere/orders")
    assert (answer.status, answer.json["code"]) == (404, "namespace_not_found")


async def test_settings_are_kept_shown_and_followed(app, broker):
    settings = {"durability": "written", "retention_ms": 60_000}
    answer = await call(app, "PUT", PATH, {"settings": settings})
    assert answer.json["settings"] == settings
    assert answer.json["durability"] == "written"
    assert broker.topics.get(ORDERS).partition(0).log.settings.retention_ms == 60_000


async def test_show_has_offsets_sizes_and_segments(app, broker):
    topic = await broker.topics.create(ORDERS, 1)
    append_records(broker, topic.partition(0), 5)
    await broker.durability.all_durable()
    (partition,) = (await call(app, "GET", PATH)).json["partitions"]
    assert partition["log_start_offset"] == 0
    assert partition["high_watermark"] == partition["log_end_offset"] == 5
    assert partition["size_bytes"] == topic.partition(0).log.size_bytes > 0
    (segment,) = partition["segments"]
    assert segment["base_offset"] == 0
    assert segment["size_bytes"] == partition["size_bytes"]
    assert segment["last_modified_us"] > 1_500_000_000_000_000


async def test_show_has_the_groups_and_their_backlogs(app, broker):
    topic = await broker.topics.create(ORDERS, 1)
    append_records(broker, topic.partition(0), 5)
    broker.subscriptions.open(topic, b"billing").commit(0, 2)
    (group,) = (await call(app, "GET", PATH)).json["groups"]
    assert (group["group"], group["backlog"]) == ("billing", 3)


async def test_a_missing_topic_is_not_found(app):
    answer = await call(app, "GET", PATH)
    assert (answer.status, answer.json["code"]) == (404, "topic_not_found")


async def test_growing_adds_partitions_and_never_removes_any(app, broker):
    await call(app, "PUT", PATH, {"partitions": 2})
    grown = await call(app, "PATCH", PATH, {"partitions": 5})
    assert (grown.status, len(grown.json["partitions"])) == (200, 5)
    same = await call(app, "PATCH", PATH, {"partitions": 5})
    assert same.status == 200
    fewer = await call(app, "PATCH", PATH, {"partitions": 4})
    assert (fewer.status, fewer.json["code"]) == (422, "invalid_request")
    assert len(broker.topics.get(ORDERS).partitions) == 5


async def test_a_setting_can_be_changed_and_reset(app, broker):
    await call(app, "PUT", PATH, {"settings": {"retention_ms": 60_000}})
    changed = await call(app, "PATCH", PATH, {"settings": {"durability": "written"}})
    assert changed.json["settings"] == {"retention_ms": 60_000, "durability": "written"}
    assert broker.topics.get(ORDERS).partition(0).log.settings.durability == "written"
    back = await call(app, "PATCH", PATH, {"settings": {"durability": None}})
    assert back.json["settings"] == {"retention_ms": 60_000}
    assert broker.topics.get(ORDERS).partition(0).log.settings.durability == "synced"


async def test_an_invalid_change_has_no_effect(app, broker):
    await call(app, "PUT", PATH)
    body = {"partitions": 3, "settings": {"durability": "maybe"}}
    answer = await call(app, "PATCH", PATH, body)
    assert answer.status == 422
    assert broker.topics.get(ORDERS).meta.settings == {}
    assert len(broker.topics.get(ORDERS).partitions) == 1


async def test_a_setting_may_have_a_unit_and_show_has_the_value_in_force(app):
    answer = await call(app, "PUT", PATH, {"settings": {"retention_bytes": "1GiB"}})
    assert answer.json["settings"] == {"retention_bytes": 1 << 30}
    in_force = answer.json["in_force"]
    assert (in_force["retention_bytes"], in_force["retention_ms"]) == (1 << 30, None)
    assert in_force["segment_bytes"] == 1 << 30
    free = await call(app, "PATCH", PATH, {"settings": {"retention_bytes": "none"}})
    assert (free.json["in_force"]["retention_bytes"], free.json["settings"]) == (
        None,
        {"retention_bytes": -1},
    )


async def test_a_smaller_limit_takes_effect_with_the_answer(app, broker):
    await call(app, "PUT", PATH, {"settings": {"segment_bytes": "64KiB"}})
    for _ in range(3):
        append_records(broker, broker.topics.get(ORDERS).partition(0), 5000)
    await broker.durability.all_durable()
    answer = await call(app, "PATCH", PATH, {"settings": {"retention_bytes": "64KiB"}})
    assert answer.json["partitions"][0]["log_start_offset"] > 0


async def test_a_deleted_topic_is_not_found(app, broker):
    await call(app, "PUT", PATH)
    answer = await call(app, "DELETE", PATH)
    assert (answer.status, answer.body) == (204, b"")
    with pytest.raises(TopicNotFound):
        broker.topics.get(ORDERS)
    assert (await call(app, "DELETE", PATH)).status == 404


async def test_topics_are_listed_by_name_in_pages(app, broker):
    for name in ("c", "a", "b"):
        await broker.topics.create(TopicName("public", "default", name), 1)
    first = (await call(app, "GET", "/api/v1/topics?limit=2")).json
    assert [topic["name"] for topic in first["topics"]] == ["public/default/a", "public/default/b"]
    second = (await call(app, "GET", f"/api/v1/topics?limit=2&after={first['next']}")).json
    assert [topic["name"] for topic in second["topics"]] == ["public/default/c"]
    assert second["next"] is None


async def test_topics_can_be_filtered_by_namespace(app, broker):
    await broker.namespaces.create("public", "other")
    await broker.topics.create(ORDERS, 1)
    await broker.topics.create(TopicName("public", "other", "x"), 1)
    page = (await call(app, "GET", "/api/v1/topics?namespace=public/other")).json
    assert [topic["name"] for topic in page["topics"]] == ["public/other/x"]


async def test_the_list_counts_readable_topics(app, broker):
    topic = await broker.topics.create(ORDERS, 2)
    append_records(broker, topic.partition(0), 5)
    append_records(broker, topic.partition(1), 2)
    await broker.durability.all_durable()
    (summary,) = (await call(app, "GET", "/api/v1/topics")).json["topics"]
    assert summary["records"] == 7
    assert summary["partitions"] == 2


async def test_a_partitions_name_is_no_topic(app):
    answer = await call(app, "PUT", f"{PATH}-partition-0")
    assert (answer.status, answer.json["code"]) == (412, "invalid_name")


async def test_a_dead_letter_topic_is_another_topic_where_the_client_may_produce(app, broker):
    await broker.topics.create(TopicName("public", "default", "dead"), 1)
    wanted = {"settings": {"dead_letter_topic": "dead", "deliveries_max": 3}}
    missing = {"settings": {"dead_letter_topic": "missing"}}
    answer = await call(app, "PUT", PATH, missing)
    assert (answer.status, answer.json["code"]) == (422, "invalid_request")
    assert broker.topics.find(ORDERS) is None
    answer = await call(app, "PUT", PATH, wanted)
    assert (answer.status, answer.json["settings"]) == (201, wanted["settings"])
    assert answer.json["in_force"] == answer.json["in_force"] | wanted["settings"]
    assert (await call(app, "PATCH", PATH, missing)).status == 422
    broker.access = Access(Nothing(Action.ALTER, Action.DESCRIBE, Action.CREATE))
    for body in (wanted, missing):
        assert (await call(app, "PATCH", PATH, body)).status == 403
