"""Consumers over HTTP and Pulsar batches whose first message is already acknowledged."""

import pytest
from trio.testing import wait_all_tasks_blocked

from braidlog.storage.formats.pulsar.entry_runs import PULSAR
from tests.protocols.http.pip64.test_consumers import (
    ack,
    batch_entry,
    fetch,
)

KINDS = ["Shared", "Exclusive", "Failover", "Key_Shared"]
VALUES = [0, 1, 2, 3]
LOOKS_MAX = 100


@pytest.fixture
async def batched(broker, orders):
    """Return the topic, with a batch of four messages in a partition."""
    body = batch_entry([b"%d" % value for value in VALUES])
    orders.partitions[1].append(
        [body], PULSAR.inspect(body), body_format=PULSAR.format, append_us=1
    )
    await broker.durability.all_durable()
    return orders


async def fetch_values(ask, path):
    """Return values and ids of the messages, once a thread has read them."""
    for _ in range(LOOKS_MAX):
        if messages := await fetch(ask, path):
            return [int(message["value"]) for message in messages], [
                message["messageId"] for message in messages
            ]
        await wait_all_tasks_blocked(0.001)
    return [], []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_batch_with_another_protocols_commit_is_delivered_whole(
    broker,
    batched,
    ask,
    create,
    kind,
):
    broker.subscriptions.open(batched, b"billing").commit(1, 1)
    path = await create(subscription_type=kind)
    values, _ = await fetch_values(ask, path)
    assert values == VALUES


@pytest.mark.parametrize("kind", KINDS)
async def test_the_other_messages_of_a_partly_acknowledged_batch_are_delivered(
    broker,
    batched,
    ask,
    create,
    kind,
):
    subscription = broker.subscriptions.open(batched, b"billing")
    subscription.start(1, 0)
    subscription.ack(1, [(0, 1)], lazy=False)
    path = await create(subscription_type=kind)
    values, _ = await fetch_values(ask, path)
    assert values == VALUES[1:]


@pytest.mark.parametrize("kind", KINDS)
async def test_returned_messages_of_a_batch_are_redelivered(
    batched,
    ask,
    create,
    kind,
):
    path = await create(subscription_type=kind, ack_timeout_ms=0)
    _, ids = await fetch_values(ask, path)
    await ack(ask, ids[0])
    await ack(ask, ids[2], kind="Negative")
    values, _ = await fetch_values(ask, path)
    assert values == VALUES[1:]
