import random

import pytest

from braidlog.storage.errors import DamagedLog, StorageFull, UnwritableChange
from braidlog.storage.metadata import journal_positions as module
from braidlog.storage.metadata.cursor_totals import CursorTotals
from braidlog.storage.metadata.cursors import KafkaCommit, Moved, StoredCursor, new_subscription
from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.metadata.ranges import RangeSet
from tests.storage.metadata.memory_journal import MemoryJournal

TOPIC = 7
NAME = b"billing"


def ranges_of(*ranges):
    range_set = RangeSet()
    for start, end in ranges:
        range_set.add(start, end)
    return range_set


def state_of(store):
    """Return the whole content of a store."""
    return {
        (topic_id, name): (
            store.find(topic_id, name).partitions,
            store.find(topic_id, name).properties,
            {i: store.get(topic_id, i, name) for i in store.find(topic_id, name).cursors},
            [store.deliveries((topic_id, name, index)) for index in range(4)],
        )
        for topic_id in sorted(store.topic_ids())
        for name in store.names(topic_id)
    }


@pytest.fixture
def journal():
    return MemoryJournal()


@pytest.fixture
def store(journal):
    return JournalPositions(journal)


def opened(store, name=NAME, topic_id=TOPIC, partitions=2):
    store.open(topic_id, name, partitions=partitions)


def moved(*fields, **more):
    return Moved(TOPIC, NAME, *fields, **more)


def test_a_subscription_begins_with_unset_cursors(store):
    assert store.find(TOPIC, NAME) is None
    assert store.open(TOPIC, NAME, partitions=2, properties={"a": "b"}) == 1
    assert store.find(TOPIC, NAME).properties == {"a": "b"}
    assert store.get(TOPIC, 0, NAME) is None
    assert store.names(TOPIC) == [NAME]
    assert store.open(TOPIC, NAME, partitions=2, properties={"c": "d"}) == 1
    assert store.find(TOPIC, NAME).properties == {"a": "b"}


def test_properties_are_replaced(store, journal):
    store.open(TOPIC, NAME, partitions=2, properties={"a": "b"})
    store.move(moved(1, 10, 10, ranges=ranges_of((12, 13))))
    assert store.set_properties(TOPIC, NAME, {"c": "d"}) == 3
    subscription = JournalPositions(journal).find(TOPIC, NAME)
    assert subscription.properties == {"c": "d"}
    assert subscription.cursors == {1: StoredCursor(10, 10, ranges_of((12, 13)), None)}
    assert [record[0] for record in journal.records] == [2, 2, 6]  # The layouts of the records.


def test_a_cursor_is_its_last_value_and_ranges_accumulate(store, journal):
    opened(store)
    kafka = KafkaCommit(-5, None, 1_700_000_000_000_000)
    store.move(moved(1, 10, 10, kafka))
    store.move(moved(1, 10, 10, kafka, ranges=ranges_of((12, 13))))
    store.move(moved(1, 10, 10, ranges=ranges_of((15, 20), (30, 31))))
    expected = StoredCursor(10, 10, ranges_of((12, 13), (15, 20), (30, 31)), None)
    assert store.get(TOPIC, 1, NAME) == expected
    store.move(moved(1, 15, 14, ranges=ranges_of((14, 15))))
    expected = StoredCursor(15, 14, ranges_of((30, 31)), None)
    assert store.get(TOPIC, 1, NAME).position == 15
    store.move(moved(1, 20, 14, kafka))
    expected = StoredCursor(20, 14, ranges_of((30, 31)), kafka)
    assert store.get(TOPIC, 1, NAME) == expected
    assert JournalPositions(journal.reopened()).get(TOPIC, 1, NAME) == expected
    store.move(moved(1, 3, 3, cleared=True))
    assert store.get(TOPIC, 1, NAME) == StoredCursor(3, 3, None, None)
    assert store.get(TOPIC, 0, NAME) is None


def test_lazy_changes_are_visible_at_once_and_have_no_ticket(store, journal):
    opened(store)
    assert store.move(moved(0, 5, 0), lazy=True) == 0
    assert store.get(TOPIC, 0, NAME).position == 5
    assert journal.lazy == 1
    assert store.flush_lazy() == 2


