"""The first page of the console."""

import re
from types import SimpleNamespace

import pytest

from braidlog.broker.server.tls import DAY_US
from tests.broker.server.certificates import tls_settings
from tests.protocols.http.asgi import call


async def test_the_overview_shows_totals_lags_and_charts(browser, app):
    await call(app, "PUT", "/api/v1/topics/public/default/orders")
    group = "/api/v1/groups/public/default/orders/bill%3Cb%3E/positions"
    await call(app, "PUT", group, {"positions": {"0": 0}})
    await app.history.take()
    messages = {"messages": [{"value": "a"}] * 7}
    await call(app, "POST", "/topics/public/default/orders", messages)
    page = await browser.get("/ui/overview")
    assert "The first figures come a minute after the start." in page.text
    assert "bill<b> public/default/orders 7" in page.text and "b" not in page.elements
    assert "Ready for work yes" in page.text or "Ready for work no: started" in page.text
    await app.history.take()
    page = await browser.get("/ui")
    assert page.elements.count("svg") == 8 and "style" not in page.attributes
    assert "Records in, per second" in page.text
    rate = re.search(r"http 0 ([0-9.]+) ", page.text)
    assert rate and 0 < float(rate[1]) <= 7  # The time between the samples is at least a second.


@pytest.mark.parametrize(
    "broker", [{"access.required": "true", "access.superusers": "root"}], indirect=True, ids=[""]
)
async def test_a_user_without_rights_on_the_broker_gets_the_topics(browser, broker):
    anna, _ = await broker.users.create("anna", "secret")
    token, _ = await broker.users.create_token(anna, "ci", None)
    page = await browser.get("/ui", Authorization=f"Bearer {token}")
    assert page.status == 200 and "No topic" in page.text
    assert (await browser.get("/ui/overview", Authorization=f"Bearer {token}")).status == 403


@pytest.mark.parametrize("path", ["/ui/overview", "/ui/broker", "/ui/topics?sort=size"])
async def test_a_page_is_also_json(browser, path):
    page = await browser.get(path, Accept="application/json")
    assert page.headers["content-type"] == "application/json" and page.body[:1] == b"{"


async def test_the_overview_shows_errors_and_the_next_end_of_a_certificate(
    browser, broker, tmp_path
):
    page = await browser.get("/ui/overview")
    assert "Default durability synced" in page.text
    assert "certificate" not in page.text and "refused" not in page.text
    broker.metrics.number("braidlog_errors", "kafka", "56").inc(1234)
    for name, days in (("kafka", 3), ("pulsar", 400)):
        tls = tls_settings(tmp_path)
        tls.certificate_end_us = broker.now_us() + days * DAY_US + DAY_US // 2
        broker.listeners[name] = SimpleNamespace(tls=tls, advertised_to=lambda local: local)
    for path in ("/ui/overview", "/ui/broker"):
        page = await browser.get(path)
        assert "kafka 56 1,234" in page.text and ", in 3 d" in page.text, path
        assert ", in 400 d" not in page.text, path
    broker.listeners["kafka"].tls.certificate_end_us = broker.now_us() - 1
    page = await browser.get("/ui/overview")
    broker.listeners.clear()
    assert ", ended" in page.text


async def test_pages_about_things_that_may_be_absent_count_no_error(browser, app):
    await call(app, "PUT", "/api/v1/topics/public/default/orders")
    assert (await browser.get("/ui/topics/public/default/orders")).status == 200
    assert (await call(app, "GET", "/api/v1/stats")).json["refused"] == []
    assert (await browser.get("/ui/topics/public/default/nothing")).status == 404
    (refused,) = (await call(app, "GET", "/api/v1/stats")).json["refused"]
    assert (refused["error"], refused["requests"]) == ("topic_not_found", 1)
