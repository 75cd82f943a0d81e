"""Policies of a topic, which Pulsar's admin API sets, for producers and consumers of PIP-64."""

import pytest
from trio.testing import wait_all_tasks_blocked

from braidlog.protocols.http.limits import SERVED_BYTES_MAX
from tests.protocols.http.pip64.conftest import BASE, ORDERS
from tests.waiting import until

SUBSCRIPTION = f"{BASE}/subscription/billing"
AVRO = '{"type":"record","name":"Item","fields":[{"name":"count","type":"int"}]}'


@pytest.fixture
def limit(broker, orders):
    async def limit(**settings):
        await broker.topics.alter_settings(ORDERS, settings)

    return limit


async def test_the_answer_waits_for_the_publish_rate(orders, ask, limit, nursery):
    await limit(publish_rate_messages=1)
    answered = []

    async def produce():
        body = {"messages": [{"value": "x", "partition": 0}] * 50}
        answered.append((await ask("POST", BASE, body)).status)

    nursery.start_soon(produce)
    await until(lambda: orders.partitions[0].high_watermark == 50)
    await wait_all_tasks_blocked(0.05)
    assert not answered
    nursery.cancel_scope.cancel()


async def test_a_paused_producer_leaves_its_turn_to_others(
    orders, ask, limit, nursery, autojump_clock
):
    await limit(publish_rate_messages=1)
    large = {"value": "x" * SERVED_BYTES_MAX, "partition": 0}
    body = {"messages": [large, *[{"value": "x", "partition": 0}] * 49]}
    answered = []

    async def produce():
        answered.append(await ask("POST", BASE, body))

    for stored in (50, 100):
        nursery.start_soon(produce)
        await until(lambda stored=stored: orders.partitions[0].high_watermark == stored)
    assert not answered
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("settings", "message", "status", "text"),
    [
        ({"message_bytes_max": 3}, {}, 413, "Exceed maximum message size"),
        ({"encryption_required": True}, {}, 412, "Messages must be encrypted"),
        (
            {"delayed_delivery_max_ms": 1000},
            {"deliverAfterMs": 5000},
            412,
            "Exceeds max allowed delivery delay of 1000 milliseconds",
        ),
    ],
    ids=["size", "encryption", "delay"],
)
async def test_a_forbidden_message_is_refused(orders, ask, limit, settings, message, status, text):
    await limit(**settings)
    answer = await ask("POST", BASE, {"messages": [{"value": "hello", "partition": 0, **message}]})
    assert (answer.status, answer.json["reason"]) == (status, text)
    assert orders.partitions[0].high_watermark == 0


async def test_a_producer_adds_no_schema_where_that_is_off(orders, ask, limit):
    await limit(schema_auto_update=False)
    body = {"schema_type": "AVRO", "value_schema": AVRO, "messages": [{"value": {"count": 1}}]}
    answer = await ask("POST", BASE, body)
    text = "Schema not found and schema auto updating is disabled."
    assert (answer.status, answer.json["reason"]) == (409, text)
    assert not orders.meta.schemas


async def test_only_the_enabled_kinds_of_subscription_are_served(ask, limit):
    await limit(subscription_types="Failover,Exclusive")
    answer = await ask("POST", SUBSCRIPTION, {"subscription_type": "Shared"})
    assert answer.status == 412 and "doesn't support Shared sub type" in answer.json["reason"]
    answer = await ask("POST", SUBSCRIPTION, {"subscription_type": "Failover"})
    assert answer.status == 201


async def test_a_consumer_creates_no_subscription_where_that_is_off(broker, orders, ask, limit):
    await limit(auto_subscription_creation=False)
    answer = await ask("POST", SUBSCRIPTION, {})
    assert (answer.status, answer.json["reason"]) == (404, "Subscription does not exist")
    assert broker.subscriptions.find(orders, b"billing") is None
    broker.subscriptions.open(orders, b"billing").start(0, 0)
    assert (await ask("POST", SUBSCRIPTION, {})).status == 201


async def test_a_consumer_subscribes_as_often_as_the_rate_allows(ask, limit):
    await limit(subscribe_rate=1, subscribe_rate_period_s=3600)
    named = {"name": "w1"}
    created = await ask("POST", SUBSCRIPTION, named)
    await ask("DELETE", f"{SUBSCRIPTION}/consumer/{created.json['id']}")
    answer = await ask("POST", SUBSCRIPTION, named)
    text = "Subscribe limited by subscribe rate limit per consumer."
    assert (answer.status, answer.json["reason"]) == (412, text)


async def test_consumers_of_a_subscription_are_limited(ask, limit):
    await limit(subscription_consumers_max=1)
    assert (await ask("POST", SUBSCRIPTION, {"name": "w1"})).status == 201
    answer = await ask("POST", SUBSCRIPTION, {"name": "w2"})
    assert answer.status == 409
    assert answer.json["reason"] == "Subscription reached max consumers limit"


async def test_unacknowledged_messages_of_a_consumer_are_limited(ask, limit):
    await limit(unacked_consumer_max=3)
    created = await ask("POST", SUBSCRIPTION, {"initial_position": "Earliest"})
    await ask("POST", BASE, {"messages": [{"value": "x", "partition": 0}] * 10})
    path = f"{SUBSCRIPTION}/consumer/{created.json['id']}/messages?timeout=0"
    assert len((await ask("GET", path)).json["messages"]) == 3
    assert not (await ask("GET", path)).json["messages"]
