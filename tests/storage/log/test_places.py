"""Places of offsets and times, with an index, without an index, and during its construction."""

import os
import random

import pytest

from braidlog.storage.errors import WouldBlock
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.log.places import build_index, place_of_offset, searched_place
from braidlog.storage.log.scan import BadBatch
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.segment_reading import Want, read_batches
from tests.storage.log.logs import OneLog, flip

INTERVAL = 300
FIRST = "00000000000000000000"


def filled(tmp_path, **settings):
    """Return a log with eight batches of ten records."""
    opened = OneLog(tmp_path, index_interval_bytes=INTERVAL, **settings)
    opened.fill([b"%d" % number * 100 for number in range(8)], 10)
    return opened, opened.log.segment_set.last


@pytest.mark.parametrize("seed", range(5))
def test_an_offset_is_found_equally_near_without_an_index(tmp_path, seed):
    print("seed", seed)
    rng = random.Random(seed)
    opened = OneLog(tmp_path, index_interval_bytes=INTERVAL)
    bodies = [rng.randbytes(rng.choice((5, 30, 300, 3000))) for _ in range(150)]
    for body in bodies:
        opened.append(body, rng.choice((1, 1, 7)))
    opened.commit()
    batches = opened.all_batches()
    segment = opened.log.segment_set.last
    for batch in batches:
        for offset in (batch.base_offset, batch.next_offset - 1):
            place = searched_place(segment, offset, INTERVAL)
            (indexed,) = [candidate for candidate in batches if candidate.base_offset == place[0]]
            assert indexed.file_pos == place[1] <= batch.file_pos
            assert batch.file_pos - place[1] <= INTERVAL + indexed.header.stored_bytes


@pytest.mark.parametrize("tail", [b"", bytes(5000), b"\xf3BA\xd7" * 1000])
def test_bytes_behind_the_last_batch_do_not_mislead_a_search(tmp_path, tail):
    _, segment = filled(tmp_path)
    with open(segment.path, "ab") as file:
        file.write(tail)
    segment.size += len(tail)
    for offset in range(80):
        place = searched_place(segment, offset, INTERVAL)
        assert read_batches(segment, place, Want(offset, 80, 0))[0].base_offset == offset // 10 * 10


def test_an_index_is_built_around_damage(tmp_path):
    opened, segment = filled(tmp_path)
    fourth = opened.log.read(30, 0)[0].file_pos
    flip(opened.file(f"{FIRST}.log"), fourth + 9)
    index = build_index(segment, INTERVAL)
    places = [index.entry(number)[:2] for number in range(len(index))]
    assert (40, fourth + 228) in places
    assert places[-1] == (80, segment.size)
    assert place_of_offset(segment, 45, INTERVAL) == (40, fourth + 228)
    with pytest.raises(BadBatch):
        read_batches(segment, place_of_offset(segment, 30, INTERVAL), Want(30, 80, 0))


def test_records_behind_damage_are_read_without_an_index_too(tmp_path):
    opened, segment = filled(tmp_path)
    flip(opened.file(f"{FIRST}.log"), opened.log.read(30, 0)[0].file_pos + 9)
    segment.lose_index()
    for offset in (0, 25, 40, 45, 79):
        place = place_of_offset(segment, offset, INTERVAL)
        assert read_batches(segment, place, Want(offset, 80, 0))[0].base_offset == offset // 10 * 10


def test_a_read_without_waiting_needs_the_index_in_memory(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=1000, index_interval_bytes=INTERVAL)
    opened.fill([b"x" * 100] * 20)
    opened.stop()
    opened = opened.again(segment_bytes=1000, index_interval_bytes=INTERVAL)
    offset = opened.log.segment_set.view.segments[1].base_offset + 2
    with pytest.raises(WouldBlock):
        opened.log.read(offset, 0, wait=False)
    assert opened.log.read(offset, 0)[0].base_offset == offset
    assert opened.log.read(offset + 1, 0, wait=False)[0].base_offset == offset + 1
    assert opened.log.read(offset, 0, wait=False)[0].base_offset == offset


def lost(tmp_path, **settings):
    """Return a log whose newest segment has no index, as after a start with an outdated index."""
    opened, segment = filled(tmp_path, **settings)
    segment.lose_index()
    return opened, segment


def test_the_newest_segment_works_without_its_index(tmp_path):
    opened, segment = lost(tmp_path, segment_bytes=4000)
    opened.fill([b"more"] * 50)
    assert segment is not opened.log.segment_set.last
    assert segment.index_in_memory is None
    assert not os.path.exists(opened.file(f"{FIRST}.index"))
    assert [opened.log.read(offset, 0)[0].base_offset for offset in range(80, 130)] == [
        *range(80, 130)
    ]
    assert opened.log.read(15, 0)[0].base_offset == 10


def test_a_search_by_time_rebuilds_a_lost_index_for_later_entries(tmp_path):
    """Times from before the construction count for later entries, though the owner does not know
    them.
    """
    opened, segment = lost(tmp_path)
    segment.max_time_us = None
    opened.append(append_us=5)  # Older than all before: the clock was set back.
    opened.commit()
    assert opened.log.offset_at_or_after(1_000_003) == 30
    for _ in range(20):
        opened.append(append_us=6)
    opened.commit()
    index = segment.index_in_memory
    assert index is not None
    assert index.last()[0] > 90
    assert index.last()[2] == 1_000_007
    assert opened.log.offset_at_or_after(1_000_007) == 70
    assert opened.log.offset_at_or_after(1_000_008) == opened.log.high_watermark


def test_an_index_includes_appends_during_its_construction(tmp_path, monkeypatch):
    opened, segment = lost(tmp_path)
    end_pos = segment.size
    opened.fill([b"y" * 100] * 10)
    full, sizes = segment.size, iter([end_pos])

    class Growing(type(segment)):
        size = property(lambda self: next(sizes, full), lambda self, size: None)

    segment.__class__ = Growing
    index = build_index(segment, INTERVAL)
    assert index.last()[:2] == (90, full)
    assert place_of_offset(segment, 88, INTERVAL)[1] > end_pos


def test_a_rebuilt_index_of_a_full_segment_is_written(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=1000, index_interval_bytes=INTERVAL)
    opened.fill([b"x" * 100] * 20)
    first = opened.log.segment_set.view.segments[0]
    first.drop_index()
    path = opened.file(f"{FIRST}.index")
    with open(path, "rb") as file:
        whole = file.read()
    os.unlink(path)
    assert opened.log.offset_at_or_after(1_000_002) == 2
    with open(path, "rb") as file:
        assert file.read() == whole


def test_sizes_between_offsets_need_no_read(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=1000, index_interval_bytes=INTERVAL)
    opened.fill([b"x" * 100] * 20)
    assert opened.log.bytes_between(1, 19) >= 18 * (HEADER_BYTES + 100)
    for segment in opened.log.segment_set.view.segments:
        segment.drop_index()
        segment.header = None
    between = opened.log.bytes_between(1, 18)
    assert between <= opened.log.size_bytes - SEGMENT_HEADER_BYTES
    assert between >= 17 * (HEADER_BYTES + 100)