def test_joint_moves_and_new_subscriptions_are_a_single_record(store, journal):
    opened(store)
    before = len(journal.records)
    other = Moved(TOPIC + 1, NAME, 0, 7, 7)
    ticket = store.move_all(
        [moved(0, 5, 5), moved(1, 6, 6), other], making=[new_subscription(TOPIC + 1, NAME, 1)]
    )
    assert len(journal.records) == before + 1
    assert ticket == store.ticket
    for seen in (store, JournalPositions(journal.reopened())):
        assert [seen.get(TOPIC, index, NAME).position for index in range(2)] == [5, 6]
        assert seen.get(TOPIC + 1, 0, NAME).position == 7


def test_a_subscription_ends_with_its_last_cursor(store):
    opened(store)
    store.move(moved(0, 5, 5))
    store.move(moved(1, 6, 6))
    store.delete(TOPIC, 0, NAME)
    assert store.get(TOPIC, 0, NAME) is None
    assert store.get(TOPIC, 1, NAME).position == 6
    store.delete(TOPIC, 0, NAME)
    assert store.names(TOPIC) == [NAME]
    store.delete(TOPIC, 1, NAME)
    assert store.names(TOPIC) == []
    assert store.topic_ids() == []


def test_a_recreated_subscription_starts_empty(store, journal):
    opened(store)
    store.move(moved(0, 5, 5))
    store.drop(TOPIC, NAME)
    opened(store)
    for seen in (store, JournalPositions(journal.reopened())):
        assert seen.get(TOPIC, 0, NAME) is None
        assert seen.names(TOPIC) == [NAME]


def test_topics_are_separate_and_removed_whole(store):
    for topic_id in (TOPIC, TOPIC + 1):
        opened(store, topic_id=topic_id)
        store.move(Moved(topic_id, NAME, 0, topic_id, topic_id))
    opened(store, b"audit")
    assert store.count(TOPIC) == 2
    store.drop_topic(TOPIC)
    assert store.topic_ids() == [TOPIC + 1]
    assert store.get(TOPIC + 1, 0, NAME).position == TOPIC + 1
    assert store.drop_topic(TOPIC) == store.ticket


def test_new_partitions_get_cursors_at_0_and_removed_partitions_none(store, journal):
    opened(store)
    store.move(moved(1, 9, 9))
    store.resize(TOPIC, 4)
    opened(store, b"late", partitions=4)
    records = len(journal.records)
    assert store.resize(TOPIC, 4) == store.ticket
    assert len(journal.records) == records
    for seen in (store, JournalPositions(journal.reopened())):
        positions = [seen.get(TOPIC, index, NAME) for index in range(4)]
        assert positions == [None, StoredCursor(9, 9), StoredCursor(0, 0), StoredCursor(0, 0)]
        assert seen.get(TOPIC, 2, b"late") is None
    store.resize(TOPIC, 1)
    store.resize(TOPIC, 2)
    assert store.get(TOPIC, 1, NAME) == StoredCursor(0, 0)
    assert store.get(TOPIC, 2, NAME) is None


def test_a_million_holes_cost_few_bytes_per_ack(store, journal):
    opened(store)
    for number in range(1000):
        ranges = ranges_of(
            *((start, start + 1) for start in range(number * 10 + 1, number * 10 + 11, 2))
        )
        store.move(moved(0, 0, 0, ranges=ranges), lazy=True)
    assert len(store.get(TOPIC, 0, NAME).acked) == 5000
    before = journal.size_bytes
    store.move(moved(0, 0, 0, ranges=ranges_of((5000, 5001))))
    assert journal.size_bytes - before < 64


def test_a_refused_change_changes_nothing(store, journal):
    opened(store)
    store.move(moved(0, 5, 5))
    before = state_of(JournalPositions(journal.reopened()))
    journal.full = True
    for change in (
        lambda: store.move(moved(0, 9, 9)),
        lambda: store.move_all([moved(0, 9, 9), moved(1, 9, 9)]),
        lambda: store.delete(TOPIC, 0, NAME),
        lambda: store.open(TOPIC, b"audit", partitions=2),
        lambda: store.resize(TOPIC, 5),
        lambda: store.drop_topic(TOPIC),
    ):
        with pytest.raises(StorageFull):
            change()
    assert state_of(store) == before


