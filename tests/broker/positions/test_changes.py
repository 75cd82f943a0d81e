"""The log of changed positions: the newest change of each cursor, in order."""

import trio

from braidlog.broker.positions.changes import ENDED_MAX, STALE_MIN, PositionChanges
from braidlog.storage.metadata.names import TopicName
from tests.waiting import until

NAME = TopicName("public", "default", "t")
START = 1_000_000


async def opened(broker):
    changes = PositionChanges(broker.parts.cursors, broker.topics)
    await changes.open(START)
    return changes


def shown(changes, place=0):
    """Return place, group, partition and offset of each change from a place on."""
    return [
        (
            change.place - START,
            change.group,
            change.partition,
            change.commit and change.commit.offset,
        )
        for change in changes.since(place)
    ]


async def test_present_cursors_come_first_and_the_newest_change_counts(broker):
    topic = await broker.topics.create(NAME, 2)
    first = broker.subscriptions.open(topic, b"g")
    first.commit(0, 5)
    changes = await opened(broker)
    assert shown(changes) == [(0, b"g", 0, 5)]
    first.commit(1, 7)
    first.commit(0, 6)
    assert shown(changes) == [(1, b"g", 1, 7), (2, b"g", 0, 6)]
    assert shown(changes, START + 2) == [(2, b"g", 0, 6)]
    backwards = [change.place - START for change in changes.before(START + 2)]
    assert (backwards, changes.end) == ([1], START + 3)


async def test_ends_of_cursors_groups_and_topics_are_changes(broker):
    topic = await broker.topics.create(NAME, 2)
    changes = await opened(broker)
    for group in (b"a", b"b", b"c"):
        subscription = broker.subscriptions.open(topic, group)
        for index in range(2):
            subscription.commit(index, 1)
    broker.subscriptions.get(topic, b"a").delete_cursor(0)
    broker.subscriptions.get(topic, b"b").delete()
    ended = [change[1:] for change in shown(changes) if change[3] is None]
    assert ended == [(b"a", 0, None), (b"b", 0, None), (b"b", 1, None)]
    await broker.topics.delete(NAME)
    await until(lambda: broker.parts.cursors.find(topic.meta.topic_id, b"c") is None)
    assert {change[1:] for change in shown(changes)} == {
        (group, index, None) for group in (b"a", b"b", b"c") for index in range(2)
    }


async def test_partitions_that_come_and_go_change_the_cursors_of_all_groups(broker):
    topic = await broker.topics.create(NAME, 2)
    broker.subscriptions.open(topic, b"g").commit(0, 3)
    changes = await opened(broker)
    await broker.topics.add_partitions(NAME, 3)
    await until(lambda: len(shown(changes)) == 2)
    assert shown(changes)[1][1:] == (b"g", 2, 0)
    await broker.topics.keep_partitions(NAME, 2)
    await until(lambda: shown(changes)[1][3] is None)


async def test_a_reader_at_the_end_waits_for_the_next_change(broker):
    topic = await broker.topics.create(NAME, 1)
    changes = await opened(broker)
    places = []

    async def follow():
        await changes.wait(changes.end)
        places.extend(change.place for change in changes.since(0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        assert not places
        broker.subscriptions.open(topic, b"g").commit(0, 1)
    assert places == [START]


async def test_overwritten_changes_and_old_ends_take_no_memory(broker):
    topic = await broker.topics.create(NAME, 1)
    subscription = broker.subscriptions.open(topic, b"g")
    changes = await opened(broker)
    for number in range(5 * STALE_MIN):
        subscription.commit(0, number)
    assert len(changes._order) <= 2 + STALE_MIN
    assert shown(changes)[0][3] == 5 * STALE_MIN - 1
    for number in range(ENDED_MAX + 5):
        changes._end((1, b"%d" % number, 0))
        changes._places[1, b"%d" % number, 0] = number
    assert len(changes._ended) == ENDED_MAX
