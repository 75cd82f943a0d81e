"""Reads that would hold up the loop go to a thread: of pages that are not in memory, and of pages
that the kernel has just read ahead, since their first copy is slow.
"""

import errno

import pytest

from braidlog.storage.errors import WouldBlock
from braidlog.storage.log import local_files
from braidlog.storage.log.local_files import SLOW_READ_NS_MIN, TIMED_BYTES_MIN
from braidlog.storage.log.segment import SLOW_READS
from braidlog.storage.log.segment_reading import Trusted
from tests.storage.files_twins import FailingDisk
from tests.storage.log.logs import FORMAT, OneLog

BODY_BYTES = TIMED_BYTES_MIN
BATCHES = 4


class SteppedTime:
    """A thread's processor time: each look at it is `step_ns` after the last."""

    def __init__(self):
        self.now_ns = self.step_ns = 0

    def __call__(self):
        self.now_ns += self.step_ns
        return self.now_ns


@pytest.fixture
def clock(monkeypatch):
    clock = SteppedTime()
    monkeypatch.setattr(local_files, "thread_time_ns", clock)
    return clock


@pytest.fixture
def opened(tmp_path, clock):
    opened = OneLog(tmp_path, FailingDisk())
    opened.fill([bytes([number]) * BODY_BYTES for number in range(BATCHES)])
    return opened


def read_now(opened, offset):
    """Return the offsets that a read without a wait returns."""
    batches = opened.log.read(offset, BODY_BYTES, wait=False, trusted=Trusted(FORMAT))
    return [batch.base_offset for batch in batches]


def make_slow(opened, clock):
    """Read in the loop what the kernel reads ahead meanwhile."""
    clock.step_ns = SLOW_READ_NS_MIN + 1
    with pytest.raises(WouldBlock):
        read_now(opened, 0)
    clock.step_ns = 0


def test_a_quick_read_stays_in_the_loop(opened, clock):
    clock.step_ns = SLOW_READ_NS_MIN
    assert read_now(opened, 0) == [0]


def test_a_slow_read_and_those_behind_it_go_to_a_thread(opened, clock):
    make_slow(opened, clock)
    opened.files.disk.fail("read_cached", errno.EIO)  # The loop does not even try.
    for offset in range(BATCHES - 1):
        with pytest.raises(WouldBlock):
            read_now(opened, offset)


def test_a_missing_page_sends_the_reads_behind_it_to_a_thread(opened):
    opened.files.disk.fail("read_cached", errno.EAGAIN)
    with pytest.raises(WouldBlock):
        read_now(opened, 0)
    opened.files.disk.heal()
    with pytest.raises(WouldBlock):
        read_now(opened, 1)


def test_bytes_that_a_thread_has_read_are_read_in_the_loop(opened, clock):
    make_slow(opened, clock)
    for offset in range(BATCHES):
        opened.log.read(offset, BODY_BYTES)
    assert [read_now(opened, offset) for offset in range(BATCHES)] == [[0], [1], [2], [3]]


def test_a_slow_read_is_checked_again(opened, clock):
    place = opened.all_batches()[0].file_pos
    with open(opened.log.segment_set.last.path, "r+b") as file:
        file.seek(place + 1000)
        file.write(b"\1damage\1")
    assert read_now(opened, 0) == [0]  # Written by this process, and in memory since.
    make_slow(opened, clock)
    with pytest.raises(Exception, match="body checksum"):
        opened.log.read(0, BODY_BYTES)


def test_the_tail_stays_in_the_loop_beside_a_slow_reader(opened, clock):
    make_slow(opened, clock)
    opened.fill([b"tail"])
    assert read_now(opened, BATCHES) == [BATCHES]
    opened.fill([b"large" * BODY_BYTES])
    assert read_now(opened, BATCHES + 1) == [BATCHES + 1]


def test_the_loop_tries_again_after_many_reads_in_threads(opened, clock):
    make_slow(opened, clock)
    for _ in range(SLOW_READS):
        with pytest.raises(WouldBlock):
            read_now(opened, 1)
        opened.log.read(0, BODY_BYTES)
    assert read_now(opened, 1) == [1]