def test_a_record_about_an_unknown_subscription_is_an_error(journal):
    store = JournalPositions(journal)
    opened(store)
    store.move(moved(0, 5, 5))
    del journal.records[0]
    with pytest.raises(DamagedLog, match="Moved of unknown"):
        JournalPositions(journal)


def change_at_random(rng, store):
    topic_id = rng.randrange(3)
    name = rng.choice([b"a", b"b", b"", b"\xff" * 40])
    kind = rng.random()
    if store.find(topic_id, name) is None:
        store.open(topic_id, name, partitions=rng.randrange(1, 4), properties={"k": "ä"})
    elif kind < 0.1:
        runs = [(5, 6 + rng.randrange(9), 2), (20, 21, 3)][: rng.randrange(3)]
        store.count_deliveries((topic_id, name, rng.randrange(3)), runs)
    elif kind < 0.85:
        kafka = rng.choice([None, KafkaCommit(rng.randrange(-9, 99), b"m" * rng.randrange(3), 5)])
        start = rng.randrange(2 ** rng.choice([4, 40]))
        ranges = rng.choice([None, ranges_of((start, start + 1), (start + 3, start + 9))])
        change = Moved(
            topic_id,
            name,
            rng.randrange(3),
            start - rng.randrange(9),
            0,
            kafka,
            rng.random() < 0.2,
            ranges,
        )
        if rng.random() < 0.2:
            make_together_at_random(rng, store, change)
        else:
            store.move(change, lazy=rng.random() < 0.5)
    elif kind < 0.93:
        store.delete(topic_id, rng.randrange(3), name)
    elif kind < 0.95:
        store.set_properties(topic_id, name, {"k": str(rng.random())})
    elif kind < 0.97:
        store.resize(topic_id, rng.randrange(1, 5))
    else:
        rng.choice([lambda: store.drop(topic_id, name), lambda: store.drop_topic(topic_id)])()


def make_together_at_random(rng, store, change):
    """Make that change, and changes of subscriptions of every topic, new subscriptions included."""
    topics = rng.sample(range(5), rng.randrange(1, 5))
    new = [
        new_subscription(topic_id, b"n", 4)
        for topic_id in topics
        if store.find(topic_id, b"n") is None
    ]
    moves = [Moved(topic_id, b"n", rng.randrange(4), 5, rng.randrange(5)) for topic_id in topics]
    store.move_all([change, *moves], making=new)


def counted(store):
    """Return the expected totals."""
    subscriptions = [
        subscription
        for topic_id in store.topic_ids()
        for subscription in store.subscriptions(topic_id)
    ]
    cursors = [cursor for subscription in subscriptions for cursor in subscription.cursors.values()]
    ranges = sum(len(cursor.acked) for cursor in cursors if cursor.acked is not None)
    return CursorTotals(len(subscriptions), len(cursors), ranges)


@pytest.mark.parametrize("gather_max", [module.GATHER_CURSORS, 1])
@pytest.mark.parametrize("seed", range(20))
def test_a_replay_equals_the_state_with_and_without_a_snapshot(seed, gather_max):
    """With `gather_max` 1 many changes come between the start of a snapshot and its write."""
    rng = random.Random(seed)
    journal = MemoryJournal()
    store = JournalPositions(journal, gather_max=gather_max)
    for _ in range(8):
        for number in range(40):
            change_at_random(rng, store)
            if number % 8 == 0:
                assert state_of(JournalPositions(journal.reopened())) == state_of(store)
                assert store.totals == counted(store)
        assert JournalPositions(journal.reopened()).totals == counted(store)
        assert state_of(JournalPositions(journal.reopened())) == state_of(store)
        if rng.random() < 0.5:
            journal.extra_bytes = 1 << 40  # The next change triggers a snapshot.
        elif rng.random() < 0.5:
            journal = journal.reopened()
            store = JournalPositions(journal, gather_max=gather_max)


