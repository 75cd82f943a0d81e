"""Pages of messages: search, a single message, download."""

import base64
import json

import pytest

from braidlog.storage.metadata.names import TopicName
from tests.broker.records import append
from tests.protocols.http.asgi import call

TOPIC = "public/default/orders"
PAGE = f"/ui/topics/{TOPIC}/messages"
IMPORT = f"/api/v1/topics/{TOPIC}/messages"


async def store(app, *messages, partitions=1):
    await call(app, "PUT", f"/api/v1/topics/{TOPIC}", {"partitions": partitions})
    answer = await call(app, "POST", IMPORT, {"messages": list(messages)})
    assert answer.status == 200, answer.body


async def test_contents_are_shown_by_kind(browser, app):
    binary = base64.b64encode(b"\xff\x00").decode()
    await store(
        app,
        {"partition": 0, "value": None},
        {"partition": 0, "value": "", "key": ""},
        {"partition": 0, "value": '{"a":[1]}', "key": "k"},
        {"partition": 0, "value": binary, "encoding": "base64"},
        {"partition": 0, "value": "plain", "headers": [{"name": "h", "value": "v"}]},
    )
    page = await browser.get(PAGE)
    assert "null null" in page.text and "empty empty" in page.text
    assert '{ "a": [ 1 ] }' in page.text
    assert "00000000 ff 00 .." in page.text
    assert "plain h = v" in page.text
    page = await browser.get(f"{PAGE}?as=base64")
    assert binary in page.text


async def test_messages_show_the_protocol_that_stored_them(browser, app, broker):
    await store(app, {"partition": 0, "value": "of-http"})
    topic = broker.topics.get(TopicName("public", "default", "orders"))
    await append(broker, topic.partition(0), "kafka_batches", [b"of-kafka"])
    page = await browser.get(PAGE)
    assert "HTTP null of-http" in page.text and "Kafka null of-kafka" in page.text
    page = await browser.get(f"{PAGE}/0/0")
    assert "Stored by HTTP format plain" in page.text


async def test_a_value_of_a_schema_is_shown_as_json(browser, app):
    await call(app, "PUT", f"/api/v1/topics/{TOPIC}")
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    body = {
        "schema_type": "AVRO",
        "value_schema": {"type": "AVRO", "schema": schema},
        "messages": [{"value": {"id": 7}}, {"value": {"id": 8}}],
    }
    assert (await call(app, "POST", f"/topics/{TOPIC}", body)).status == 200
    page = await browser.get(f"{PAGE}?where=value.id+==+8")
    assert '{ "id": 8 }' in page.text and '"id": 7' not in page.text
    page = await browser.get(f"{PAGE}/0/1")
    assert "value of the schema" in page.text and "Schema version 0" in page.text
    assert "00000000 10" in page.text


async def test_all_partitions_are_shown_by_time(browser, app):
    messages = [
        {"partition": number % 2, "value": f"m{number}", "publish_us": 1_000_000 * number}
        for number in range(6)
    ]
    await store(app, *messages, partitions=2)
    page = await browser.get(f"{PAGE}?from=earliest&rows=4")
    words = [word for word in page.text.split() if word in {"m0", "m1", "m2", "m3", "m4", "m5"}]
    assert words == ["m0", "m1", "m2", "m3"]
    page = await browser.get(next(link for link in page.links if "at=2.2" in link))
    assert "m4" in page.text and "m3" not in page.text and "reached the end" in page.text


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", "m0"),
        ("latest", "m2"),
        ("1", "m1"),
        ("-1", "m2"),
        ("1970-01-01T00:00:01", "m1"),
    ],
)
async def test_a_search_begins_at_a_place(browser, app, start, first):
    messages = [{"value": f"m{i}", "publish_us": 1_000_000 * i} for i in range(3)]
    await store(app, *messages)
    page = await browser.get(f"{PAGE}?from={start}&rows=1")
    words = [word for word in page.text.split() if word in {"m0", "m1", "m2"}]
    assert words == [first]


