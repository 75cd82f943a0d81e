"""Unused topics and groups are deleted where the settings ask for that, and no others."""

import pytest
import trio
import trio.testing

from braidlog.broker.errors import Conflict, NotOwner, Unanswered
from braidlog.broker.positions.members import SubscriptionMember
from braidlog.broker.topics.shown_producers import ShownProducer
from braidlog.storage.metadata.names import TopicName
from tests.broker.records import append

NAME = TopicName("public", "default", "t")
GROUP = b"g"
DELETED = {"inactive_topics_deleted": True, "inactive_topic_s": 60}


class InactiveTopic:
    """A topic, and a clock that the test sets."""

    def __init__(self, broker, topic):
        self.broker = broker
        self.topic = topic
        self.now_s = 0.0
        broker.inactivity._clock_s = lambda: self.now_s

    async def passed(self, seconds):
        """Check now, and again after that time."""
        await self.broker.inactivity.check()
        self.now_s += seconds
        await self.broker.inactivity.check()

    async def set(self, **settings):
        await self.broker.topics.alter_settings(NAME, settings)

    @property
    def is_there(self):
        return self.broker.topics.find(NAME) is not None


@pytest.fixture
async def house(broker):
    return InactiveTopic(broker, await broker.topics.create(NAME, 2))


async def test_an_unused_topic_is_deleted_after_its_time(house):
    await house.passed(3600)
    assert house.is_there  # Nothing asks for a deletion.
    await house.set(**DELETED)
    await house.passed(59)
    assert house.is_there
    house.now_s += 1
    await house.broker.inactivity.check()
    assert not house.is_there


async def test_a_record_is_a_use(house):
    await house.set(**DELETED)
    await house.passed(59)
    await append(house.broker, house.topic.partitions[1], "plain", [b"x"])
    await house.passed(59)
    assert house.is_there


async def test_a_producer_is_a_use(house):
    await house.set(**DELETED)
    producer = ShownProducer("p", 1, "Shared", False, "", "", 0, {})
    house.broker.shown_producers.add_source(lambda _: [producer])
    await house.passed(3600)
    assert house.is_there


@pytest.mark.parametrize(
    ("mode", "position", "is_left"),
    [
        ("delete_when_no_subscriptions", 1, True),
        ("delete_when_subscriptions_caught_up", 0, True),
        ("delete_when_subscriptions_caught_up", 1, False),
    ],
)
async def test_groups_keep_a_topic_by_the_mode(house, mode, position, is_left):
    await house.set(**DELETED, inactive_topic_mode=mode)
    await append(house.broker, house.topic.partitions[0], "plain", [b"x"])
    group = house.broker.subscriptions.open(house.topic, GROUP)
    group.start(0, position)
    group.start(1, 0)
    await house.passed(60)
    assert house.is_there is is_left


class DistantTopics:
    """Topics whose catalogue another broker owns: a deletion takes a while, and may fail."""

    def __init__(self, topics, during, error=None):
        self.all = topics.all
        self._topics = topics
        self._during = during
        self._error = error

    async def delete(self, name):
        await self._during()
        if self._error is not None:
            raise self._error
        return await self._topics.delete(name)


async def is_refused(house, partition):
    """Return whether a record is refused because of a deletion."""
    try:
        await append(house.broker, partition, "plain", [b"x"])
    except NotOwner as refusal:
        assert str(refusal) == f"{NAME.full} is about to be deleted"
        return True
    return False


@pytest.mark.parametrize("error", [None, Conflict("changed"), Unanswered("no answer")])
async def test_no_record_is_stored_while_the_deletion_is_under_way(house, error):
    """A record that is acknowledged and then deleted with its topic would be lost."""
    partition, refused = house.topic.partitions[0], []

    async def during():
        refused.append(await is_refused(house, partition))

    topics = house.broker.topics
    await house.set(**DELETED)
    await house.passed(59)
    house.broker.inactivity._topics = DistantTopics(topics, during, error)
    house.now_s += 1
    await house.broker.inactivity.check()
    assert refused == [True]
    assert house.is_there is (error is not None)
    if error is not None:
        assert not await is_refused(house, partition)
        assert partition.next_offset > 0


async def test_the_end_of_a_deletion_lets_no_record_into_another_deletion(house):
    """Of two deletions at once one fails; the other goes on, and would take records with it."""
    topic, topics = house.topic, house.broker.topics
    failed, may_end = trio.Event(), trio.Event()

    async def slow_check():
        await may_end.wait()

    async def fails():
        with pytest.raises(Conflict):
            await house.broker.inactivity.delete_unused(topic, refuse)
        failed.set()

    async def refuse():
        await trio.testing.wait_all_tasks_blocked()  # The other deletion is under way.
        raise Conflict("in use")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.broker.inactivity.delete_unused, topic, slow_check)
        nursery.start_soon(fails)
        await failed.wait()
        await topics.add_partitions(NAME, 3)
        for partition in topic.partitions:  # The new partition too.
            assert await is_refused(house, partition)
        may_end.set()
    assert not house.is_there


async def test_a_group_without_members_expires(house):
    group = house.broker.subscriptions.open(house.topic, GROUP)
    group.start(0, 0)
    await house.set(subscription_expiration_minutes=1)
    await house.passed(59)
    group.seek(0, 0)
    await house.passed(1)
    assert house.broker.subscriptions.find(house.topic, GROUP) is None
    assert house.is_there


async def test_a_group_with_a_member_stays(house):
    house.broker.subscriptions.open(house.topic, GROUP).start(0, 0)
    house.broker.members.add_source(lambda *_: [SubscriptionMember("kafka", "k", "", (0,))])
    await house.set(subscription_expiration_minutes=1)
    await house.passed(3600)
    assert house.broker.subscriptions.find(house.topic, GROUP) is not None
