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
from braidlog.broker.delivery.non_persistent.topics import FORGOTTEN_AFTER_S, NonPersistentTopics
from braidlog.storage.metadata.names import TopicName
from tests.broker.delivery.dispatch_fakes import FakeConsumer
from tests.broker.pieces import counting

KEY_SHARED = SubscriptionKind.KEY_SHARED
NAME = TopicName("public", "default", "t")


@pytest.fixture
def non_persistent(broker):
    return broker.non_persistent


@pytest.mark.slow
async def test_a_topic_without_users_is_removed_after_a_while(autojump_clock, non_persistent):
    topic = non_persistent.get(NAME, None, make=True)
    topic.producers += 1
    await trio.sleep(10 * FORGOTTEN_AFTER_S)
    assert non_persistent.find(NAME, None) is topic
    topic.producer_left()
    await trio.sleep(FORGOTTEN_AFTER_S / 2)
    assert non_persistent.find(NAME, None) is topic
    await trio.sleep(FORGOTTEN_AFTER_S)
    assert non_persistent.find(NAME, None) is None
    assert topic.deleted


async def test_a_missing_topic_is_created_only_if_allowed(non_persistent):
    with pytest.raises(errors.TopicNotFound):
        non_persistent.get(NAME, None, make=False)
    with pytest.raises(errors.PartitionNotFound):
        non_persistent.get(NAME, 1, make=True)
    with pytest.raises(errors.NamespaceNotFound):
        non_persistent.get(TopicName("public", "nowhere", "t"), None, make=True)
    assert non_persistent.get(NAME, 0, make=True) is non_persistent.get(NAME, None, make=True)
    with pytest.raises(errors.TopicExists):
        non_persistent.create(NAME)


@pytest.mark.limits(non_persistent_topics=1)
async def test_the_number_of_topics_has_a_limit(non_persistent):
    non_persistent.create(NAME)
    with pytest.raises(errors.LimitExceeded):
        non_persistent.create(TopicName("public", "default", "u"))


async def test_partition_counts_outlive_the_broker(broker, non_persistent):
    await non_persistent.partition(NAME, 3)
    again = NonPersistentTopics(
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
        await non_persistent.partition(NAME, 3)
    await non_persistent.partition(NAME, 4)
    await non_persistent.delete_all("public", "default")
    assert not non_persistent.exists(NAME)
    with pytest.raises(errors.TopicNotFound):
        await non_persistent.delete(NAME)


async def test_a_topic_in_use_cannot_become_partitioned(non_persistent):
    non_persistent.create(NAME)
    with pytest.raises(errors.TopicInUse):
        await non_persistent.partition(NAME, 2)


def crowd(topic, name: bytes, kind: SubscriptionKind, count: int) -> list[FakeConsumer]:
    """Return consumers of a subscription."""
    subscription = topic.subscribe(name, kind, KeyRing() if kind is KEY_SHARED else None)
    consumers = [FakeConsumer(f"{name.decode()}-{number}") for number in range(count)]
    for consumer in consumers:
        subscription.attach(consumer)
    return consumers


async def test_consumers_of_a_deleted_topic_are_notified_in_pieces(non_persistent):
    topic = non_persistent.get(NAME, None, make=True)
    kinds = {b"s": SubscriptionKind.SHARED, b"f": SubscriptionKind.FAILOVER, b"k": KEY_SHARED}
    consumers = [
        consumer for name, kind in kinds.items() for consumer in crowd(topic, name, kind, 300)
    ]
    await wait_all_tasks_blocked()
    with counting(lambda: sum(consumer.was_disconnected for consumer in consumers)) as pieces:
        await non_persistent.delete(NAME)
        assert topic.is_idle
        assert non_persistent.find(NAME, None) is None
        await wait_all_tasks_blocked()
    assert all(consumer.was_disconnected for consumer in consumers)
    assert pieces.largest <= STEPS_TOGETHER


async def test_topics_of_a_namespace_are_removed_in_pieces(broker, non_persistent):
    for number in range(5):
        await non_persistent.partition(TopicName("public", "default", f"p{number}"), 3)
        non_persistent.get(TopicName("public", "default", f"p{number}"), 1, make=True)
        non_persistent.create(TopicName("public", "default", f"t{number}"))
    await broker.namespaces.create("public", "other")
    staying = TopicName("public", "other", "t0")
    non_persistent.create(staying)
    gone = []

    class ChangeListener:
        def topic_changed(self, topic, event):
            gone.append(topic)

    listener = ChangeListener()
    broker.topics.listeners.add(listener)
    with counting(lambda: len(gone)) as pieces:
        await non_persistent.delete_all("public", "default")
    assert len(gone) == 10
    assert pieces.largest == 1
    assert not broker.namespaces.get("public", "default").settings
    assert not non_persistent.has_topics("public", "default")
    assert non_persistent.find(staying, None) is not None
