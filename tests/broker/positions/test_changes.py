"""The log of changed positions: the newest change of each cursor, in order."""

import trio

from braidlog.broker.positions.changes import (
    ENDED_MAX,
    RECORD_CHANGES_MAX,
    STALE_MIN,
    PositionChanges,
)
from braidlog.storage.metadata.cursors import Moved
from braidlog.storage.metadata.names import TopicName
from tests.opened import opened_broker
from tests.waiting import until

NAME = TopicName("public", "default", "t")


def followed(broker):
    """Return the changes of all journals, and those of the broker's only journal."""
    every = PositionChanges(broker.parts.cursors, broker.topics)
    every.open(broker.now_us)
    return every, every.at(0)


def opened(broker):
    return followed(broker)[1]


def shown(changes, place=0):
    """Return group, partition and offset of each change from a place on."""
    return [
        (change.group, change.partition, change.commit and change.commit.offset)
        for change in changes.since(place)
    ]


def placed(changes):
    """Return place, group and partition of each change, in order."""
    return [(change.place, change.group, change.partition) for change in changes.since(0)]


async def test_the_newest_change_counts_at_its_place_in_the_journal(broker):
    topic = await broker.topics.create(NAME, 2)
    first = broker.subscriptions.open(topic, b"g")
    journal = broker.parts.cursors
    places = [journal.next_place]
    first.commit(0, 5)
    changes = opened(broker)
    assert shown(changes) == [(b"g", 0, 5)]
    for index, offset in ((1, 7), (0, 6)):
        places.append(journal.next_place)
        first.commit(index, offset)
    assert shown(changes) == [(b"g", 1, 7), (b"g", 0, 6)]
    offsets = [place * RECORD_CHANGES_MAX for place in places]
    assert [place for place, _, _ in placed(changes)] == offsets[1:]
    assert shown(changes, offsets[2]) == [(b"g", 0, 6)]
    backwards = [change.place for change in changes.before(offsets[2])]
    assert (backwards, changes.end) == ([offsets[1]], offsets[2] + 1)


async def test_cursors_of_a_record_have_places_of_their_own(broker):
    topic = await broker.topics.create(NAME, 2)
    changes = opened(broker)
    broker.subscriptions.open(topic, b"g")
    first = broker.parts.cursors.next_place * RECORD_CHANGES_MAX
    key = topic.meta.topic_id, b"g"
    broker.parts.cursors.move_all([Moved(*key, 1, 4, 4), Moved(*key, 0, 3, 3)])
    assert placed(changes) == [(first, b"g", 1), (first + 1, b"g", 0)]


async def test_places_stay_over_a_restart(tmp_path):
    async with opened_broker(tmp_path, {}) as broker:
        topic = await broker.topics.create(NAME, 2)
        changes = opened(broker)
        for group in (b"a", b"b", b"c"):
            broker.subscriptions.open(topic, group).commit(1, 1)
        subscription = broker.subscriptions.open(topic, b"a")
        subscription.seek(0, 3)
        subscription.ack_to(0, 5, lazy=True)
        broker.subscriptions.get(topic, b"b").delete()
        before, end = placed(changes), changes.end
        assert shown(changes) == [(b"a", 1, 1), (b"c", 1, 1), (b"a", 0, 5), (b"b", 1, None)]
        await broker.durability.reached(broker.subscriptions.flush_lazy())
    async with opened_broker(tmp_path, {}) as broker:
        changes = opened(broker)
        assert placed(changes) == before
        assert changes.end >= end
        topic = broker.topics.get(NAME)
        broker.subscriptions.get(topic, b"c").commit(1, 2)
        assert shown(changes, end) == [(b"c", 1, 2)]


async def test_a_reader_misses_no_change_over_a_snapshot_and_a_restart(tmp_path):
    """Cursors that did not change since are read again: no place stands for two changes."""
    async with opened_broker(tmp_path, {}) as broker:
        topic = await broker.topics.create(NAME, 1)
        for group in (b"a", b"b"):
            broker.subscriptions.open(topic, group).commit(0, 1)
        changes = opened(broker)
        lazy = broker.subscriptions.get(topic, b"a")
        lazy.ack_to(0, 2, lazy=True)
        broker.parts.cursors.rewrite()
        before = placed(changes)
        assert [group for _, group, _ in before] == [b"b", b"a"]
        broker.subscriptions.get(topic, b"b").commit(0, 3)
        (_, last) = placed(changes)
        await broker.durability.all_durable()
    async with opened_broker(tmp_path, {}) as broker:
        changes = opened(broker)
        again = placed(changes)
        assert again[-1] == last
        assert [group for _, group, _ in again] == [b"a", b"b"]
        assert not {place for place, _, _ in again[:-1]} & {place for place, _, _ in before}


async def test_ends_of_cursors_groups_and_topics_are_changes(broker):
    topic = await broker.topics.create(NAME, 2)
    changes = opened(broker)
    for group in (b"a", b"b", b"c"):
        subscription = broker.subscriptions.open(topic, group)
        for index in range(2):
            subscription.commit(index, 1)
    broker.subscriptions.get(topic, b"a").delete_cursor(0)
    broker.subscriptions.get(topic, b"b").delete()
    ended = [change for change in shown(changes) if change[2] is None]
    assert ended == [(b"a", 0, None), (b"b", 0, None), (b"b", 1, None)]
    await broker.topics.delete(NAME)
    await until(lambda: broker.parts.cursors.find(topic.meta.topic_id, b"c") is None)
    assert set(shown(changes)) == {
        (group, index, None) for group in (b"a", b"b", b"c") for index in range(2)
    }


async def test_partitions_that_come_and_go_change_the_cursors_of_all_groups(broker):
    topic = await broker.topics.create(NAME, 2)
    broker.subscriptions.open(topic, b"g").commit(0, 3)
    changes = opened(broker)
    await broker.topics.add_partitions(NAME, 3)
    await until(lambda: len(shown(changes)) == 2)
    assert shown(changes)[1] == (b"g", 2, 0)
    await broker.topics.keep_partitions(NAME, 2)
    await until(lambda: shown(changes)[1][2] is None)


async def test_a_reader_at_the_end_waits_for_the_next_change(broker):
    topic = await broker.topics.create(NAME, 1)
    every, changes = followed(broker)
    groups = []

    async def follow():
        await every.wait(every.ends)
        groups.extend(change.group for change in changes.since(0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        assert not groups
        broker.subscriptions.open(topic, b"g").commit(0, 1)
    assert groups == [b"g"]


async def test_overwritten_changes_and_old_ends_take_no_memory(broker):
    topic = await broker.topics.create(NAME, 1)
    subscription = broker.subscriptions.open(topic, b"g")
    changes = opened(broker)
    for number in range(5 * STALE_MIN):
        subscription.commit(0, number)
    assert len(changes._order) <= 2 + STALE_MIN
    assert shown(changes)[0][2] == 5 * STALE_MIN - 1
    for number in range(ENDED_MAX + 5):
        changes._end((1, b"%d" % number, 0))
        changes._places[1, b"%d" % number, 0] = number
    assert len(changes._ended) == ENDED_MAX
