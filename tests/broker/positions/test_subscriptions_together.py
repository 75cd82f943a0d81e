"""Commits that share a record: each has its usual effect, and either all happen or none."""

import random

import pytest

from braidlog.broker import errors
from braidlog.broker.limits import StateLimits
from braidlog.broker.positions.subscription_limits import NAME_BYTES_MAX
from braidlog.broker.positions.subscriptions import CursorEvent, KafkaCommit
from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import MetadataParts, RecordingListener

ORDERS = TopicName("public", "default", "orders")
PAYMENTS = TopicName("public", "default", "payments")
NAME = b"billing"
PARTITIONS = 3


@pytest.fixture
def house(request):
    mark = request.node.get_closest_marker("limits")
    return house_with_topics(**(mark.kwargs if mark else {}))


def house_with_topics(**limits):
    house = MetadataParts(limits=StateLimits(**limits))
    for name in (ORDERS, PAYMENTS):
        house.create(name, PARTITIONS)
    return house


def subscription(house, name):
    return house.subscriptions.open(house.topics.get(name), NAME)


def told_of(subscription):
    heard = RecordingListener()
    subscription.listeners.add(heard)
    return heard


def positions(house, name):
    subscription = house.subscriptions.find(house.topics.get(name), NAME)
    return subscription and [subscription.position(index) for index in range(PARTITIONS)]


def test_commits_of_all_topics_and_new_subscriptions_share_a_record(house):
    orders = subscription(house, ORDERS)
    heard = told_of(orders)
    records = len(house.cursor_journal.records)
    commits = house.subscriptions.commits(NAME)
    commits.add(house.topics.get(ORDERS), 1, 4)
    for index in (1, 2):
        commits.add(house.topics.get(PAYMENTS), index, 9, kafka=KafkaCommit(9, b"m", 1))
    assert positions(house, ORDERS) == [None, None, None]
    assert heard.take() == []
    assert commits.write() == house.cursor_journal.ticket
    assert len(house.cursor_journal.records) == records + 1
    assert heard.take() == [(1, CursorEvent.SOUGHT)]
    for seen in (house, house.restarted()):
        assert positions(seen, ORDERS) == [None, 4, None]
        assert positions(seen, PAYMENTS) == [None, 9, 9]
        assert subscription(seen, PAYMENTS).committed(2) == KafkaCommit(9, b"m", 1)


def test_no_commits_write_no_record(house):
    records = len(house.cursor_journal.records)
    assert house.subscriptions.commits(NAME).write() == 0
    assert len(house.cursor_journal.records) == records


@pytest.mark.parametrize("seed", range(20))
def test_each_commit_has_its_usual_effect(seed):
    rng = random.Random(seed)
    together, alone = house_with_topics(), house_with_topics()
    held = [subscription(house, name) for house in (together, alone) for name in (ORDERS, PAYMENTS)]
    heard = [told_of(subscription) for subscription in held]
    places = [(name, index) for name in (ORDERS, PAYMENTS) for index in range(PARTITIONS)]
    for _ in range(40):
        commits = together.subscriptions.commits(NAME)
        for name, index in rng.sample(places, rng.randrange(1, len(places))):
            offset = rng.randrange(-2, 12)
            kafka = KafkaCommit(offset, b"", 1) if rng.random() < 0.7 else None
            commits.add(together.topics.get(name), index, offset, kafka=kafka)
            subscription(alone, name).commit(index, offset, kafka=kafka)
        commits.write()
        index, start = rng.randrange(PARTITIONS), rng.randrange(12)
        for member in held:
            member.ack(index, [(start, start + 2)], lazy=False)
        events = [listener.take() for listener in heard]
        assert events[:2] == events[2:]
        assert state_of(together) == state_of(alone) == state_of(together.restarted())


def state_of(house):
    return [
        (
            opened.position(index),
            opened.standing(index)[1],
            list(opened.acked(index)),
            opened.committed(index),
        )
        for name in (ORDERS, PAYMENTS)
        for opened in [subscription(house, name)]
        for index in range(PARTITIONS)
    ]


