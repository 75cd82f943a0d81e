"""HTTP clients of a broker with authentication."""

import base64

import pytest
import structlog
import trio

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.metadata.user_records import Grant
from tests.protocols.http.asgi import call
from tests.waiting import until

pytestmark = pytest.mark.parametrize(
    "broker", [{"access.required": "true", "access.superusers": "root"}], indirect=True, ids=[""]
)
TOPIC = "/api/v1/topics/public/default/orders"
ADMIN = "/admin/v2/persistent/public/default/"


def basic(text):
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


@pytest.fixture
async def root(broker):
    user, _ = await broker.users.create("root", "secret:one")
    return user


async def test_name_and_password_or_a_token_are_accepted(app, broker, root):
    assert (await call(app, "PUT", TOPIC, headers=basic("root:secret:one"))).status == 201
    token, _ = await broker.users.create_token(root, "ci", None)
    answer = await call(app, "GET", TOPIC, headers={"Authorization": f"Bearer {token}"})
    assert answer.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("root:wrong"),
        basic("nobody:secret"),
        basic("root"),
        {"Authorization": "Basic ???"},
        {"Authorization": "Basic /w=="},
        {"Authorization": "Bearer nothing"},
        {"Authorization": "Bearer a.b.c"},
        {"Authorization": "Digest x"},
        {"Authorization": ""},
    ],
)
async def test_other_credentials_are_refused(app, broker, root, headers):
    answer = await call(app, "PUT", TOPIC, headers=headers)
    assert (answer.status, answer.json["code"]) == (401, "not_authenticated")
    assert answer.headers["www-authenticate"].startswith("Basic")
    assert len(broker.topics) == 0


async def test_the_log_names_the_refused_user_and_the_protocol(app, root):
    with structlog.testing.capture_logs() as events:
        await call(app, "GET", TOPIC, headers=basic("root:wrong"))
    refused = [event for event in events if event["event"] == "login_refused"]
    assert [(event["protocol"], event["method"], event["user"]) for event in refused] == [
        ("http", "password", "root"),
    ]
    assert "wrong" not in str(refused)


async def test_the_audit_log_truncates_long_names(app, broker, root):
    await call(app, "GET", TOPIC, headers=basic("n" * 10_000 + ":wrong"))
    assert [len(name) for _, name, *_ in broker.audit._repeats] == [255]


async def test_health_needs_no_login(app):
    assert (await call(app, "GET", "/healthz")).status == 200


async def test_a_user_has_its_granted_permissions(app, broker):
    await broker.users.create("anna", "secret")
    anna = basic("anna:secret")
    assert (await call(app, "PUT", TOPIC, headers=anna)).status == 403
    await broker.permissions.grant(Grant("anna", "create", "public/default/orders"))
    assert (await call(app, "PUT", TOPIC, headers=anna)).status == 201
    assert (await call(app, "DELETE", TOPIC, headers=anna)).status == 403
    assert (await call(app, "GET", "/api/v1/users", headers=anna)).status == 403


async def test_lists_show_only_visible_objects(app, broker, root):
    for name in ("hidden", "orders", "other"):
        path = f"/api/v1/topics/public/default/{name}"
        await call(app, "PUT", path, headers=basic("root:secret:one"))
        topic = broker.topics.get(TopicName("public", "default", name))
        for group in (b"billing", b"shipping"):
            broker.subscriptions.open(topic, group).open()
    await broker.users.create("anna", "secret")
    anna = basic("anna:secret")

    async def shown(path, key, rows=None):
        answer = await call(app, "GET", path, headers=anna)
        assert answer.status == 200
        return [row[key] for row in answer.json[rows or path.split("/")[3].partition("?")[0]]]

    assert await shown("/api/v1/topics", "name") == []
    assert await shown("/api/v1/groups", "group") == []
    await broker.permissions.grant(Grant("anna", "produce", "public/default/orders"))
    await broker.permissions.grant(Grant("anna", "consume", "public/default/other@billing"))
    assert await shown("/api/v1/topics", "name") == [
        "public/default/orders",
        "public/default/other",
    ]
    assert await shown("/api/v1/groups", "group") == ["billing", "shipping", "billing"]
    assert (
        await shown("/api/v1/groups?topic=public/default/orders", "topic")
        == ["public/default/orders"] * 2
    )
    for name in ("hidden", "orders"):
        path = f"/topics/public/default/{name}/subscription/billing"
        await call(app, "POST", path, {"id": "c"}, headers=basic("root:secret:one"))
    assert await shown("/api/v1/http-consumers", "topic", "consumers") == ["public/default/orders"]
    refusals = [
        await call(app, "GET", f"/api/v1/groups?topic=public/default/{name}", headers=anna)
        for name in ("hidden", "none")
    ]
    assert [answer.status for answer in refusals] == [403, 403]
    assert (await call(app, "GET", "/api/v1/topics")).status == 401


