"""The list of consumers over HTTP."""

import pytest

from tests.protocols.http.asgi import call


@pytest.fixture
async def consumers(app, autojump_clock):
    """Create consumers of two topics."""
    for topic in ("a", "b"):
        await call(app, "PUT", f"/api/v1/topics/public/default/{topic}")
        for identity in ("c2", "c1"):
            path = f"/topics/public/default/{topic}/subscription/g"
            await call(app, "POST", path, {"id": identity, "name": identity})


async def listed(app, query=""):
    page = (await call(app, "GET", f"/api/v1/http-consumers{query}")).json
    return [(each["topic"][-1], each["id"]) for each in page["consumers"]], page["next"]


async def test_consumers_are_listed_in_pages(app, consumers):
    first, after = await listed(app, "?limit=3")
    assert first == [("a", "c1"), ("a", "c2"), ("b", "c1")]
    assert await listed(app, f"?after={after}") == ([("b", "c2")], None)
    assert await listed(app, "?topic=b") == ([("b", "c1"), ("b", "c2")], None)
    refused = await call(app, "GET", "/api/v1/http-consumers?topic=a/b")
    assert (refused.status, refused.json["code"]) == (412, "invalid_name")


async def test_a_consumer_shows_what_it_holds(app, consumers):
    await call(app, "POST", "/topics/public/default/a", {"messages": [{"value": "x"}] * 3})
    path = "/topics/public/default/a/subscription/g/consumer/c1/messages?timeout=100"
    assert len((await call(app, "GET", path)).json["messages"]) == 3
    (first, _) = (await call(app, "GET", "/api/v1/http-consumers?topic=a")).json["consumers"]
    assert first.pop("idle_s") >= 0
    assert first == {
        "topic": "public/default/a",
        "group": "g",
        "id": "c1",
        "name": "c1",
        "type": "Shared",
        "unacked": 3,
    }
