"""Retention as a partition log carries it out; test_retention.py has the decision itself."""

import errno
import os

import pytest

from storage.errors import OffsetOutOfRange, StorageFailed
from storage.log.segment_set import SegmentSet
from tests.storage.files_twins import FailingDisk, RecordingDisk
from tests.storage.log.logs import OneLog, before_and_after_restart, segment_names


def test_retention_drops_whole_segments_and_refuses_readers_at_once(tmp_path):
    one = OneLog(tmp_path, segment_bytes=1000, retention_bytes=2000)
    one.fill([b"x" * 800] * 5)
    assert one.log.retain(now_us=0) == 2
    assert one.log.log_start_offset == 2
    with pytest.raises(OffsetOutOfRange):
        one.log.read(1, 100)
    assert len(segment_names(one.folder)) == 5
    one.commit()
    assert segment_names(one.folder) == [f"{base:020d}.log" for base in (2, 3, 4)]
    assert not os.path.exists(one.file("00000000000000000000.index"))
    assert one.log.retain(now_us=0) == 0
    one.crash()
    again = one.again()
    assert (again.log.log_start_offset, again.log.log_end_offset) == (2, 5)


def test_retention_that_a_crash_interrupts_is_finished_by_the_next_start(tmp_path):
    disk = FailingDisk()
    one = OneLog(tmp_path, disk, segment_bytes=1000, retention_bytes=2000)
    one.fill([b"x" * 800] * 5)
    one.log.retain(now_us=0)
    disk.fail("unlink", errno.EIO)
    with pytest.raises(StorageFailed):
        one.commit()
    one.crash()
    again = one.again()
    assert segment_names(one.folder) == [f"{base:020d}.log" for base in (2, 3, 4)]
    assert (again.log.log_start_offset, again.log.recovery.is_clean) == (2, True)


def test_files_that_a_read_only_disk_keeps_go_with_the_next_ones(tmp_path):
    disk = FailingDisk()
    one = OneLog(tmp_path, disk, segment_bytes=1000, retention_bytes=2000)
    one.fill([b"x" * 800] * 5)
    assert one.log.retain(now_us=0) == 2
    disk.fail("unlink", errno.EROFS)
    one.commit()
    assert len(segment_names(one.folder)) == 5
    disk.heal()
    one.fill([b"x" * 800])
    assert one.log.retain(now_us=0) == 1
    one.commit()
    assert segment_names(one.folder) == [f"{base:020d}.log" for base in (3, 4, 5)]


def test_the_new_log_start_is_durable_before_a_file_goes(tmp_path):
    disk = RecordingDisk()
    one = OneLog(tmp_path, disk, segment_bytes=1000, retention_bytes=0)
    one.fill([b"x" * 800] * 3)
    del disk.calls[:]
    one.log.retain(now_us=0)
    one.commit()
    names = disk.names()
    assert names.index("write") < min(names.index(n) for n in names if n.startswith("sync"))
    assert names.index("unlink") > max(n for n, name in enumerate(names) if name.startswith("sync"))


def test_what_is_dropped_while_a_round_runs_goes_with_the_next_one(tmp_path):
    """That round did not sync the second log start, nor the segment that all is left in."""
    one = OneLog(tmp_path, segment_bytes=1000)
    one.fill([b"x" * 800] * 4)
    one.log.delete_below(1)
    running = one.committer.begin()
    one.log.drop()
    one.committer.sync(running)
    one.committer.finish(running)
    assert segment_names(one.folder) == [f"{base:020d}.log" for base in (1, 2, 3, 4)]
    one.commit()
    assert segment_names(one.folder) == [f"{4:020d}.log"]


class InterruptedSegments(SegmentSet):
    """Segments between whose look-up and a reader's look at the log start something happens."""

    def read(self, want):
        between, self.between = self.between, lambda: None
        between()
        return super().read(want)


def test_a_reader_that_retention_overtakes_is_told_and_gets_nothing_else(tmp_path):
    """It has seen that its offset is kept, and then finds other segments."""
    one = OneLog(tmp_path, segment_bytes=1000)
    one.fill([b"x" * 800] * 4)
    segments = InterruptedSegments(one.log._segments.view.segments, 1000)
    one.log._segments = segments
    segments.between = lambda: one.log.delete_below(3)
    with pytest.raises(OffsetOutOfRange) as caught:
        one.log.read(1, 1)
    assert (caught.value.offset, caught.value.log_start_offset) == (1, 3)


def test_an_old_newest_segment_is_closed_so_that_it_can_go(tmp_path):
    one = OneLog(tmp_path, retention_ms=1000)
    one.append(b"x", append_us=5_000_000)
    one.commit()
    assert one.log.retain(now_us=6_000_000) == 0
    assert one.log.retain(now_us=6_000_001) == 1
    one.commit()
    assert (one.log.log_start_offset, one.log.log_end_offset) == (1, 1)
    assert one.append(b"y") == 1
    one.commit()
    assert one.all_bodies() == [b"y"]


def test_what_is_not_durable_is_not_dropped(tmp_path):
    one = OneLog(tmp_path, segment_bytes=300, retention_bytes=0)
    one.fill([b"x" * 100] * 4, commit=False)
    assert one.log.retain(now_us=0) == 0


def test_records_below_an_offset_are_deleted_for_good(tmp_path):
    one = OneLog(tmp_path, segment_bytes=300)
    for _ in range(4):
        one.append(bytes(200), 2)
        one.commit()
    bases = [base for base, _, _ in one.log.segments()]
    middle = bases[1] + 1  # Within a batch.
    assert one.log.delete_below(middle) == 1
    assert one.log.delete_below(middle - 1) == 0
    one.commit()
    for log in before_and_after_restart(one):
        assert log.log_start_offset == middle
        with pytest.raises(OffsetOutOfRange):
            log.read(middle - 1, 100)
        assert log.read(middle, 100)[0].base_offset == bases[1]


def test_no_more_is_deleted_than_is_durable_and_the_end_stays(tmp_path):
    one = OneLog(tmp_path)
    one.append(b"a", 3)
    assert one.log.delete_below(3) == 0
    assert one.log.log_start_offset == 0
    one.commit()
    assert one.log.delete_below(3) == 1
    one.commit()
    for log in before_and_after_restart(one):
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)
