"""Answers to: why does this reader not see that record?"""

import pytest

from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.asgi import call

TOPIC = "public/default/orders"
PAGE = f"/ui/topics/{TOPIC}/explain"


async def produce(app, *messages, topic=TOPIC):
    answer = await call(app, "POST", f"/topics/{topic}", {"messages": list(messages)})
    assert answer.status == 200, answer.body


async def answer_to(browser, query, page=PAGE):
    visited = await browser.get(f"{page}?{query}")
    assert visited.status == 200, visited.text
    return visited.text.partition("Explain ")[2].partition("Messages from this offset")[0]


@pytest.fixture
async def topic(app):
    await call(app, "PUT", f"/api/v1/topics/{TOPIC}")
    await produce(app, {"value": "a"}, {"value": None}, {"value": ""})


async def test_a_record_that_nothing_hides_is_seen(browser, topic):
    text = await answer_to(browser, "offset=0&reader=kafka")
    assert "seen Nothing hides the record: a Kafka reader receives it at offset 0." in text


async def test_an_offset_above_the_end_has_no_record(browser, topic):
    assert "the next record gets 3" in await answer_to(browser, "offset=3")


async def test_a_purged_record_is_gone(browser, app, topic):
    await call(app, "DELETE", f"/admin/v2/persistent/{TOPIC}/truncate")
    text = await answer_to(browser, "offset=1")
    assert "the log starts at 3" in text and "OFFSET_OUT_OF_RANGE" in text


@pytest.mark.parametrize(
    ("reader", "offset", "is_hidden"),
    [
        ("iggy", 1, True),
        ("iggy", 2, False),
        ("iggy-classic", 1, True),
        ("iggy-classic", 2, True),
        ("kafka", 1, False),
        ("pulsar", 2, False),
    ],
)
async def test_a_value_that_iggy_cannot_carry_is_left_out(
    browser, topic, reader, offset, is_hidden
):
    text = await answer_to(browser, f"offset={offset}&reader={reader}")
    assert ("uncarried_records = leave_out" in text) is is_hidden
    assert ("Nothing hides" in text) is not is_hidden


async def test_a_marked_value_is_no_obstacle(browser, app, topic):
    changes = {"settings": {"uncarried_records": "mark"}}
    await call(app, "PATCH", f"/api/v1/topics/{TOPIC}", changes)
    text = await answer_to(browser, "offset=1&reader=iggy")
    assert "gets a zero byte" in text and "Nothing hides" in text


async def test_a_group_that_has_acknowledged_the_record_gets_it_no_more(browser, broker, topic):
    subscription = broker.subscriptions.open(
        broker.topics.get(TopicName("public", "default", "orders")), b"billing"
    )
    subscription.commit(0, 1)
    subscription.ack(0, [(2, 3)], lazy=False)
    assert "its next offset is 1" in await answer_to(browser, "offset=0&group=billing")
    assert "on its own, above its position 1" in await answer_to(browser, "offset=2&group=billing")
    text = await answer_to(browser, "offset=1&group=billing")
    assert "No client reads in group billing now." in text and "hidden" not in text
    assert "has no position on this topic" in await answer_to(browser, "offset=1&group=other")


async def test_records_before_the_record_come_first(browser, broker, topic):
    subscription = broker.subscriptions.open(
        broker.topics.get(TopicName("public", "default", "orders")), b"billing"
    )
    subscription.commit(0, 1)
    text = await answer_to(browser, "offset=2&group=billing")
    assert "has 1 offsets before the record: its next is 1" in text and "wait for" in text


async def test_a_delayed_record_waits_for_shared_subscriptions(browser, app, topic):
    await produce(app, {"value": "later", "deliverAfterMs": 3_600_000})
    text = await answer_to(browser, "offset=3&reader=pulsar")
    assert "delayed for 36" in text or "delayed for 35" in text
    assert "not yet" in text
    assert "Nothing hides" in await answer_to(browser, "offset=3&reader=kafka")


async def test_names_that_a_protocol_cannot_use_hide_the_topic(browser, app):
    await call(app, "PUT", "/admin/v2/tenants/acme", {"allowedClusters": ["standalone"]})
    for name in ("public/default/a%20b", "acme/shop/orders"):
        namespace = "/".join(name.split("/")[:2])
        await call(app, "PUT", f"/admin/v2/namespaces/{namespace}")
        assert (await call(app, "PUT", f"/api/v1/topics/{name}")).status == 201
        await produce(app, {"value": "a"}, topic=name)
    text = await answer_to(browser, "offset=0", "/ui/topics/public/default/a%20b/explain")
    assert "Kafka listeners do not list the topic" in text
    page = "/ui/topics/acme/shop/orders/explain"
    assert "in acme/shop" in await answer_to(browser, "offset=0&reader=kafka", page)
    assert "The tenant is acme." in await answer_to(browser, "offset=0&reader=iggy", page)


async def test_a_missing_right_matters_where_rights_are_checked(browser, app, topic):
    await call(app, "PUT", "/api/v1/users/anna", {})
    text = await answer_to(browser, "offset=0&user=anna")
    assert "anna has no right to consume" in text
    assert "The broker does not check rights." in text and "Nothing hides" in text
    right = {"subject": "anna", "action": "consume", "resource": TOPIC}
    await call(app, "POST", "/api/v1/permissions", right)
    assert "no right" not in await answer_to(browser, "offset=0&user=anna")


async def test_bad_questions_are_refused(browser, topic):
    for query in ("reader=x", "offset=x", "partition=x"):
        assert (await browser.get(f"{PAGE}?{query}")).status == 400
    assert (await browser.get(f"{PAGE}?partition=7")).status == 404
    page = await browser.get(f"{PAGE}?offset=0&group=%3Cb%3E%E2%80%AE")
    assert "<b>\\u202e" in page.text and "b" not in page.elements
