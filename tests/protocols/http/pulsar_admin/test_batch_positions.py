"""Message ids of the admin API that name a message inside a batch, or the message behind it."""

import pytest

from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX, PULSAR
from tests.protocols.http.pulsar_admin.test_admin import ORDERS, TOPIC, produce
from tests.protocols.pulsar.talk import entry

SUBSCRIPTION = f"{TOPIC}/subscription/s"
STARTS = [
    (0, False, 1, 1),
    (0, True, 2, 1),
    (2, False, 3, 1),
    (3, True, 5, 5),
    (-1, True, 5, 5),
    (None, False, 1, 1),
]
# Apache acknowledges the whole batch, whatever the index.
ENDS = [
    (None, False, 5),
    (None, True, 1),
    (0, False, 2),
    (0, True, 1),
    (2, True, 3),
    (3, False, 5),
    (-1, False, 5),
]


async def store_a_batch(ask, broker):
    """Store a message, a batch of four and a message."""
    await ask("PUT", TOPIC, status=204)
    await produce(ask, "orders", "0")
    sent = entry(count=4)
    body = ENTRY_PREFIX.pack(len(sent), 0, 4) + sent
    broker.topics.partition(ORDERS, 0).append(
        [body], PULSAR.inspect(body), body_format=PULSAR.format, append_us=1
    )
    await produce(ask, "orders", "5")


def place(batch_index, is_excluded):
    return {"ledgerId": 1, "entryId": 1, "batchIndex": batch_index, "excluded": is_excluded}


def standing(broker):
    subscription = broker.subscriptions.get(broker.topics.get(ORDERS), b"s")
    return subscription.standing(0)[:2]


@pytest.mark.parametrize(
    ("batch_index", "is_excluded", "position", "floor"),
    STARTS,
)
async def test_a_reset_into_a_batch(ask, broker, batch_index, is_excluded, position, floor):
    """From the floor to the position, the entry's messages count as acknowledged."""
    await store_a_batch(ask, broker)
    await ask("PUT", SUBSCRIPTION, "earliest", 204)
    await ask("POST", f"{SUBSCRIPTION}/resetcursor", place(batch_index, is_excluded), 204)
    assert standing(broker) == (position, floor)


@pytest.mark.parametrize(("batch_index", "is_excluded", "position", "floor"), STARTS)
async def test_a_subscription_begins_in_a_batch(
    ask, broker, batch_index, is_excluded, position, floor
):
    """Apache begins at the batch's first message, and drops index and exclusion."""
    await store_a_batch(ask, broker)
    await ask("PUT", SUBSCRIPTION, place(batch_index, is_excluded), 204)
    assert standing(broker) == (position, floor)


@pytest.mark.parametrize(("batch_index", "is_excluded", "position"), ENDS)
async def test_messages_expire_up_to_a_message_of_a_batch(
    ask, broker, batch_index, is_excluded, position
):
    await store_a_batch(ask, broker)
    await ask("PUT", SUBSCRIPTION, "earliest", 204)
    await ask("POST", f"{SUBSCRIPTION}/expireMessages", place(batch_index, is_excluded), 204)
    assert standing(broker)[0] == position


@pytest.mark.parametrize(("batch_index", "is_excluded", "position", "_"), STARTS)
async def test_a_backlog_is_counted_from_a_message_of_a_batch(
    ask, broker, batch_index, is_excluded, position, _
):
    await store_a_batch(ask, broker)
    await ask("PUT", SUBSCRIPTION, "earliest", 204)
    wanted = place(batch_index, is_excluded)
    shown = await ask("POST", f"{SUBSCRIPTION}/analyzeBacklog", wanted, 200)
    assert shown.json["messages"] == 6 - position
