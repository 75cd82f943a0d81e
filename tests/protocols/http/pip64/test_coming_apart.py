"""Deleted objects are freed at once, without a garbage collection.

Collections leave out long-lived objects (`broker/runtime/garbage.py`), so a cycle among them would
stay for good.
"""

import gc
from collections import Counter
from contextlib import contextmanager

from braidlog.storage.metadata.names import TopicName
from tests.waiting import until

TOPICS = 10
OURS = "braidlog."
# The catalogue remembers its last changes, a limited number, with the topics' records.
REMEMBERED = {
    "braidlog.storage.metadata.catalogue_records.TopicMeta",
    "braidlog.storage.metadata.history.PastChange",
}


def living():
    """Return the number of the product's objects, by type."""
    return Counter(
        f"{type(item).__module__}.{type(item).__qualname__}"
        for item in gc.get_objects()
        if str(type(item).__module__).startswith(OURS)
    )


@contextmanager
def no_search():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:  # Otherwise every later test of the process would leave its garbage.
        gc.enable()


async def use(broker, ask, number):
    """Create, use and delete a topic with all its parts."""
    name = TopicName("public", "default", f"apart-{number}")
    base = f"/topics/{name.tenant}/{name.namespace}/{name.topic}"
    await broker.topics.create(name, 2)
    await ask("POST", base, {"messages": [{"value": "a", "key": f"{n}"} for n in range(10)]})
    for kind in ("Shared", "Exclusive", "Failover", "Key_Shared"):
        subscription = f"{base}/subscription/{kind}"
        wanted = {"initial_position": "Earliest", "subscription_type": kind}
        created = await ask("POST", subscription, wanted)
        assert created.status == 201, created.body
        consumer = f"{subscription}/consumers/{created.json['id']}"
        fetched = await ask("GET", f"{consumer}/messages?max_messages=3")
        ids = [message["messageId"] for message in fetched.json["messages"]]
        assert ids
        acknowledged = {"messageIds": ids[-1:], "type": "Individual"}
        answer = await ask("POST", f"{subscription}/cursor", acknowledged)
        assert answer.status == 200, answer.body
        if number % 2:
            assert (await ask("DELETE", consumer)).status == 204
    assert (await ask("GET", f"{base}/partitions/0/messages")).status == 200
    assert (await ask("DELETE", f"/api/v1/topics/public/default/{name.topic}")).status == 204


async def test_a_deleted_topic_is_freed_without_a_garbage_collection(app, broker, ask):
    for number in range(2):
        await use(broker, ask, number)
    await app.consumers.sweep(0.0)
    with no_search():
        before = living()
        for number in range(TOPICS):
            await use(broker, ask, number)
        await app.consumers.sweep(0.0)
        # Threads close and remove files.
        await until(lambda: not left_of_each(before), step_s=0.01)


def left_of_each(before):
    """Return the types that each topic leaves, not an object or two that the next topic reuses."""
    left = {name for name, count in (living() - before).items() if count >= TOPICS // 2}
    return left - REMEMBERED
