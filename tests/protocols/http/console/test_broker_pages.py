"""Pages of the broker, of users, tokens and permissions."""

import re

import pytest

from tests.protocols.http.asgi import call
from tests.protocols.http.opened import connection


async def test_the_broker_shows_its_totals(browser, app):
    await call(app, "PUT", "/api/v1/topics/public/default/orders")
    await call(app, "POST", "/topics/public/default/orders", {"messages": [{"value": "a"}]})
    page = await browser.get("/ui/broker")
    assert "Topics 1" in page.text and "http 0 1" in page.text


async def test_connections_show_library_and_traffic(browser, broker):
    broker.connections.add(connection(1, library="<b>lib\u202e"))
    page = await browser.get("/ui/broker")
    broker.connections.clear()
    assert "10.0.0.1:1 kafka anna <b>lib\\u202e yes 1000 B 2.0 KiB" in page.text
    assert "b" not in page.elements


async def test_a_user_is_created_and_deactivated(browser, app):
    page = await browser.get("/ui/access")
    page = await browser.submit(
        page, "/users", user="a/<b>", password="pw", roles="r1, r2", action="create"
    )
    assert "a/<b> r1, r2 yes" in page.text and "b" not in page.elements
    page = await browser.submit(page, "/users")  # The first such form deactivates.
    (user,) = (await call(app, "GET", "/api/v1/users")).json["users"]
    assert user["active"] is False and user["roles"] == ["r1", "r2"]
    _, fields = page.form("/users")
    assert (await browser.post("/ui/access/users", fields | {"action": "x"})).status == 400


async def test_a_token_is_shown_once(browser, app):
    await call(app, "PUT", "/api/v1/users/anna", {})
    page = await browser.get("/ui/access")
    page = await browser.submit(page, "/tokens", user="anna", token="ci", action="create")
    text = re.search(r"shown only now: (\S+)", page.text)[1]
    page = await browser.get("/ui/access")
    assert "ci" in page.text and text not in page.text
    await browser.submit(page, "/tokens", user="anna", token="ci", action="revoke")
    assert (await call(app, "GET", "/api/v1/users/anna")).json["tokens"] == []


async def test_a_permission_is_granted_and_revoked(browser, app):
    await call(app, "PUT", "/api/v1/users/anna", {})
    page = await browser.get("/ui/access")
    fields = {"subject": "anna", "action": "consume", "resource": "public/default/orders"}
    page = await browser.submit(page, "/permissions", **fields)
    assert (await call(app, "GET", "/api/v1/permissions")).json["permissions"] == [fields]
    await browser.submit(page, "/permissions")  # The first such form revokes.
    assert (await call(app, "GET", "/api/v1/permissions")).json["permissions"] == []


@pytest.mark.parametrize("app", [{"console": "read_only"}], indirect=True)
async def test_read_only_mode_changes_no_user(browser, app):
    await call(app, "PUT", "/api/v1/users/anna", {})
    page = await browser.get("/ui/access")
    assert not [fields for _, fields in page.forms if "form_token" in fields]