async def test_only_runs_of_the_clients_topics_are_reported_and_shown(app, broker, root):
    await broker.users.create("anna", "secret")
    await broker.permissions.grant(Grant("anna", "consume", "public/default/orders"))

    async def report(user, *topics):
        ranges = [{"topic": topic, "partition": 0, "start": 0, "end": 1} for topic in topics]
        run = {"target": "/lake", "group": "g", "began_us": 0, "seconds": 1, "ranges": ranges}
        run |= {"rows": 1, "files": 1, "bytes": 1}
        answer = await call(app, "POST", "/api/v1/exports", run, headers=basic(user))
        return answer.status

    assert await report("root:secret:one", "orders", "hidden") == 204
    assert await report("root:secret:one", "hidden") == 204
    assert await report("anna:secret", "orders", "hidden") == 403
    assert await report("anna:secret", "orders") == 204
    answer = await call(app, "GET", "/api/v1/exports", headers=basic("anna:secret"))
    topics = [[part["topic"] for part in run["ranges"]] for run in answer.json["runs"]]
    assert topics == [["orders"], ["orders"]]


async def test_a_topic_shows_only_visible_groups(app, broker, root):
    non_persistent = f"{ADMIN.replace('/persistent', '/non-persistent')}news"
    created = await call(
        app, "PUT", f"{ADMIN}orders/partitions", body=1, headers=basic("root:secret:one")
    )
    assert created.status == 204
    for path in (f"{ADMIN}hidden", non_persistent):
        created = await call(app, "PUT", path, headers=basic("root:secret:one"))
        assert created.status == 204
    orders = TopicName("public", "default", "orders")
    news = broker.non_persistent.get(TopicName("public", "default", "news"), None, make=False)
    for group in (b"billing", b"shipping"):
        broker.subscriptions.open(broker.topics.get(orders), group).open()
        news.subscribe(group, SubscriptionKind.SHARED)
    await broker.users.create("anna", "secret")
    for topic in ("orders", "news"):
        grant = Grant("anna", "consume", f"public/default/{topic}@billing")
        await broker.permissions.grant(grant)

    async def shown(path):
        answer = await call(app, "GET", path, headers=basic("anna:secret"))
        assert answer.status == 200, path
        return answer.json

    for path in (f"{ADMIN}orders-partition-0", non_persistent):
        assert await shown(f"{path}/subscriptions") == ["billing"]
        assert list((await shown(f"{path}/stats"))["subscriptions"]) == ["billing"]
        assert list((await shown(f"{path}/internalStats"))["cursors"]) == ["billing"]
    stats = await shown(f"{ADMIN}orders/partitioned-stats?perPartition=true")
    assert list(stats["subscriptions"]) == ["billing"]
    assert [list(partition["subscriptions"]) for partition in stats["partitions"].values()] == [
        ["billing"]
    ]
    groups = (await shown("/api/v1/topics/public/default/orders"))["groups"]
    assert [group["group"] for group in groups] == ["billing"]
    assert {partition["topic"] for partition in (await shown("/api/v1/log"))["partitions"]} == {
        orders.full
    }


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_an_event_stream_ends_with_its_permission_or_token(app, broker, root, how):
    await call(app, "PUT", TOPIC, headers=basic("root:secret:one"))
    anna, _ = await broker.users.create("anna", None)
    now_us = broker.now_us()
    token, _ = await broker.users.create_token(anna, "ci", now_us + 60_000_000)
    right = Grant("anna", "admin", "public/default/orders")
    await broker.permissions.grant(right)
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    path = "/topics/public/default/orders/partitions/0/messages?position=earliest"
    answers = []

    async def follow():
        answers.append(await call(app, "GET", path, headers=headers, leave=trio.Event()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await until(lambda: len(broker.waiters))
        if how == "revoked":
            await broker.permissions.revoke(right)
        else:
            broker.now_us = lambda: now_us + 60_000_000
        sent = await call(
            app,
            "POST",
            "/topics/public/default/orders",
            {"messages": [{"value": "secret"}]},
            headers=basic("root:secret:one"),
        )
        assert sent.status == 200
    (answer,) = answers
    reason = b"may not consume" if how == "revoked" else b"the token has expired"
    assert b"event: error" in answer.body and reason in answer.body
    assert b"secret" not in answer.body


async def test_a_certificate_is_accepted_without_other_credentials(app, broker, root):
    certificate = {"subject": ((("commonName", "anna"),),)}

    async def certified(scope, receive, send):
        await app({**scope, "braidlog.certificate": certificate}, receive, send)

    refused = await call(certified, "PUT", TOPIC)
    assert (refused.status, refused.json["code"]) == (403, "not_authorized")
    await broker.permissions.grant(Grant("anna", "admin", "public/default/orders"))
    assert (await call(certified, "PUT", TOPIC)).status == 201
    assert (await call(certified, "GET", TOPIC, headers=basic("root:wrong"))).status == 401
    assert (await call(certified, "GET", TOPIC, headers=basic("root:secret:one"))).status == 200
