"""The model of a disk that loses power: the data that stays, and the data that may be lost."""

import random

import pytest

from conformance.simulation.calls import (
    CREATE,
    RENAME,
    ROOT,
    SYNC_ALL,
    SYNC_FILE,
    SYNC_FOLDER,
    TRUNCATE,
    UNLINK,
    WRITE,
    DiskCall,
)
from conformance.simulation.medium import (
    ALL_KEPT,
    DATA_ONLY,
    NAMES_ONLY,
    NOTHING_KEPT,
    PAGE,
    SECTOR,
    Medium,
    choose_loss,
)

FILE = 1


def write(data, pos=0, node=FILE):
    return DiskCall(WRITE, node, data=data, pos=pos)


def medium_of(*calls):
    medium = Medium()
    for call in (DiskCall(CREATE, ROOT, "f", FILE), *calls):
        medium.take(call)
    return medium


def cuts(medium, count=300):
    rng = random.Random(1)
    return [medium.cut(rng, choose_loss(rng)).files for _ in range(count)]


NAMED = (DiskCall(SYNC_FOLDER, ROOT), write(b"a" * 2000), DiskCall(SYNC_FILE, FILE))


def test_synced_data_always_survives():
    assert all(files == {"f": b"a" * 2000} for files in cuts(medium_of(*NAMED)))
    everything = medium_of(write(b"a" * 2000), DiskCall(SYNC_ALL, ROOT))
    assert all(files == {"f": b"a" * 2000} for files in cuts(everything))


@pytest.mark.parametrize(
    ("loss", "left"),
    [
        (NOTHING_KEPT, {}),
        (ALL_KEPT, {"f": b"data"}),
        (NAMES_ONLY, {"f": b""}),
        (DATA_ONLY, {}),
    ],
)
def test_name_and_data_are_lost_independently(loss, left):
    assert medium_of(write(b"data")).cut(random.Random(1), loss).files == left


def test_a_synced_file_without_a_synced_name_may_be_gone():
    outcomes = cuts(medium_of(write(b"a"), DiskCall(SYNC_FILE, FILE)))
    assert {files.get("f") for files in outcomes} == {None, b"a"}


def test_an_unsynced_write_is_torn_only_at_sectors():
    old, new = b"a" * 2000, b"b" * 2000
    contents = {files["f"] for files in cuts(medium_of(*NAMED, write(new)), 2000)}
    assert {old, new} < contents
    for content in contents:
        sectors = [content[pos : pos + SECTOR] for pos in range(0, 2000, SECTOR)]
        assert all(len(set(sector)) == 1 for sector in sectors)


def test_a_file_may_grow_without_its_data():
    contents = {files["f"] for files in cuts(medium_of(*NAMED, write(b"b" * 3000, 2000)), 2000)}
    assert all(content.startswith(b"a" * 2000) for content in contents)
    assert any(set(content[2000:]) == {0} for content in contents)
    assert any(2000 < len(content) < 5000 for content in contents)


def test_a_cut_may_be_undone():
    contents = {files["f"] for files in cuts(medium_of(*NAMED, DiskCall(TRUNCATE, FILE, pos=10)))}
    assert {b"a" * 10, b"a" * 2000} <= contents


def test_names_may_be_kept_in_any_order():
    calls = [DiskCall(CREATE, ROOT, f"g{number}", number) for number in range(2, 6)]
    outcomes = cuts(medium_of(*calls), 2000)
    assert any("g5" in files and "g2" not in files for files in outcomes)


def test_a_rename_is_atomic():
    renamed = DiskCall(RENAME, ROOT, "f", FILE, to_node=ROOT, to_name="new")
    outcomes = cuts(medium_of(*NAMED, renamed))
    assert {tuple(files) for files in outcomes} == {("f",), ("new",)}


def test_a_removed_file_may_still_exist():
    outcomes = cuts(medium_of(*NAMED, DiskCall(UNLINK, ROOT, "f", FILE)))
    assert {files.get("f") for files in outcomes} == {None, b"a" * 2000}


def failed_sync():
    return DiskCall(SYNC_FILE, FILE, failed=True)


def test_no_later_sync_covers_the_data_of_a_failed_sync():
    medium = medium_of(*NAMED, write(b"b", 2000), failed_sync(), DiskCall(SYNC_FILE, FILE))
    assert medium.whole().files == {"f": b"a" * 2000 + b"b"}
    assert medium.cut(random.Random(1), NOTHING_KEPT).files == {"f": b"a" * 2000}


def test_a_rewritten_page_is_synced_again():
    medium = medium_of(*NAMED, write(b"b" * PAGE, 2000), failed_sync())
    for call in (write(b"c", 2000), DiskCall(SYNC_FILE, FILE)):
        medium.take(call)
    content = medium.cut(random.Random(1), NOTHING_KEPT).files["f"]
    assert content == b"a" * 2000 + b"c" + b"b" * (PAGE - 2001)
