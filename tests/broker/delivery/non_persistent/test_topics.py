"""Non-persistent topics appear with their users and are removed a while after them; partition
counts stay.
"""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker import errors
from braidlog.broker.closing import STEPS_TOGETHER
from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.delivery.key_slots import KeyRing
from braidlog.broker.delivery.non_persistent import topics as live_topics
from braidlog.broker.delivery.non_persistent.topics import FORGOTTEN_AFTER_S, LiveTopics
from braidlog.storage.metadata.names import TopicName
from tests.broker.delivery.dispatch_fakes import FakeConsumer
from tests.broker.pieces import counting

KEY_SHARED = SubscriptionKind.KEY_SHARED
NAME = TopicName("public", "default", "t")


@pytest.fixture
def live(broker):
    return broker.live


@pytest.mark.slow
async def test_a_topic_without_users_is_removed_after_a_while(autojump_clock, live):
    topic = live.get(NAME, None, make=True)
    topic.producers += 1
    await trio.sleep(10 * FORGOTTEN_AFTER_S)
    assert live.find(NAME, None) is topic
    topic.producer_left()
    await trio.sleep(FORGOTTEN_AFTER_S / 2)
    assert live.find(NAME, None) is topic
    await trio.sleep(FORGOTTEN_AFTER_S)
    assert live.find(NAME, None) is None
    assert topic.deleted


async def test_a_missing_topic_is_created_only_if_allowed(live):
    with pytest.raises(errors.TopicNotFound):
        live.get(NAME, None, make=False)
    with pytest.raises(errors.PartitionNotFound):
        live.get(NAME, 1, make=True)
    with pytest.raises(errors.NamespaceNotFound):
        live.get(TopicName("public", "nowhere", "t"), None, make=True)
    assert live.get(NAME, 0, make=True) is live.get(NAME, None, make=True)
    with pytest.raises(errors.TopicExists):
        live.create(NAME)


async def test_the_number_of_topics_has_a_limit(live, monkeypatch):
    monkeypatch.setattr(live_topics, "LIVE_TOPICS_MAX", 1)
    live.create(NAME)
    with pytest.raises(errors.LimitExceeded):
        live.create(TopicName("public", "default", "u"))


async def test_partition_counts_outlive_the_broker(broker, live):
    await live.partition(NAME, 3)
    again = LiveTopics(
        broker.topics,
        broker.namespaces,
        placement=broker.placement,
        now_us=broker.now_us,
        closing=broker.closing,
    )
    assert again.partitions(NAME) == 3
    assert again.list_partitioned("public", "default") == [NAME]
    assert again.list("public", "default") == []
    with pytest.raises(errors.InvalidRequest):
        await live.partition(NAME, 3)
    await live.partition(NAME, 4)
    await live.delete_all("public", "default")
    assert not live.exists(NAME)
    with pytest.raises(errors.TopicNotFound):
        await live.delete(NAME)


async def test_a_topic_in_use_cannot_become_partitioned(live):
    live.create(NAME)
    with pytest.raises(errors.TopicInUse):
        await live.partition(NAME, 2)


def crowd(topic, name: bytes, kind: SubscriptionKind, count: int) -> list[FakeConsumer]:
    """Return consumers of a subscription."""
    subscription = topic.subscribe(name, kind, KeyRing() if kind is KEY_SHARED else None)
    found = [FakeConsumer(f"{name.decode()}-{number}") for number in range(count)]
    for consumer in found:
        subscription.attach(consumer)
    return found


async def test_consumers_of_a_deleted_topic_are_notified_in_pieces(live):
    topic = live.get(NAME, None, make=True)
    kinds = {b"s": SubscriptionKind.SHARED, b"f": SubscriptionKind.FAILOVER, b"k": KEY_SHARED}
    found = [one for name, kind in kinds.items() for one in crowd(topic, name, kind, 300)]
    await wait_all_tasks_blocked()
    with counting(lambda: sum(one.was_disconnected for one in found)) as pieces:
        await live.delete(NAME)
        assert topic.is_idle
        assert live.find(NAME, None) is None
        await wait_all_tasks_blocked()
    assert all(one.was_disconnected for one in found)
    assert pieces.largest <= STEPS_TOGETHER


async def test_topics_of_a_namespace_are_removed_in_pieces(broker, live):
    for number in range(5):
        await live.partition(TopicName("public", "default", f"p{number}"), 3)
        live.get(TopicName("public", "default", f"p{number}"), 1, make=True)
        live.create(TopicName("public", "default", f"t{number}"))
    await broker.namespaces.create("public", "other")
    kept = TopicName("public", "other", "t0")
    live.create(kept)
    gone = []

    class Listener:
        def topic_changed(self, topic, event):
            gone.append(topic)

    listener = Listener()
    broker.topics.listeners.add(listener)
    with counting(lambda: len(gone)) as pieces:
        await live.delete_all("public", "default")
    assert len(gone) == 10
    assert pieces.largest == 1
    assert not broker.namespaces.get("public", "default").settings
    assert not live.has_topics("public", "default")
    assert live.find(kept, None) is not None
