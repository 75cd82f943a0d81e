import random

import pytest
from crc32c import crc32c

from braidlog.storage.formats.batch import ABSENT_US
from braidlog.storage.log.index import (
    ENTRY_BYTES,
    HEADER_BYTES,
    PENDING_ENTRIES_MAX,
    BadIndex,
    SparseIndex,
)
from braidlog.storage.log.local_files import LocalFiles
from tests.storage.log.layouts import INDEX_ENTRY, INDEX_HEADER
from tests.storage.log.logs import flip

SALT = 0xABCD


def new_index(tmp_path, entries=()):
    index = SparseIndex(LocalFiles(tmp_path), str(tmp_path / "0.index"), SALT, 100)
    index.create()
    for entry in entries:
        index.add(*entry)
    return index


def loaded(tmp_path):
    index = SparseIndex(LocalFiles(tmp_path), str(tmp_path / "0.index"), SALT, 100)
    index.load()
    return index


ENTRIES = [(110 + 10 * n, 64 + 1000 * n, 5000 + 7 * n) for n in range(50)]


def test_file_bytes_equal_the_format_page(tmp_path):
    new_index(tmp_path, [(110, 1064, None), (120, 2064, 77)]).flush()
    data = (tmp_path / "0.index").read_bytes()
    header = INDEX_HEADER.parse(data)
    assert (INDEX_HEADER.sizeof(), INDEX_ENTRY.sizeof()) == (HEADER_BYTES, ENTRY_BYTES)
    assert (header.salt, header.base_offset, header.crc) == (SALT, 100, crc32c(data[:28]))
    first, second = (INDEX_ENTRY.parse(data[pos : pos + 32]) for pos in (32, 64))
    assert (first.offset, first.file_pos, first.max_time_us) == (110, 1064, ABSENT_US)
    assert (second.offset, second.file_pos, second.max_time_us) == (120, 2064, 77)
    assert second.crc == crc32c(data[64:92], SALT)


@pytest.mark.parametrize("stored", [False, True])
def test_look_ups_return_the_last_entry_at_or_below(tmp_path, stored):
    index = new_index(tmp_path, ENTRIES)
    if stored:
        index.flush()
        index = loaded(tmp_path)
    for offset in range(100, 620):
        expected = [entry[:2] for entry in ENTRIES if entry[0] <= offset]
        assert index.floor(offset) == (expected[-1] if expected else None)
    for time_us in range(4990, 5400):
        expected = [entry[:2] for entry in ENTRIES if entry[2] < time_us]
        assert index.floor_time(time_us) == (expected[-1] if expected else None)


def test_entries_are_written_in_pieces(tmp_path):
    index = new_index(tmp_path, ENTRIES[:1])
    due = [index.add(201 + i, 90_000 + i, 6000) for i in range(PENDING_ENTRIES_MAX - 1)]
    assert due == [False] * (PENDING_ENTRIES_MAX - 2) + [True]
    index.flush()
    assert len(loaded(tmp_path)) == PENDING_ENTRIES_MAX
    assert not index.add(900, 99_000, 6000)
    index.flush()
    assert len(loaded(tmp_path)) == PENDING_ENTRIES_MAX + 1


@pytest.mark.parametrize("seed", range(20))
def test_a_wrong_entry_is_found_or_harmless(tmp_path, seed):
    rng = random.Random(seed)
    new_index(tmp_path, ENTRIES).flush()
    flip(tmp_path / "0.index", rng.randrange(HEADER_BYTES, HEADER_BYTES + 50 * ENTRY_BYTES))
    index = loaded(tmp_path)
    found_out = 0
    for offset in range(100, 620):
        expected = [entry[:2] for entry in ENTRIES if entry[0] <= offset]
        try:
            assert index.floor(offset) == (expected[-1] if expected else None)
        except BadIndex:
            found_out += 1
    assert found_out > 0


def test_an_index_of_another_segment_or_version_is_refused(tmp_path):
    new_index(tmp_path, ENTRIES).flush()
    other = SparseIndex(LocalFiles(tmp_path), str(tmp_path / "0.index"), SALT + 1, 100)
    with pytest.raises(BadIndex, match="header"):
        other.load()
    flip(tmp_path / "0.index", 8)
    with pytest.raises(BadIndex, match="header"):
        loaded(tmp_path)


def test_half_an_entry_at_the_end_is_left_out(tmp_path):
    new_index(tmp_path, ENTRIES).flush()
    path = tmp_path / "0.index"
    path.write_bytes(path.read_bytes()[:-1])
    index = loaded(tmp_path)
    assert len(index) == 49
    index.add(*ENTRIES[-1])
    index.flush()
    assert loaded(tmp_path).last() == ENTRIES[-1]


def test_entries_behind_a_place_are_dropped_in_the_file_too(tmp_path):
    new_index(tmp_path, ENTRIES).flush()
    index = loaded(tmp_path)
    index.cut(10_064)
    assert index.last() == ENTRIES[10]
    index.flush()
    assert len(loaded(tmp_path)) == 11


def test_rebuilt_entries_replace_all_others_in_the_file_too(tmp_path):
    new_index(tmp_path, ENTRIES).flush()
    flip(tmp_path / "0.index", HEADER_BYTES + 49 * ENTRY_BYTES + 3)
    index = loaded(tmp_path)
    built = [(1, 64, 1), (5, 12_000, 2)]
    index.fill(built)
    index.flush()
    assert [loaded(tmp_path).entry(number) for number in range(len(index))] == built