@pytest.mark.limits(topic_subscriptions=1)
async def test_an_invalid_commit_does_not_affect_the_others(house):
    house.subscriptions.open(house.topics.get(PAYMENTS), b"the only one")
    gone = await house.topics.create(TopicName("public", "default", "gone"), 1)
    await house.topics.delete(gone.name)
    commits = house.subscriptions.commits(NAME)
    commits.add(house.topics.get(ORDERS), 0, 4)
    with pytest.raises(errors.TopicNotFound):
        commits.add(gone, 0, 4)
    for index in (0, 1):
        with pytest.raises(errors.LimitExceeded):
            commits.add(house.topics.get(PAYMENTS), index, 4)
    commits.write()
    assert positions(house, ORDERS) == [4, None, None]
    assert positions(house, PAYMENTS) is None
    too_long = house.subscriptions.commits(b"n" * (NAME_BYTES_MAX + 1))
    with pytest.raises(errors.InvalidName):
        too_long.add(house.topics.get(ORDERS), 0, 4)
    assert too_long.write() == 0


async def test_removed_partitions_end_all_cursors_in_a_single_record(house):
    orders = house.topics.get(ORDERS)
    held = [house.subscriptions.open(orders, name) for name in (b"one", b"two", b"three")]
    for subscription in held:
        for index in range(PARTITIONS):
            subscription.commit(index, 4)
    heard, ticket = told_of(held[0]), house.cursor_journal.ticket
    await house.topics.keep_partitions(ORDERS, 1)
    assert house.cursor_journal.ticket == ticket + 1
    assert heard.take() == [(1, CursorEvent.DELETED), (2, CursorEvent.DELETED)]
    assert [held[1].position(index) for index in range(PARTITIONS)] == [4, None, None]
    await house.topics.add_partitions(ORDERS, 2)
    assert held[2].position(1) == 0


@pytest.mark.limits(subscriptions=2, cursors=2, ack_ranges=2)
async def test_subscriptions_of_all_topics_have_a_limit(house):
    orders, payments = house.topics.get(ORDERS), house.topics.get(PAYMENTS)
    subscription = house.subscriptions.open(orders, b"one")
    house.subscriptions.open(payments, b"two")
    with pytest.raises(errors.LimitExceeded, match="2 subscriptions"):
        house.subscriptions.open(payments, b"three")
    for index in (0, 1):
        subscription.commit(index, 1)
    two = house.subscriptions.get(payments, b"two")
    with pytest.raises(errors.LimitExceeded, match="2 cursors"):
        two.commit(0, 1)
    with pytest.raises(errors.LimitExceeded, match="1 ranges"):
        subscription.ack(0, [(5, 6), (7, 8), (9, 10)], lazy=True)
    with pytest.raises(errors.LimitExceeded, match="1 ranges"):
        subscription.ack(1, [(5, 6)], lazy=True)
    with pytest.raises(errors.LimitExceeded, match="2 cursors"):
        await house.topics.add_partitions(orders.name, PARTITIONS + 2)
    subscription.commit(0, 20)  # Removed ranges free room.
    subscription.ack(1, [(5, 6)], lazy=True)


@pytest.mark.limits(cursors=2)
def test_joint_commits_respect_the_limit_of_cursors(house):
    commits = house.subscriptions.commits(NAME)
    orders, payments = house.topics.get(ORDERS), house.topics.get(PAYMENTS)
    for index in (0, 1):
        commits.add(orders, index, 9)
    for topic, index in ((orders, 2), (payments, 0)):
        with pytest.raises(errors.LimitExceeded, match="2 cursors"):
            commits.add(topic, index, 9)
    commits.write()
    assert positions(house, ORDERS) == [9, 9, None]
    assert positions(house, PAYMENTS) is None
    again = house.subscriptions.commits(NAME)
    again.add(orders, 1, 12)  # An existing range.
    with pytest.raises(errors.LimitExceeded, match="2 cursors"):
        again.add(orders, 2, 12)
    again.write()
    assert positions(house, ORDERS) == [9, 12, None]


def test_commits_that_cannot_be_written_have_no_effect(house):
    orders = subscription(house, ORDERS)
    orders.commit(0, 5)
    heard = told_of(orders)
    commits = house.subscriptions.commits(NAME)
    for index in (0, 1):
        commits.add(house.topics.get(ORDERS), index, 9)
    commits.add(house.topics.get(PAYMENTS), 0, 9)
    house.cursor_journal.full = True
    with pytest.raises(errors.StorageFull):
        commits.write()
    assert positions(house, ORDERS) == [5, None, None]
    assert positions(house, PAYMENTS) is None
    assert heard.take() == []
