import msgspec
import pytest

from braidlog.storage.errors import DamagedLog, StorageFull, UnwritableChange
from braidlog.storage.metadata.changes import (
    SNAPSHOT_GROWTH_DIVISOR,
    SNAPSHOT_GROWTH_MIN_BYTES,
    ChangeJournal,
)
from braidlog.storage.metadata.changes import UnknownRecord as Unknown
from braidlog.storage.metadata.ranges import RangeSet
from tests.storage.metadata.memory_journal import MemoryJournal


class Said(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=1):
    text: str


class Ranged(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=2):
    ranges: RangeSet | None


def opened(journal):
    return ChangeJournal(journal, Said | Ranged, "sayings")


def replayed(journal):
    changes = []
    opened(journal.reopened()).replay(changes.append)
    return changes


def test_changes_are_replayed_in_order():
    journal = MemoryJournal()
    changes = opened(journal)
    ranges = RangeSet()
    ranges.add(3, 9)
    sent = [Said("a"), Ranged(None), Ranged(ranges), Said("")]
    assert [changes.append(change) for change in sent] == [1, 2, 3, 4]
    assert changes.ticket == 4
    assert replayed(journal) == sent


def test_a_record_is_a_version_and_an_array_of_changes():
    journal = MemoryJournal()
    opened(journal).append(Said("hi"))
    assert journal.records == [bytes.fromhex("02 91 92 01 a2 6869")]


def test_joint_changes_are_a_single_record():
    journal = MemoryJournal()
    assert opened(journal).append(Said("a"), Said("b")) == 1
    assert journal.records == [bytes.fromhex("02 92 92 01 a1 61 92 01 a1 62")]
    assert replayed(journal) == [Said("a"), Said("b")]


def test_lazy_changes_have_no_ticket_until_they_are_settled():
    journal = MemoryJournal()
    changes = opened(journal)
    changes.append(Said("a"))
    assert changes.flush_lazy() == 1
    assert changes.append(Said("b"), lazy=True) == 0
    assert journal.lazy == 1
    assert changes.ticket == 1
    assert changes.flush_lazy() == 2
    assert changes.flush_lazy() == 2
    changes.append(Said("c"), lazy=True)
    assert changes.append(Said("d")) == 3
    assert changes.flush_lazy() == 3
    assert [change.text for change in replayed(journal)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "record",
    [
        "",
        "01",
        "01 91 92 03 a1 61",  # An unknown tag.
        "01 91 93 01 a1 61 c0",  # Too many fields.
        "01 91 91 01",  # Too few fields.
        "01 91 92 01 05",  # No text.
        "01 91 92 02 c4 03 000000",  # An incomplete range.
        "01 91 92 01 a2 61",  # Cut.
        "01 90 90",  # Trailing bytes.
    ],
)
def test_an_unreadable_record_is_damage_that_only_a_repair_skips(record):
    good = bytes.fromhex("01 91 92 01 a1 61")
    journal = MemoryJournal([bytes.fromhex(record), good])
    with pytest.raises(DamagedLog, match="cannot be read"):
        opened(journal).replay(lambda change: None)
    changes, lost = [], []
    opened(journal).replay(changes.append, lost.append)
    assert changes == [Said("a")]
    assert len(lost) == 1


def test_a_repair_reads_the_readable_changes_of_a_damaged_record():
    journal = MemoryJournal([bytes.fromhex("01 93 92 01 a1 61 92 01 c4 01 61 92 01 a1 62")])
    changes, lost = [], []
    opened(journal).replay(changes.append, lost.append)
    assert changes == [Said("a"), Said("b")]
    assert [record.reason for record in lost] == [
        "a change cannot be read: Expected `str`, got `bytes` - at `$[0][1]`"
    ]


@pytest.mark.parametrize("layout", ["00 90", "09 90"])
def test_a_record_of_another_layout_ends_every_replay(layout):
    for lost in (None, print):
        with pytest.raises(Unknown, match="sayings"):
            opened(MemoryJournal([bytes.fromhex(layout)])).replay(print, lost)


@pytest.mark.parametrize(
    "change",
    [Said(b"a"), Said(None), Said(5), Said("\ud800"), Said(1 << 70), Ranged("a")],
)
def test_an_unreadable_change_is_never_written(change):
    journal = MemoryJournal()
    changes = opened(journal)
    for lazy in (False, True):
        with pytest.raises(UnwritableChange, match="sayings: this cannot be stored"):
            changes.append(Said("a"), change, lazy=lazy)
    assert journal.records == []
    assert changes.append(Said("b")) == 1
    assert replayed(journal) == [Said("b")]


def test_a_record_about_a_missing_object_ends_the_replay():
    journal = MemoryJournal()
    opened(journal).append(Said("a"))
    with pytest.raises(DamagedLog, match="'a'"):
        opened(journal).replay(lambda change: {}[change.text])


def test_a_journal_is_shortened_after_growth_by_a_quarter():
    journal = MemoryJournal()
    changes = opened(journal)
    changes.replay(print)
    text = "x" * 100_000
    while not journal.snapshots:
        assert journal.size_bytes < SNAPSHOT_GROWTH_MIN_BYTES
        changes.append(Said(text))
        changes.snapshot_if_due([Said(text)] for _ in range(50))
    assert journal.snapshot_bytes > 4 * SNAPSHOT_GROWTH_MIN_BYTES
    changes.append(Said("y" * (journal.snapshot_bytes // SNAPSHOT_GROWTH_DIVISOR - 100)))
    changes.snapshot_if_due([])
    assert journal.snapshots == 1
    changes.append(Said(text))
    changes.snapshot_if_due([[Said("a"), Said("b")], [Said("c")]])
    assert journal.snapshots == 2
    assert len(journal.records) == 2
    assert [change.text for change in replayed(journal)] == ["a", "b", "c"]


def test_a_full_disk_delays_a_snapshot_and_affects_no_change():
    journal = MemoryJournal()
    changes = opened(journal)
    changes.replay(print)
    changes.append(Said("x" * SNAPSHOT_GROWTH_MIN_BYTES))
    journal.full = True
    changes.snapshot_if_due([[Said("x")]])
    with pytest.raises(StorageFull):
        changes.append(Said("y"))
    journal.full = False
    changes.snapshot_if_due([[Said("x")]])
    assert journal.snapshots == 0
    changes.append(Said("x" * SNAPSHOT_GROWTH_MIN_BYTES))
    changes.snapshot_if_due([[Said("x")]])
    assert journal.snapshots == 1
