"""Live topics come with their users and go a while after them; partition counts stay."""

import pytest
import trio

from broker import errors
from broker.live import topics as live_topics
from broker.live.topics import FORGOTTEN_AFTER_S, LiveTopics
from storage.metadata.names import TopicName

NAME = TopicName("public", "default", "t")


@pytest.fixture
def live(broker):
    return broker.live


@pytest.mark.slow
async def test_one_without_users_is_forgotten_after_a_while(autojump_clock, live):
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


async def test_what_is_missing_is_made_only_where_it_may_be(live):
    with pytest.raises(errors.TopicNotFound):
        live.get(NAME, None, make=False)
    with pytest.raises(errors.PartitionNotFound):
        live.get(NAME, 1, make=True)
    with pytest.raises(errors.NamespaceNotFound):
        live.get(TopicName("public", "nowhere", "t"), None, make=True)
    assert live.get(NAME, 0, make=True) is live.get(NAME, None, make=True)
    with pytest.raises(errors.TopicExists):
        live.create(NAME)


async def test_their_number_has_a_limit(live, monkeypatch):
    monkeypatch.setattr(live_topics, "LIVE_TOPICS_MAX", 1)
    live.create(NAME)
    with pytest.raises(errors.LimitExceeded):
        live.create(TopicName("public", "default", "u"))


async def test_partition_counts_outlive_the_broker(broker, live):
    await live.partition(NAME, 3)
    again = LiveTopics(
        broker.topics, broker.namespaces, placement=broker.placement, now_us=broker.now_us
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


async def test_one_in_use_cannot_be_given_partitions(live):
    live.create(NAME)
    with pytest.raises(errors.TopicInUse):
        await live.partition(NAME, 2)
