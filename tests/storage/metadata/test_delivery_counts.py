"""Delivery counts of queues in the cursors' journal."""

import pytest

from braidlog.storage.metadata.cursors import Moved
from braidlog.storage.metadata.delivery_counts import RECORD_RUNS, StoredCounts, counted
from braidlog.storage.metadata.journal_positions import JournalPositions
from tests.storage.metadata.memory_journal import MemoryJournal

NAME = b"group"
KEY = (1, NAME, 0)
RUNS = [(0, 3, 2), (5, 6, 4)]


@pytest.fixture
def journal():
    return MemoryJournal()


@pytest.fixture
def store(journal):
    store = JournalPositions(journal)
    store.open(1, NAME, partitions=2)
    store.move(Moved(1, NAME, 0, 0, 0))
    store.move(Moved(1, NAME, 1, 0, 0))
    return store


def reopened(journal, store):
    store.flush_lazy()
    return JournalPositions(journal.reopened())


def test_counts_survive_a_restart_and_a_snapshot(journal, store):
    assert store.deliveries(KEY) is None
    store.count_deliveries(KEY, RUNS)
    store.count_deliveries((1, NAME, 1), [])
    store.flush_lazy()
    short = journal.reopened()
    JournalPositions(short).rewrite()
    again = JournalPositions(short.reopened())
    assert (again.deliveries(KEY), again.deliveries((1, NAME, 1))) == (RUNS, [])
    store.count_deliveries(KEY, RUNS[:1])
    assert reopened(journal, store).deliveries(KEY) == RUNS[:1]


@pytest.mark.parametrize(
    ("change", "left", "left_beside"),
    [
        (lambda store: store.move(Moved(1, NAME, 0, 0, 0, cleared=True)), [], RUNS),
        (lambda store: store.move(Moved(1, NAME, 0, 3, 0)), RUNS, RUNS),
        (lambda store: store.delete(1, 0, NAME), None, RUNS),
        (lambda store: store.drop(1, NAME), None, None),
        (lambda store: store.drop_topic(1), None, None),
        (lambda store: store.resize(1, 1), RUNS, None),
    ],
)
def test_a_seek_and_an_end_forget_counts(journal, store, change, left, left_beside):
    beside, elsewhere = (1, NAME, 1), (2, NAME, 1)
    store.open(2, NAME, partitions=2)
    store.count_deliveries(KEY, RUNS)
    store.count_deliveries(beside, RUNS)
    store.count_deliveries(elsewhere, RUNS)
    change(store)
    for each in (store, reopened(journal, store)):
        assert each.deliveries(elsewhere) == RUNS
        assert (each.deliveries(KEY), each.deliveries(beside)) == (left, left_beside)


def test_many_runs_are_several_records_of_a_later_layout(journal, store):
    runs = [(2 * number, 2 * number + 1, 1) for number in range(2 * RECORD_RUNS + 1)]
    assert [len(change.runs) for change in counted(KEY, runs)] == [RECORD_RUNS, RECORD_RUNS, 1]
    before = len(journal.records)
    store.count_deliveries(KEY, runs)
    assert {record[0] for record in journal.records[before:]} == {5}
    counts = StoredCounts()
    for change in counted(KEY, runs):
        counts.apply(change)
    assert counts.get(KEY) == runs == reopened(journal, store).deliveries(KEY)
