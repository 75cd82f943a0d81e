"""Pages of the broker, of users, tokens and permissions."""

import re

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.cluster.placement import ClusterPlacement, Owner
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import OnlyTopic
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


async def test_brokers_of_a_cluster_show_their_shards(browser, broker):
    placement = ClusterPlacement(2, lambda name: 1, lambda shard: True)
    other = Owner(7, {"http": ("10.0.0.7", 8080)}, 3)
    placement.show({0: other, 3: other, 4: other}, [other], epochs=dict.fromkeys(range(8), 1))
    placement.hold(1)
    broker.placement = placement
    page = await browser.get("/ui/broker")
    assert "2 this broker" in page.text and "1: 1" in page.text
    assert "7 http 10.0.0.7:8080 changes it 3: 0, 3-4" in page.text
    assert "Shards without an owner: 2, 5-7" in page.text


SUBSCRIPTION = "/topics/public/default/orders/subscription/a%2F%3Cb%3E"


async def test_a_consumer_over_http_is_shown_and_ended(browser, app, broker):
    await call(app, "PUT", "/api/v1/topics/public/default/orders")
    topic = broker.topics.get(TopicName("public", "default", "orders"))
    broker.subscriptions.open(topic, b"a/<b>").open()  # Kafka's groups may have any name.
    await call(app, "POST", SUBSCRIPTION, {"id": "c1", "name": "reader"})
    page = await browser.get("/ui/consumers")
    assert "reader c1 public/default/orders a/<b> Shared" in page.text
    assert "b" not in page.elements
    assert "subscription/a%2F%3Cb%3E/consumer/c1" in page.text
    await browser.submit(page, "/consumers")
    assert (await call(app, "GET", "/api/v1/http-consumers")).json["consumers"] == []
    assert "None." in (await browser.get("/ui/consumers")).text


async def test_export_jobs_show_their_ranges(browser, app):
    ranges = [
        {"topic": "public/default/orders", "partition": n, "start": 0, "end": 10} for n in range(7)
    ]
    run = {"target": "/lake/<i>", "group": "g", "began_us": 0, "seconds": 1.5, "ranges": ranges}
    run |= {"rows": 70, "files": 7, "bytes": 2048, "lost": 3}
    assert (await call(app, "POST", "/api/v1/exports", run)).status == 204
    page = await browser.get("/ui/exports")
    assert "1970-01-01 00:00:00.000 /lake/<i> g" in page.text and "and 2 more" in page.text
    assert "70 7 2.0 KiB 1.5" in page.text and "3 trimmed before" in page.text
    assert "i" not in page.elements


async def test_about_shows_changed_settings(browser):
    page = await browser.get("/ui/about")
    assert "topics.consumers_max" in page.text and "braidlog config show" in page.text


async def test_about_shows_described_clusters(browser, app):
    fields = {"serviceUrl": "http://far:8080"}
    assert (await call(app, "PUT", "/admin/v2/clusters/far", fields)).status == 200
    page = await browser.get("/ui/about")
    assert "pulsar_clusters.far" in page.text and "http://far:8080" in page.text


async def test_about_shows_no_settings_without_the_right(browser, broker):
    broker.access = Access(OnlyTopic(TopicName("public", "default", "orders")))
    page = await browser.get("/ui/about")
    assert page.status == 200 and "consumers_max" not in page.text
    assert "for users with the right admin" in page.text
