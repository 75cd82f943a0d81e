"""Changes of topics in a cluster, where another change may come first."""

import pytest

from braidlog.broker.errors import Conflict
from braidlog.broker.topics.cluster_topics import ClusterTopics
from braidlog.storage.metadata.names import TopicName

NAME = TopicName("public", "default", "t")


class LosingChanges:
    """Changes that lose to another change once, and are then asked for again."""

    def __init__(self, other_change):
        self._other_change = other_change
        self.asked = 0

    async def make(self, change, *arguments, is_made, check):
        check()
        self.asked += 1
        await self._other_change()
        check()
        self.asked += 1
        return 0


async def test_a_deletion_spares_a_topic_that_was_created_again(broker):
    await broker.topics.create(NAME, 1)

    async def create_again():
        await broker.topics.delete(NAME)
        await broker.topics.create(NAME, 1)

    changes = LosingChanges(create_again)
    with pytest.raises(Conflict, match="created again"):
        await ClusterTopics(broker.topics, changes).delete(NAME)
    assert changes.asked == 1


async def test_a_deletion_goes_on_after_a_change_of_the_topic(broker):
    await broker.topics.create(NAME, 1)
    changes = LosingChanges(lambda: broker.topics.add_partitions(NAME, 2))
    await ClusterTopics(broker.topics, changes).delete(NAME)
    assert changes.asked == 2


async def test_a_deletion_that_another_client_has_made_is_asked_for_again(broker):
    """Then the owner answers that there is no such topic."""
    await broker.topics.create(NAME, 1)
    changes = LosingChanges(lambda: broker.topics.delete(NAME))
    await ClusterTopics(broker.topics, changes).delete(NAME)
    assert changes.asked == 2
