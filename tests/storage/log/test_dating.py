"""The age of a segment from before this start comes from its batches."""

import os

import pytest

from braidlog.storage.log.dating import append_times, newest_append_us
from braidlog.storage.log.scan import CHUNK_BYTES, BadBatch
from tests.storage.log.logs import OneLog, flip

NOW_US = 1_700_000_000_000_000


@pytest.fixture
def opened(tmp_path):
    opened = OneLog(tmp_path)
    for number in range(10):
        slow_us = 7_200_000_000 if number == 9 else 0
        opened.append(b"x" * 200, append_us=NOW_US + number - slow_us)
    opened.commit()
    return opened


def test_the_greatest_append_time_counts_not_the_last(opened):
    assert newest_append_us(opened.log.segment_set.last) == NOW_US + 8


def test_a_damaged_batch_is_passed_over(opened):
    segment = opened.log.segment_set.last
    flip(segment.path, 64 + 8 * (128 + 200) + 50)
    assert newest_append_us(segment) == NOW_US + 7
    flip(segment.path, 64 + 50)
    assert newest_append_us(segment) == NOW_US + 7


def test_a_segment_without_header_has_no_age(opened):
    opened.stop()
    flip(opened.file(f"{0:020d}.log"), 20)
    again = OneLog(opened.path)
    segment = again.log.segment_set.view.segments[0]
    assert newest_append_us(segment) == 0
    with pytest.raises(BadBatch):
        list(append_times(segment))


def test_a_large_segment_is_read_in_pieces_and_its_bodies_are_not(tmp_path):
    opened = OneLog(tmp_path)
    for number in range(40):
        opened.append(bytes(CHUNK_BYTES // 4), append_us=NOW_US - number)
    opened.commit()
    segment = opened.log.segment_set.last
    times = list(append_times(segment))
    assert set(times[1:]) == {NOW_US} and len(times) > 10
    assert os.path.getsize(segment.path) > 9 * CHUNK_BYTES
