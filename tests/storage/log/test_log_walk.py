import os

import pytest

from braidlog.storage.log.log_walk import LogWalk, Missing, Overlap
from braidlog.storage.log.scan import BadBatch
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from tests.storage.log.logs import OneLog, flip


@pytest.fixture
def segments(tmp_path):
    """Return four segments of two batches each, a record per batch."""
    opened = OneLog(tmp_path, segment_bytes=700)
    opened.fill([b"x" * 100] * 8)
    segments_open = list(opened.log.segment_set.view.segments)
    assert [segment.base_offset for segment in segments_open] == [0, 2, 4, 6]
    yield segments_open
    opened.crash()


def offsets(walk):
    return [header.base_offset for _, _, header in walk.batches(0)]


def test_a_walk_covers_all_segments_and_finds_the_durable_offset(segments):
    walk = LogWalk(segments, proven=0)
    assert offsets(walk) == list(range(8))
    assert (walk.offset, walk.number, walk.proven) == (8, 3, 7)


def test_a_walk_begins_at_the_requested_offset(segments):
    walk = LogWalk(segments, proven=0)
    places = [(header.base_offset, pos) for _, pos, header in walk.batches(0)]
    walk.resume(2, places[5])
    assert offsets(walk) == [5, 6, 7]
    walk.resume(3)
    assert offsets(walk) == [6, 7]


def test_missing_records_end_a_walk_that_can_continue_behind_them(segments):
    walk = LogWalk([segments[0], *segments[2:]], proven=0)
    with pytest.raises(Missing) as caught:
        offsets(walk)
    fault = caught.value
    assert (fault.path, fault.file_pos) == (segments[0].path, segments[0].size)
    assert (fault.offset, fault.next_offset) == (2, 4)
    walk.resume(walk.number + 1)
    assert offsets(walk) == [4, 5, 6, 7]


def test_a_log_that_ends_below_its_durable_offset_lacks_records(segments):
    walk = LogWalk(segments[:2], proven=6)
    with pytest.raises(Missing) as caught:
        offsets(walk)
    assert (caught.value.offset, caught.value.next_offset) == (4, 6)


def test_a_segment_that_begins_too_early_is_an_overlap(segments):
    walk = LogWalk([segments[0], segments[0], segments[1]], proven=0)
    with pytest.raises(Overlap, match=os.path.basename(segments[0].path)) as caught:
        offsets(walk)
    assert (caught.value.file_pos, caught.value.offset, walk.number) == (0, 2, 0)
    walk.resume(1)
    assert offsets(walk) == [0, 1, 2, 3]


def test_a_fault_does_not_move_the_walk(segments):
    flip(segments[1].path, SEGMENT_HEADER_BYTES + 3)
    walk = LogWalk(segments, proven=0)
    batches = walk.batches(0)
    assert [next(batches)[2].base_offset for _ in range(2)] == [0, 1]
    with pytest.raises(BadBatch) as caught:
        next(batches)
    assert (caught.value.file_pos, walk.number, walk.offset) == (SEGMENT_HEADER_BYTES, 1, 2)


@pytest.mark.parametrize(("stop", "walked"), [(4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4]), (1, [0])])
def test_a_walk_beside_a_writer_ends_at_the_durable_offset(segments, stop, walked):
    walk = LogWalk(segments, proven=stop, stop=stop)
    assert offsets(walk) == walked
    assert walk.offset == stop


def test_a_log_without_segments_has_no_batches():
    assert offsets(LogWalk([], proven=0)) == []
