"""No route bypasses the access check: each is refused with its error, and has no effect."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.protocols.http.app import make_routes
from braidlog.protocols.http.options import RestOptions
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import Nothing
from tests.protocols.http.asgi import call

ORDERS = TopicName("public", "default", "orders")
FOR_ANYBODY = {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/openapi.json"), ("GET", "/docs")}


def routes(broker):
    """Yield (method, path) of every route of the application."""
    for route in make_routes(broker, RestOptions(), broker.stopping):
        for method in sorted(route.methods - {"HEAD"}):
            yield method, route.path


def filled(path):
    for part, value in [
        ("tenant", "public"),
        ("namespace", "default"),
        ("topic", "orders"),
        ("group", "g"),
        ("subscription", "g"),
        ("consumer", "c"),
        ("partition", "0"),
        ("user", "anna"),
        ("role", "anna"),
        ("token", "ci"),
        ("rest:path", "a/b/c"),
        ("name", "orders"),
        ("cluster", "standalone"),
        ("broker", "h:8080"),
        ("domain", "rack"),
        ("time", "0"),
        ("number", "1"),
        ("seconds", "1"),
        ("ledger", "1"),
        ("entry", "0"),
        ("version", "0"),
        ("key", "k"),
        ("value", "v"),
        ("bundle", "0x00000000_0xffffffff"),
        ("of_all_topics", "g"),
        ("of_subscription", "g"),
    ]:
        path = path.replace(f"{{{part}}}", value)
    assert "{" not in path, path
    return path


async def test_no_route_answers_a_refused_client(app, broker):
    await call(app, "PUT", "/api/v1/topics/public/default/orders")
    await broker.durability.all_durable()  # So an earlier lazy write is not counted below.
    ticket = broker.durability.ticket
    all_routes = list(routes(broker))
    assert len(all_routes) > len(FOR_ANYBODY)
    for method, path in all_routes:
        rules = Nothing()
        broker.access = Access(rules)
        answer = await call(app, method, filled(path))
        if (method, path) in FOR_ANYBODY:
            assert not rules.asked, path
        else:
            assert answer.status == 403 and answer.json["reason"], (method, path)
            assert len(rules.actions) == 1
    assert broker.durability.ticket == ticket  # Nothing was written.


@pytest.mark.parametrize(
    ("method", "path", "action", "resource"),
    [
        ("GET", "/metrics", Action.DESCRIBE, "cluster"),
        ("GET", "/api/v1/topics", Action.DESCRIBE, "cluster"),
        ("PUT", "/api/v1/topics/a/b/c", Action.CREATE, "topic a/b/c"),
        ("DELETE", "/api/v1/topics/a/b/c", Action.DELETE, "topic a/b/c"),
        ("GET", "/api/v1/groups/a/b/c/g", Action.DESCRIBE, "group 'g' a/b/c"),
    ],
)
async def test_a_route_checks_the_resource_of_its_path(app, broker, method, path, action, resource):
    rules = Nothing()
    broker.access = Access(rules)
    await call(app, method, path)
    assert [(checked, str(about)) for _, checked, about in rules.asked] == [(action, resource)]


async def test_a_refusal_does_not_reveal_the_topics_existence(app, broker):
    await call(app, "PUT", "/api/v1/topics/public/default/orders")
    all_routes = [route for route in routes(broker) if route not in FOR_ANYBODY]
    broker.access = Access(Nothing())

    async def refusals():
        answers = [await call(app, method, filled(path)) for method, path in all_routes]
        return [(answer.status, answer.json["reason"]) for answer in answers]

    present = await refusals()
    await broker.topics.delete(ORDERS)
    assert await refusals() == present


async def test_a_topic_is_created_for_its_client(app, makers):
    for name in ("one", "two"):
        await call(app, "PUT", f"/api/v1/topics/public/default/{name}")
    assert [name for name, _ in makers] == ["anonymous"] * 2
    assert all(at.startswith("http ") for _, at in makers)


@pytest.mark.parametrize("app", [{"auto_create_topics": True}], indirect=True)
async def test_a_produce_permission_does_not_create_topics(app, broker, makers):
    message = {"messages": [{"value": "x"}]}
    broker.access = Access(Nothing(Action.PRODUCE))
    answer = await call(app, "POST", "/topics/public/default/new", message)
    assert (answer.status, answer.json["code"], makers) == (403, "not_authorized", [])
    broker.access = Access(Nothing(Action.PRODUCE, Action.CREATE))
    answer = await call(app, "POST", "/topics/public/default/new", message)
    assert (answer.status, len(makers)) == (200, 1)