@pytest.mark.parametrize("record_count", [0, 1, 5])
def test_a_truncated_journal_yields_an_earlier_state(journal, record_count):
    store = JournalPositions(journal)
    opened(store)
    for position in range(1, 7):
        store.move(moved(0, position, position))
    again = JournalPositions(MemoryJournal(journal.records[: record_count + 1]))
    cursor = again.get(TOPIC, 0, NAME)
    assert (cursor.position if cursor else 0) == record_count


class MeasuredJournal(MemoryJournal):
    """Records the size of the snapshot state at each change."""

    def __init__(self, records=()):
        super().__init__(records)
        self.waiting = []

    def snapshot(self, bodies):
        self.waiting.append(len(self.records))
        super().snapshot(bodies)


def test_a_large_snapshot_includes_changes_made_meanwhile():
    journal = MeasuredJournal()
    store = JournalPositions(journal, gather_max=10)
    for number in range(100):
        opened(store, b"%d" % number)
        store.move(Moved(TOPIC, b"%d" % number, 0, number, number))
    before = len(journal.records)
    journal.extra_bytes = 1 << 40  # The next change starts a snapshot.
    changes = 0
    while not journal.snapshots:
        changes += 1
        store.move(Moved(TOPIC, b"%d" % (7 * changes % 100), 1, changes, changes))
    assert 15 <= changes <= 25  # Two hundred cursors and subscriptions, ten at a time.
    assert journal.waiting == [before + changes]
    assert state_of(JournalPositions(journal.reopened())) == state_of(store)


def test_a_full_disk_at_the_end_of_a_snapshot_does_not_change_the_journal():
    journal = MemoryJournal()
    store = JournalPositions(journal, gather_max=1)
    opened(store)
    opened(store, b"other")
    journal.extra_bytes = 1 << 40
    store.move(moved(0, 3, 3))
    journal.full = True
    with pytest.raises(StorageFull):
        store.move(moved(0, 4, 4))
    journal.full = False
    while not journal.snapshots:
        store.move(moved(0, 5, 5))
    assert state_of(JournalPositions(journal.reopened())) == state_of(store)
    assert store.get(TOPIC, 0, NAME).position == 5


def test_a_snapshot_holds_many_subscriptions_in_few_records(journal):
    store = JournalPositions(journal)
    for number in range(module.RECORD_CURSORS + 10):
        opened(store, b"%d" % number)
    journal.extra_bytes = 1 << 40  # The next change triggers a snapshot.
    while not journal.snapshots:
        store.open(TOPIC + 1, b"%d" % journal.ticket, partitions=2)
    assert len(journal.records) < 10
    assert state_of(JournalPositions(journal.reopened())) == state_of(store)


def test_a_cursor_with_very_many_ranges_takes_several_records_of_a_snapshot(journal):
    count = module.RECORD_RANGES * 2 + 5
    store = JournalPositions(journal)
    opened(store)
    ranges = ranges_of(*((2 * number, 2 * number + 1) for number in range(1, count + 1)))
    store.move(moved(1, 1, 0, KafkaCommit(1, b"", 2), ranges=ranges))
    opened(store, b"last")
    journal.extra_bytes = 1 << 40  # The next change triggers a snapshot.
    store.move(moved(0, 4, 4))
    assert journal.snapshots == 1
    sizes = [len(record) for record in journal.records]
    assert max(sizes) < 2 * 16 * module.RECORD_RANGES
    again = JournalPositions(journal.reopened())
    assert state_of(again) == state_of(store)
    assert len(again.get(TOPIC, 1, NAME).acked) == count


def test_a_binary_property_is_refused_without_effect(journal):
    store = JournalPositions(journal)
    before = list(journal.records)
    with pytest.raises(UnwritableChange):
        store.open(TOPIC, b"new", partitions=1, properties={"key": b"\xff"})
    assert store.find(TOPIC, b"new") is None
    assert journal.records == before


def test_a_change_of_an_unknown_subscription_is_never_written(journal):
    store = JournalPositions(journal)
    before = list(journal.records)
    for change in (
        lambda: store.move(moved(0, 5, 5)),
        lambda: store.drop(TOPIC, NAME),
    ):
        with pytest.raises((AssertionError, KeyError)):
            change()
    assert journal.records == before
