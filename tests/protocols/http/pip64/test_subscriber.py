"""Consumers over HTTP with events between a fetch and its answer, and the consumers' limits."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.protocols.http.limits import MIB, HttpLimits
from braidlog.storage.formats.pulsar.entry_runs import PULSAR
from tests.broker.delivery.dispatch_fakes import memory_cursor
from tests.broker.held_disk import HeldDisk
from tests.protocols.http.pip64.conftest import BASE, consumer_of
from tests.protocols.http.pip64.test_consumers import (
    CURSOR,
    EARLIEST,
    SUBSCRIPTION,
    PulsarLike,
    deliveries,
    fetch,
)
from tests.protocols.http.pip64.test_passed_over import encrypted_entry
from tests.waiting import until

PARTITION = f"{BASE}/partitions/1"


@pytest.fixture
async def path(orders, ask):
    """Return the message path of a consumer that begins with the first message."""
    created = await ask("POST", SUBSCRIPTION, EARLIEST)
    return f"{SUBSCRIPTION}/consumers/{created.json['id']}/messages"


@pytest.fixture
def produce(ask):
    async def produce(*values):
        body = {"messages": [{"value": str(value)} for value in values]}
        answer = await ask("POST", PARTITION, body)
        return [result["messageId"] for result in answer.json["messageIds"]]

    return produce


async def test_a_consumer_without_acknowledgements_has_a_limit(broker, produce, path, ask):
    broker.shared_states["http"] = HttpLimits(consumer_unacked=3)
    ids = await produce(*range(5))
    assert deliveries(await fetch(ask, path)) == [(0, 0), (1, 0), (2, 0)]
    answer = await ask("GET", path)
    assert (answer.status, answer.json["error_code"]) == (429, 42901)
    assert "at most 3" in answer.json["reason"]
    await ask("POST", CURSOR, {"type": "Individual", "messageIds": ids[:1]})
    assert deliveries(await fetch(ask, path)) == [(3, 0)]


async def test_a_consumer_has_a_limit_of_partitions(broker, orders, ask):
    broker.shared_states["http"] = HttpLimits(consumer_partitions=1)
    answer = await ask("POST", SUBSCRIPTION, {})
    assert (answer.status, answer.json["error_code"]) == (429, 42901)
    assert "at most 1 partitions" in answer.json["reason"]


async def test_an_unreadable_record_is_reported_with_the_id_to_skip_it(
    broker, orders, produce, path, ask
):
    """Earlier messages are delivered first."""
    await produce(0)
    body = encrypted_entry(b"1")
    partition = orders.partitions[1]
    partition.append([body], PULSAR.inspect(body), body_format=PULSAR.format, append_us=1)
    await produce(2)
    assert deliveries(await fetch(ask, path)) == [(0, 0)]
    answer = await ask("GET", f"{path}?timeout=0")
    assert (answer.status, answer.json["error_code"]) == (500, 50002)
    assert "acknowledge ledger 2, entry 1 to pass it" in answer.json["reason"]
    await ask("POST", CURSOR, {"type": "Individual", "messageIds": ["CAIQARgB"]})
    assert deliveries(await fetch(ask, path, "?timeout=1000")) == [(2, 0)]


async def test_records_removed_meanwhile_are_not_delivered(app, broker, orders, produce, path, ask):
    subscriber = consumer_of(app, path.split("/")[-2])
    fetch_ = await subscriber.begin(10, MIB)
    await produce(0, 1)
    await fetch_.came.wait()
    broker.retention.delete_below(orders.partitions[1], 2)
    assert await subscriber.give_out(10, MIB, broker.output.reserve_now(MIB)) == []
    subscriber.finish(fetch_)
    await produce(7)
    assert deliveries(await fetch(ask, path, "?timeout=1000")) == [(7, 0)]


async def test_records_acknowledged_meanwhile_are_not_delivered(app, broker, produce, path, ask):
    subscriber = consumer_of(app, path.split("/")[-2])
    fetch_ = await subscriber.begin(10, MIB)
    ids = await produce(0, 1, 2)
    await fetch_.came.wait()
    await subscriber.wait_until_full(fetch_)
    await ask("POST", CURSOR, {"type": "Cumulative", "messageIds": ids[1:2]})
    given_out = await subscriber.give_out(10, MIB, broker.output.reserve_now(MIB))
    assert [delivery.record.record.value for delivery in given_out] == [b"2"]


async def test_a_fetch_does_not_wait_for_later_messages(app, orders, produce, path, ask):
    """Otherwise the fetch would follow the end of the log for as long as other clients write."""
    subscriber = consumer_of(app, path.split("/")[-2])
    fetch_ = await subscriber.begin(1, MIB)
    await produce(0)
    await fetch_.came.wait()
    ends = {partition.index: partition.next_offset for partition in orders.partitions}
    await produce(1)
    assert subscriber.more_is_there()
    assert not subscriber.more_is_there(ends)
    subscriber.finish(fetch_)


async def test_a_seek_during_a_fetch_redelivers_everything(produce, path, ask, nursery):
    ids = await produce(0, 1)
    assert deliveries(await fetch(ask, path)) == [(0, 0), (1, 0)]
    messages = []

    async def wait():
        messages.extend(await fetch(ask, path, "?timeout=60000"))

    nursery.start_soon(wait)
    await wait_all_tasks_blocked(0.01)
    answer = await ask("POST", CURSOR, {"type": "Seek", "messageIds": ids[1:]})
    assert answer.status == 200, answer.body
    await until(lambda: messages)
    assert deliveries(messages) == [(1, 0)]


async def test_an_exclusive_subscription_replaces_a_silent_consumer(app, orders, ask, produce):
    await produce(5)
    kind = {"subscription_type": "Exclusive", **EARLIEST}
    first = (await ask("POST", SUBSCRIPTION, {"id": "first", **kind})).json["id"]
    path = f"{SUBSCRIPTION}/consumers/{first}/messages"
    assert deliveries(await fetch(ask, path)) == [(5, 0)]
    assert (await ask("POST", SUBSCRIPTION, {"id": "second", **kind})).status == 409
    consumer_of(app, "first").last_used -= 1000.0
    created = await ask("POST", SUBSCRIPTION, {"id": "second", **kind})
    assert created.status == 201, created.body
    assert deliveries(await fetch(ask, path.replace("first", "second"), "?timeout=1000")) == [
        (5, 0)
    ]


async def test_a_non_durable_reader_has_its_name_alone(broker, orders, ask):
    reader = PulsarLike("reader")
    dispatcher = broker.dispatchers.make(
        orders.partitions[1], b"billing", SubscriptionKind.EXCLUSIVE, memory_cursor(0)
    )
    broker.dispatchers.attach(dispatcher, reader)
    answer = await ask("POST", SUBSCRIPTION, {"subscription_type": "Exclusive"})
    assert (answer.status, answer.json["error_code"]) == (409, 40903)
    assert "keeps no position" in answer.json["reason"]


async def test_a_subscription_deleted_during_a_join_has_no_consumer(broker, orders, ask):
    """Otherwise its acknowledgements would have no effect."""
    broker._storage.files.adopt("/proc")  # Each file is synced separately.
    disk = HeldDisk([broker.data_dir])
    disk.may_sync.clear()
    broker.committer.mark(disk)
    await disk.is_syncing()
    name = SUBSCRIPTION.rpartition("/")[2].encode()

    def has_begun():
        subscription = broker.subscriptions.find(orders, name)
        return subscription is not None and subscription.position(0) is not None

    async def end():
        await until(has_begun)  # The subscription alone exists earlier, and would be created again.
        broker.subscriptions.delete(orders, name)
        disk.may_sync.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        created = await ask("POST", SUBSCRIPTION, EARLIEST)
    assert (created.status, created.json["error_code"]) == (404, 40404)
    assert (await ask("POST", SUBSCRIPTION, EARLIEST)).status == 201
    assert broker.subscriptions.find(orders, name).position(0) == 0