async def test_a_search_has_a_budget_and_goes_on(browser, app):
    messages = [{"value": f"m{number}"} for number in range(2100)] + [{"value": "Needle"}]
    await store(app, *messages)
    page = await browser.get(f"{PAGE}?from=earliest&contains=needle")
    assert "0 matches in 2,000 messages; the search is at 95 %" in page.text
    page = await browser.get(next(link for link in page.links if "at=2000" in link))
    assert "1 matches in 101 messages" in page.text and "Needle" in page.text


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("where=key+%3D%3D", "the expression"),
        ("as=xml", "'as' must be one of"),
        ("partition=x", "all or a number"),
        ("partition=7", "no partition 7"),
        ("at=1.2", "'at' names 2 partitions"),
        ("at=x", "must be a list"),
        ("from=yesterday", "the place yesterday"),
        ("rows=x", "expected a number"),
    ],
)
async def test_a_bad_address_is_refused(browser, app, query, problem):
    await store(app, {"value": "a"})
    page = await browser.get(f"{PAGE}?{query}")
    assert page.status in (400, 404) and problem in page.text


async def test_contents_cannot_become_markup(browser, app):
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202egnp.exe\"'--><b>"
    headers = [{"name": hostile, "value": hostile}]
    await store(app, {"value": hostile, "key": hostile, "headers": headers})
    plain = await browser.get(f"/ui/topics/{TOPIC}")
    for path in (PAGE, f"{PAGE}/0/0", f"{PAGE}?contains=%3Cscript%3E&from=earliest"):
        page = await browser.get(path)
        assert page.elements.count("script") == plain.elements.count("script")
        assert "img" not in page.elements and "b" not in page.elements
        assert "\u202e" not in page.body.decode() and "\\u202egnp" in page.text


async def test_a_long_value_is_cut_and_its_page_shows_more(browser, app):
    await store(app, {"value": "x" * 2000 + "tail"})
    assert "xtail" not in (await browser.get(PAGE)).text
    page = await browser.get(f"{PAGE}/0/0")
    assert "xtail" in page.text and "2,004 bytes" in page.text


async def test_a_message_that_is_not_there_is_not_found(browser, app):
    await store(app, {"value": "a"})
    for place in ("0/1", "1/0", "0/x", "0/-1"):
        assert (await browser.get(f"{PAGE}/{place}")).status in (404, 416), place


async def test_a_download_has_every_byte_as_json_lines(browser, app):
    binary = base64.b64encode(b"\xff\x00").decode()
    header = {"name": "n", "value": "/w==", "encoding": "base64", "kind": "uint8"}
    await store(app, {"value": binary, "encoding": "base64", "headers": [header]}, {"value": "b"})
    answer = await browser.get(f"/ui/topics/{TOPIC}/download?from=earliest")
    assert answer.headers["content-disposition"] == (
        'attachment; filename="public-default-orders.ndjson"'
    )
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [line["value"] for line in lines] == [binary, "b"]
    assert lines[0]["topic"] == TOPIC and lines[0]["headers"] == [header]
    assert (await call(app, "POST", IMPORT, {"messages": lines})).status == 200


async def test_looking_moves_no_position(browser, app):
    await store(app, {"value": "a"})
    group = f"/api/v1/groups/{TOPIC}/g"
    await call(app, "PUT", f"{group}/positions", {"positions": {"0": 0}})
    for path in (PAGE, f"{PAGE}/0/0", f"/ui/topics/{TOPIC}/download?from=earliest"):
        assert (await browser.get(path)).status == 200
    assert (await call(app, "GET", group)).json["partitions"][0]["position"] == 0
    assert len((await call(app, "GET", "/api/v1/groups")).json["groups"]) == 1


@pytest.mark.parametrize(
    "broker", [{"access.required": "true", "access.superusers": "root"}], indirect=True, ids=[""]
)
async def test_contents_need_the_right_to_consume(browser, app, broker):
    for name in ("root", "anna"):
        await broker.users.create(name, "pw")
    basic = {"Authorization": "Basic " + base64.b64encode(b"root:pw").decode()}
    await call(app, "PUT", f"/api/v1/topics/{TOPIC}", headers=basic)
    grant = {"subject": "anna", "action": "describe", "resource": TOPIC}
    assert (await call(app, "POST", "/api/v1/permissions", grant, headers=basic)).status == 201
    page = await browser.get("/ui/sign-in")
    await browser.submit(page, "/sign-in", name="anna", password="pw")
    assert (await browser.get(f"/ui/topics/{TOPIC}")).status == 200
    await call(app, "POST", f"/topics/{TOPIC}", {"messages": [{"value": "s"}]}, headers=basic)
    for path in (PAGE, f"{PAGE}/0/0", f"/ui/topics/{TOPIC}/download"):
        assert (await browser.get(path)).status == 403
