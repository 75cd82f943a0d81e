"""Delivery counts of records that came back."""

from braidlog.broker.delivery.counts import DeliveryCounts


def test_runs_have_equal_counts():
    counts = DeliveryCounts()
    assert list(counts.runs(0, 5)) == [(0, 5, 0)]
    counts.came_back(1, 3, 2)
    assert list(counts.runs(0, 5)) == [(0, 1, 0), (1, 3, 2), (3, 5, 0)]
    assert counts.of(2) == 2


def test_acknowledged_records_have_no_count():
    counts = DeliveryCounts()
    counts.came_back(0, 4, 1)
    counts.forget(1, 2)
    counts.forget(3, 1_000_000)
    assert list(counts.runs(0, 4)) == [(0, 1, 1), (1, 2, 0), (2, 3, 1), (3, 4, 0)]
    counts.clear()
    assert not counts


def test_the_oldest_counts_go_first():
    counts = DeliveryCounts(counted_max=2)
    counts.came_back(5, 6, 1)
    counts.came_back(0, 2, 1)
    assert [counts.of(offset) for offset in (0, 1, 5)] == [1, 1, 0]


def test_stored_counts_are_loaded():
    counts = DeliveryCounts()
    counts.came_back(7, 9, 1)
    counts.came_back(3, 5, 2)
    counts.came_back(5, 6, 1)
    runs = [(3, 5, 2), (5, 6, 1), (7, 9, 1)]
    assert counts.all_runs() == runs
    again = DeliveryCounts()
    assert again.all_runs() == [] and not again.is_counting
    again.load(runs)
    assert again.all_runs() == runs and again.is_counting
