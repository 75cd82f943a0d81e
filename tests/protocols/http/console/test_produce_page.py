"""Messages stored by the console."""

import base64

import pytest

from tests.protocols.http.asgi import call

TOPIC = "public/default/orders"
PAGE = f"/ui/topics/{TOPIC}/produce"
IMPORT = f"/api/v1/topics/{TOPIC}/messages"


async def stored(app, partition=0):
    path = f"/topics/{TOPIC}/partitions/{partition}/messages?exact=true&timeout=0"
    return (await call(app, "GET", path)).json["messages"]


@pytest.fixture
async def orders(app):
    await call(app, "PUT", f"/api/v1/topics/{TOPIC}", {"partitions": 2})


async def test_a_message_is_stored_and_the_page_leads_to_the_message(orders, browser, app):
    page = await browser.get(PAGE)
    page = await browser.submit(
        page,
        "/produce",
        value="line\r\nnext",
        key="k",
        key_kind="text",
        properties="a=1\r\nb=x=y\r\n",
        partition="1",
        repeat="2",
        event_ms="5",
        value_kind="text",
    )
    assert "Stored as partition 1, offset 0" in page.text
    first, second = await stored(app, 1)
    assert first["value"] == second["value"] == "line\nnext"
    assert first["key"] == "k" and first["event_us"] == 5000
    assert [(h["name"], h["value"]) for h in first["headers"]] == [("a", "1"), ("b", "x=y")]
    assert "line" in (await browser.get(f"/ui/topics/{TOPIC}/messages/1/0")).text


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [("null", "x", None), ("text", "", ""), ("base64", "YQ ==", "a"), ("JSON", "[1, 2]", "[1,2]")],
)
async def test_a_value_has_a_kind(orders, browser, app, kind, text, value):
    page = await browser.get(PAGE)
    fields = {"value": text, "value_kind": kind, "key_kind": "null", "partition": "0"}
    assert (await browser.submit(page, "/produce", **fields)).status == 200
    (message,) = await stored(app)
    assert message["value"] == value and "key" not in message


@pytest.mark.parametrize(
    "fields",
    [
        {"value_kind": "JSON", "value": "{"},
        {"value_kind": "base64", "value": "?"},
        {"properties": "no sign"},
        {"repeat": "101"},
        {"repeat": "0"},
        {"partition": "7"},
        {"partition": "-1"},
    ],
)
async def test_a_mistake_stores_nothing(orders, browser, app, fields):
    page = await browser.get(PAGE)
    page = await browser.submit(page, "/produce", **({"value_kind": "text"} | fields))
    assert page.status in (400, 404, 422)
    assert await stored(app) == [] == await stored(app, 1)


async def test_a_message_is_resent_by_the_form_or_as_an_exact_copy(orders, browser, app):
    headers = [
        {"name": "src", "value": "web"},
        {"name": "n", "value": base64.b64encode(b"\xff").decode(), "encoding": "base64"},
        {"name": "n", "value": "1", "kind": "uint8"},
    ]
    binary = base64.b64encode(b"\xff\x00").decode()
    message = {"value": binary, "encoding": "base64", "key": "k", "partition": 1}
    message |= {"headers": headers, "event_us": 7, "publish_us": 9}
    await call(app, "POST", IMPORT, {"messages": [message]})
    page = await browser.get(f"/ui/topics/{TOPIC}/messages/1/0")
    link = next(link for link in page.links if "resend=" in link)
    page = await browser.get(link)
    assert "2 headers of the message are not text" in page.text
    assert page.body.count(binary.encode()) == 1
    assert "stored" in (await browser.submit(page, "/copy")).path
    first, second = await stored(app, 1)
    for field in ("value", "encoding", "key", "headers", "event_us"):
        assert first[field] == second[field]
    assert "publish_us" not in second
