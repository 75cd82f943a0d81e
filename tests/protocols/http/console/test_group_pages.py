"""Pages of groups."""

import pytest

from braidlog.broker.positions.members import SubscriptionMember
from tests.protocols.http.asgi import call
from tests.protocols.http.opened import connection

TOPIC = "public/default/orders"
GROUP = f"/api/v1/groups/{TOPIC}/bill"
PAGE = f"/ui/groups/{TOPIC}/bill"


@pytest.fixture
async def orders(app):
    """Make a topic with five records in two partitions, and a group behind three of them."""
    await call(app, "PUT", f"/api/v1/topics/{TOPIC}", {"partitions": 2})
    for partition, count in ((0, 4), (1, 1)):
        body = {"messages": [{"value": "a"}] * count}
        await call(app, "POST", f"/topics/{TOPIC}/partitions/{partition}", body)
    await call(app, "PUT", f"{GROUP}/positions", {"positions": {"0": 2}})


async def positions(app):
    answer = await call(app, "GET", GROUP)
    return [place["position"] for place in answer.json["partitions"]]


async def test_the_list_shows_lag(browser, app, orders):
    page = await browser.get("/ui/groups")
    assert "bill public/default/orders 3 0." in page.text and "at the next look" in page.text
    assert PAGE in page.links
    assert "No such group" in (await browser.get("/ui/groups?contains=x")).text
    assert "bill" in (await browser.get(f"/ui/groups?contains=ill&topic={TOPIC}")).text


async def test_a_group_shows_the_library_of_a_member(browser, app, broker, orders):
    member = SubscriptionMember("kafka", "worker-1", "/10.0.0.1", (0, 1))
    broker.members.add_source(lambda on, name: [member])
    broker.connections.add(connection(1))
    page = await browser.get(PAGE)
    broker.connections.clear()
    assert "worker-1 kafka /10.0.0.1 librdkafka 2.12.1 0, 1" in page.text


async def test_a_group_shows_its_position_in_every_protocols_terms(browser, app, orders):
    cursor = await call(app, "GET", f"/topics/{TOPIC}/subscription/bill/cursor")
    first, _ = cursor.json["cursor"]["partitions"]
    page = await browser.get(PAGE)
    assert f"Partition 0 2 {first['read_position']} 1 4 2 0." in page.text
    assert "Partition 1 never set" in page.text
    assert "No client reads in this group now" in page.text


async def test_a_reset_has_a_preview_that_changes_nothing(browser, app, orders):
    page = await browser.get(f"{PAGE}/reset?to=earliest")
    assert "Partition 0 2 0 4" in page.text and "Partition 1 never set 0 1" in page.text
    assert await positions(app) == [2, None]


async def test_a_reset_moves_the_group(browser, app, orders):
    page = await browser.get(f"{PAGE}/reset?to=-1&partition=0")
    action, fields = next(form for form in page.forms if "positions" in form[1])
    assert fields["positions"] == "0:3"
    page = await browser.post(action, fields)
    assert "The group was moved" in page.text
    assert await positions(app) == [3, None]


async def test_a_reset_by_time_finds_the_offset(browser, app, orders):
    page = await browser.get(f"{PAGE}/reset?to=2999-01-01")
    assert "Partition 0 2 4 0" in page.text and "Partition 1 never set 1 0" in page.text


@pytest.mark.parametrize("text", ["", "0:x", "0:1,", "a", "0:-1"])
async def test_positions_that_are_not_of_a_preview_are_refused(browser, app, orders, text):
    page = await browser.get(f"{PAGE}/reset?to=earliest")
    action, fields = next(form for form in page.forms if "positions" in form[1])
    assert (await browser.post(action, fields | {"positions": text})).status == 400
    assert await positions(app) == [2, None]


@pytest.mark.parametrize("query", ["to=nowhere", "to=earliest&partition=7", "to=1&partition=x"])
async def test_a_bad_place_is_refused(browser, orders, query):
    assert (await browser.get(f"{PAGE}/reset?{query}")).status in (400, 404)


async def test_a_deletion_must_be_confirmed(browser, app, orders):
    page = await browser.get(PAGE)
    assert (await browser.submit(page, "/delete")).status == 400
    page = await browser.submit(page, "/delete", sure="on")
    assert page.path == "/ui/groups?done=deleted" and "Deleted." in page.text
    assert (await call(app, "GET", GROUP)).status == 404


async def test_a_group_can_be_deleted_on_every_topic(browser, app, orders):
    await call(app, "PUT", "/api/v1/topics/public/default/other")
    other = "/api/v1/groups/public/default/other/bill"
    await call(app, "PUT", f"{other}/positions", {"positions": {"0": 0}})
    page = await browser.get(PAGE)
    await browser.submit(page, "/delete", sure="on", everywhere="on")
    assert (await call(app, "GET", "/api/v1/groups")).json["groups"] == []


async def test_a_group_may_have_any_name(browser, app, orders):
    for name in ("%FF%00", "a%2Fb", "%3Cb%3E"):
        path = f"/api/v1/groups/{TOPIC}/{name}/positions"
        assert (await call(app, "PUT", path, {"positions": {"0": 1}})).status == 204
    for page in (await browser.get("/ui/groups"), await browser.get(f"/ui/topics/{TOPIC}")):
        links = [link for link in page.links if link.startswith(f"/ui/groups/{TOPIC}/")]
        assert len(links) == 4 and "b" not in page.elements
        for link in links:
            assert (await browser.get(link)).status == 200
    assert "\\xff\\u0000" in page.text


@pytest.mark.parametrize("app", [{"console": "read_only"}], indirect=True)
async def test_read_only_mode_hides_and_refuses_changes(browser, app, orders):
    page = await browser.get(PAGE)
    assert "read only" in page.text and page.forms == []
    page = await browser.get("/ui/sign-in")
    _, fields = page.form("/sign-in")
    answer = await browser.post(f"{PAGE}/delete", fields | {"sure": "on"})
    assert answer.status == 403 and "read-only mode" in answer.text
    assert await positions(app) == [2, None]


async def test_the_list_is_sorted_by_lag_in_pages(browser, app):
    for number in range(3):
        topic = f"public/default/t{number}"
        await call(app, "PUT", f"/api/v1/topics/{topic}")
        await call(app, "POST", f"/topics/{topic}", {"messages": [{}] * (number + 1)})
        path = f"/api/v1/groups/{topic}/billing/positions"
        await call(app, "PUT", path, {"positions": {"0": 0}})
    page = await browser.get("/ui/groups?sort=lag")
    assert page.text.index("t2 3") < page.text.index("t1 2") < page.text.index("t0 1")
    first = (await call(app, "GET", "/api/v1/groups?sort=lag&limit=2&ages=true")).json
    assert [group["backlog"] for group in first["groups"]] == [3, 2]
    assert first["groups"][0]["oldest_s"] is not None
    rest = (await call(app, "GET", f"/api/v1/groups?sort=lag&after={first['next']}")).json
    assert [group["topic"] for group in rest["groups"]] == ["public/default/t0"]
    assert rest["next"] is None
