"""Pages of topics."""

import json

from braidlog.broker.access.rights import Resource
from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.asgi import call
from tests.protocols.http.opened import connection

TOPIC = "/api/v1/topics/public/default/orders"


async def test_the_list_shows_a_page_of_topics_and_leads_to_the_next(browser, app):
    for number in range(101):
        await call(app, "PUT", f"/api/v1/topics/public/default/t{number:03d}")
    page = await browser.get("/ui/topics")
    assert "public/default/t099" in page.text and "public/default/t100" not in page.text
    following = next(link for link in page.links if "after=" in link)
    page = await browser.get(following)
    assert "public/default/t100" in page.text and "public/default/t099" not in page.text


async def test_the_list_can_be_filtered_by_a_part_of_the_name(browser, app):
    for name in ("orders", "order-lines", "people"):
        await call(app, "PUT", f"/api/v1/topics/public/default/{name}")
    page = await browser.get("/ui/topics?contains=order")
    assert "order-lines" in page.text and "people" not in page.text
    assert "No topic" in (await browser.get("/ui/topics?contains=<b>")).text


async def test_a_topic_shows_bounds_and_marks_changed_settings(browser, app):
    await call(app, "PUT", TOPIC, {"partitions": 3, "settings": {"retention_ms": "7d"}})
    await call(app, "POST", "/topics/public/default/orders/partitions/2", {"messages": [{}, {}]})
    page = await browser.get("/ui/topics/public/default/orders")
    assert "Partition 2 0 2 2" in page.text
    assert "retention_ms 604800000 set for this topic" in page.text
    assert "durability synced default" in page.text


async def test_partitions_come_in_pages(browser, app):
    await call(app, "PUT", TOPIC, {"partitions": 101})
    page = await browser.get("/ui/topics/public/default/orders")
    assert "Partition 99" in page.text and "Partition 100" not in page.text
    page = await browser.get(next(link for link in page.links if "from=" in link))
    assert "Partition 100" in page.text and "Partition 99" not in page.text


async def test_a_topic_shows_open_producers_and_groups(browser, app, broker):
    await call(app, "PUT", TOPIC)
    positions = {"positions": {"0": 0}}
    await call(app, "PUT", "/api/v1/groups/public/default/orders/bill%3Cb%3E/positions", positions)
    page = await browser.get("/ui/topics/public/default/orders")
    assert "bill<b>" in page.text and "b" not in page.elements
    assert "No client has an open producer" in page.text


async def test_a_topic_shows_its_writers(browser, app, broker):
    await call(app, "PUT", TOPIC)
    page = await browser.get("/ui/topics/public/default/orders")
    assert "No open connection has written to this topic." in page.text
    writer = connection(1, library="<b>kafka</b>")
    writer.written_topics.note(Resource.of_topic(TopicName("public", "default", "orders")))
    broker.connections |= {writer, connection(2)}
    page = await browser.get("/ui/topics/public/default/orders")
    broker.connections.clear()
    assert "10.0.0.1:1" in page.text and "10.0.0.1:2" not in page.text
    assert "<b>kafka</b>" in page.text and "b" not in page.elements
    assert "braidlog connections --writes-to public/default/orders" in page.text


async def test_a_topic_shows_each_version_of_its_schema(browser, app):
    await call(app, "PUT", TOPIC)
    path = "/ui/topics/public/default/orders"
    assert "The topic has no schema." in (await browser.get(path)).text
    fields = [{"name": "id", "type": "int", "doc": "<b>\u202e"}]
    for name in ("a", "b"):
        fields.append({"name": name, "type": "int", "default": 0})
        schema = {"type": "record", "name": "R", "fields": fields}
        body = {"type": "AVRO", "schema": json.dumps(schema), "properties": {"<i>": "<i>"}}
        answer = await call(app, "POST", "/admin/v2/schemas/public/default/orders/schema", body)
        assert answer.status == 200, answer.body
    page = await browser.get(path)
    assert "Type AVRO Version 1 <i> <i> {" in page.text and '"name": "b"' in page.text
    assert "<b>\\u202e" in page.text and not {"b", "i"} & set(page.elements)
    earlier = next(link for link in page.links if "schema=0" in link)
    page = await browser.get(earlier.removesuffix("#schema"))
    assert "Version 0" in page.text and '"name": "b"' not in page.text
    assert "no schema of version 7" in (await browser.get(f"{path}?schema=7")).text
    assert (await browser.get(f"{path}?schema=x")).status == 400


async def test_the_list_is_sorted_by_size_in_pages(browser, app):
    for number in range(101):
        await call(app, "PUT", f"/api/v1/topics/public/default/t{number:03d}")
    await call(app, "POST", "/topics/public/default/t050", {"messages": [{}, {}]})
    await call(app, "POST", "/topics/public/default/t060", {"messages": [{}]})
    page = await browser.get("/ui/topics?sort=records&contains=t0")
    assert page.text.index("t050") < page.text.index("t060") < page.text.index("t000")
    page = await browser.get("/ui/topics?sort=records")
    assert "t100" not in page.text
    page = await browser.get(next(link for link in page.links if "after=100" in link))
    assert "t100" in page.text and "t050" not in page.text
    assert (await browser.get("/ui/topics?sort=x")).status == 400


async def test_the_list_shows_groups_schema_and_rate(browser, app):
    await call(app, "PUT", TOPIC)
    group = "/api/v1/groups/public/default/orders/billing/positions"
    await call(app, "PUT", group, {"positions": {"0": 0}})
    page = await browser.get("/ui/topics")
    assert "B at the next look 1 none synced" in page.text
