"""Consumers over HTTP after a seek: a consumer stays a consumer, between two fetches too."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.protocols.http.pip64.test_consumers import (
    CURSOR,
    SUBSCRIPTION,
    deliveries,
    fetch,
    produce,
)
from tests.waiting import until

__all__ = ["produce"]  # A fixture.


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "Key_Shared"])
@pytest.mark.parametrize("way", ["http", "commit"])
async def test_a_consumer_stays_attached_after_a_seek(
    broker, orders, ask, produce, create, kind, way
):
    await produce(range(3))
    path = await create(subscription_type=kind)
    assert deliveries(await fetch(ask, path, "?timeout=1000")) == [(0, 0), (1, 0), (2, 0)]
    if way == "http":
        answer = await ask("POST", CURSOR, {"type": "Seek", "position": "earliest"})
        cursor = answer.json["cursor"]
    else:  # A commit of a Kafka or Iggy client.
        for partition in (0, 1):
            broker.subscriptions.get(orders, b"billing").seek(partition, 0)
        cursor = (await ask("GET", CURSOR)).json["cursor"]
    assert (cursor["type"], [consumer["name"] for consumer in cursor["consumers"]]) == (
        kind,
        ["w1"],
    )
    other = "Shared" if kind != "Shared" else "Exclusive"
    answer = await ask("POST", SUBSCRIPTION, {"name": "w2", "subscription_type": other})
    assert (answer.status, answer.json["error_code"]) == (409, 40903)
    assert deliveries(await fetch(ask, path, "?timeout=1000")) == [(0, 0), (1, 0), (2, 0)]


async def test_a_consumer_that_ends_during_a_seek_stays_ended(broker, orders, ask, create, nursery):
    path = await create()
    dispatcher = broker.dispatchers.find(orders.partition(1), b"billing")
    resolved = trio.Event()

    async def position():
        await resolved.wait()
        return 0

    nursery.start_soon(dispatcher.reset, position)
    await wait_all_tasks_blocked()
    answer = await ask("DELETE", path.removesuffix("/messages"))
    assert answer.status == 204
    resolved.set()
    await wait_all_tasks_blocked()
    assert dispatcher.consumers == []


async def test_a_fetch_during_a_seek_continues_after_the_seek(
    broker, orders, ask, produce, create, nursery
):
    await produce(range(2))
    path = await create()
    dispatcher = broker.dispatchers.find(orders.partition(1), b"billing")
    resolved = trio.Event()

    async def position():
        await resolved.wait()
        return 1

    nursery.start_soon(dispatcher.reset, position)
    await wait_all_tasks_blocked()
    answers = []

    async def wait():
        answers.extend(deliveries(await fetch(ask, path, "?timeout=60000")))

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    resolved.set()
    await until(lambda: answers)
    assert answers == [(1, 0)]
    assert [consumer.name for consumer in dispatcher.consumers] == ["w1"]
