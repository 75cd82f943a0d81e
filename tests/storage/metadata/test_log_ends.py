"""Durable ends of logs in the cursors' journal."""

from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.metadata.log_ends import EndsSet, LogEnds
from tests.storage.metadata.memory_journal import MemoryJournal

GROUP = b"group"


def test_only_new_ends_are_written():
    ends = LogEnds()
    assert ends.news({}) is None and ends.news({1: 0}) is None and ends.state() == []
    ends.apply(EndsSet({1: 5, 2: 7}))
    assert ends.news({1: 5, 2: 6}) is None
    assert ends.news({1: 6, 2: 7, 3: 1}) == EndsSet({1: 6, 3: 1})
    assert ends.news({1: 0, 9: 0}) == EndsSet({1: 0})
    assert ends.gone([1, 3]) == EndsSet({2: 0})
    assert ends.gone([1, 2]) is None
    ends.apply(EndsSet({2: 0, 8: 0}))
    assert (ends.get(1), ends.get(2)) == (5, 0)
    assert ends.state() == [EndsSet({1: 5})]


def test_ends_survive_a_restart_and_a_snapshot():
    journal = MemoryJournal()
    store = JournalPositions(journal)
    store.open(1, GROUP, partitions=1)
    store.set_ends(store.ends.news({1: 5, 2: 1 << 40}))
    store.set_ends(None)
    store.flush_lazy()
    again = JournalPositions(journal.reopened())
    assert again.ends.state() == [EndsSet({1: 5, 2: 1 << 40})]
    again.rewrite()
    assert again.ends.state() == store.ends.state()


def test_earlier_programs_refuse_a_record_with_ends():
    journal = MemoryJournal()
    store = JournalPositions(journal)
    store.set_ends(EndsSet({1: 5}))
    store.open(1, GROUP, partitions=1)
    assert {record[0] for record in journal.records} == {2, 4}
