"""Create, grow, configure, purge and delete topics."""

import pytest

from tests.protocols.http.asgi import call

API = "/api/v1/topics/public/default/orders"
PAGE = "/ui/topics/public/default/orders"


async def test_a_topic_is_created(browser, app):
    page = await browser.get("/ui/topics")
    page = await browser.submit(page, "/ui/topics", name="orders", partitions="3")
    assert "The topic was created" in page.text and page.path.startswith(PAGE)
    assert len((await call(app, "GET", API)).json["partitions"]) == 3
    page = await browser.get("/ui/topics")
    again = await browser.submit(page, "/ui/topics", name="public/default/orders")
    assert again.status == 409
    assert (await browser.submit(page, "/ui/topics", name="a/b")).status == 400


async def test_a_setting_changes_and_returns_to_the_default(browser, app):
    await call(app, "PUT", API)
    page = await browser.get(f"{PAGE}/change")
    page = await browser.submit(page, "/change", setting="retention_ms", value="7d")
    assert "retention_ms = 604800000 (set)" in page.text
    assert (await call(app, "GET", API)).json["settings"] == {"retention_ms": 604_800_000}
    wrong = await browser.submit(page, "/change", setting="retention_ms", value="soon")
    assert wrong.status == 422 and "retention_ms" in wrong.text
    await browser.submit(page, "/change", setting="retention_ms", reset="on")
    assert (await call(app, "GET", API)).json["settings"] == {}


async def test_a_setting_of_a_single_subscription_is_shown_and_changed(browser, app):
    await call(app, "PUT", API)
    name = "subscription_dispatch_rate_messages:audit"
    await call(app, "PATCH", API, {"settings": {name: 10}})
    page = await browser.get(f"{PAGE}/change")
    assert f"{name} = 10 (set)" in page.text
    await browser.submit(page, "/change", setting=name, value="20")
    assert (await call(app, "GET", API)).json["settings"] == {name: 20}
    await browser.submit(page, "/change", setting=name, reset="on")
    assert (await call(app, "GET", API)).json["settings"] == {}


async def test_partitions_are_added(browser, app):
    await call(app, "PUT", API)
    page = await browser.get(f"{PAGE}/change")
    _, fields = next(form for form in page.forms if "partitions" in form[1])
    await browser.post(f"{PAGE}/change", fields)
    assert len((await call(app, "GET", API)).json["partitions"]) == 2


@pytest.mark.parametrize("action", ["purge", "delete"])
async def test_a_loss_of_messages_needs_the_topics_name(browser, app, action):
    await call(app, "PUT", API)
    await call(app, "POST", "/topics/public/default/orders", {"messages": [{"value": "a"}]})
    page = await browser.get(f"{PAGE}/change")
    refused = await browser.submit(page, f"/{action}", confirmed_name="order")
    assert refused.status == 400 and "to confirm" in refused.text
    assert (await call(app, "GET", API)).json["partitions"][0]["log_start_offset"] == 0
    page = await browser.submit(page, f"/{action}", confirmed_name="orders")
    assert page.status == 200
    answer = await call(app, "GET", API)
    if action == "delete":
        assert answer.status == 404
    else:
        assert answer.json["partitions"][0]["log_start_offset"] == 1


@pytest.mark.parametrize("app", [{"console": "read_only"}], indirect=True)
async def test_read_only_mode_has_no_forms_that_change(browser, app):
    await call(app, "PUT", API)
    for path in ("/ui/topics", f"{PAGE}/change", f"{PAGE}/produce", PAGE):
        page = await browser.get(path)
        assert page.status == 200
        assert not [fields for _, fields in page.forms if "form_token" in fields]
