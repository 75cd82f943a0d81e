"""A journal whose records are the ledger's rows."""

import pytest

from braidlog.storage.errors import DamagedLog, LogClosed
from braidlog.storage.log.committer import Committer
from braidlog.storage.shared.journal import NOTHING, LedgerJournal
from braidlog.storage.shared.ledger import SNAPSHOT, JournalRow


class RecordingKeeper:
    """Records the rounds' rows."""

    def __init__(self):
        self.rows, self.snapshots = [], []

    def wait_s(self, members):
        return 0.0

    def keep(self, points):
        for point in points:
            self.rows += point.rows
            self.snapshots += point.snapshots


@pytest.fixture
def keeper():
    return RecordingKeeper()


def opened(keeper, rows=()):
    committer = Committer(None, keeper=keeper)
    return LedgerJournal(0, 2, list(rows), committer), committer


def bodies(journal):
    return list(journal.replay())


def test_records_get_places_in_order_with_lazy_records_first(keeper):
    journal, committer = opened(keeper)
    journal.append_lazy(b"lazy")
    assert journal.append(b"one") == 1
    committer.commit()
    journal.append_lazy(b"two")
    committer.commit()
    assert keeper.rows == [
        JournalRow(0, 1, 2, b"lazy"),
        JournalRow(0, 2, 2, b"one"),
        JournalRow(0, 3, 2, b"two"),
    ]
    again, committer = opened(keeper, keeper.rows)
    assert bodies(again) == [b"lazy", b"one", b"two"] and again.size_bytes == 10
    again.append(b"three")
    committer.commit()
    assert keeper.rows[-1].place == 4


def test_a_snapshot_replaces_earlier_and_waiting_records(keeper):
    journal, committer = opened(keeper)
    journal.append(b"one")
    committer.commit()
    journal.append(b"waiting")
    journal.append_lazy(b"lazy")
    journal.snapshot([b"all", b"of it"])
    journal.append(b"after")
    committer.commit()
    # Readers of positions may know the places of the waiting rows: nothing else gets them.
    assert keeper.snapshots == [(0, 2, 4)]
    assert [(row.place, row.kind, row.body) for row in keeper.rows[1:]] == [
        (4, 2 + SNAPSHOT, b"all"),
        (5, 2 + SNAPSHOT, b"of it"),
        (6, 2, b"after"),
    ]
    again, _ = opened(keeper, keeper.rows[1:])
    assert bodies(again) == [b"all", b"of it", b"after"] and again.next_place == 7
    assert journal.snapshot_bytes == 8 and journal.size_bytes == 13
    again, _ = opened(keeper, keeper.rows[1:])
    assert again.snapshot_bytes == 8


def test_an_empty_snapshot_has_a_row(keeper):
    journal, committer = opened(keeper)
    journal.snapshot([])
    committer.commit()
    assert [row.body for row in keeper.rows] == [NOTHING]


def test_a_missing_row_is_damage(keeper):
    rows = [JournalRow(0, place, 2, b"x") for place in (1, 2, 4)]
    with pytest.raises(DamagedLog):
        opened(keeper, rows)
    with pytest.raises(DamagedLog):
        opened(keeper, rows[1:2])
    journal, _ = opened(keeper, rows[:2])
    next(journal.replay())
    assert "place" not in str(journal.damage("odd")) and "odd" in str(journal.damage("odd"))


def test_a_closed_journal_takes_nothing(keeper):
    journal, _ = opened(keeper)
    journal.close()
    for call in (journal.append, journal.append_lazy, lambda body: journal.snapshot([body])):
        with pytest.raises(LogClosed):
            call(b"x")
