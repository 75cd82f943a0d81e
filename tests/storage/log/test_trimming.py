"""Retention as a partition log carries it out; test_retention.py checks the decision."""

import errno
import os

import pytest

from braidlog.storage.errors import OffsetOutOfRange, StorageFailed
from braidlog.storage.log.settings import LogSettings
from tests.storage.files_twins import FailingDisk, RecordingDisk
from tests.storage.log.logs import OneLog, before_and_after_restart, segment_names


def test_retention_drops_whole_segments_and_refuses_readers_at_once(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=1000, retention_bytes=2000)
    opened.fill([b"x" * 800] * 5)
    assert opened.log.retain(now_us=0) == 2
    assert opened.log.log_start_offset == 2
    with pytest.raises(OffsetOutOfRange):
        opened.log.read(1, 100)
    assert len(segment_names(opened.folder)) == 5
    opened.commit()
    assert segment_names(opened.folder) == [f"{base:020d}.log" for base in (2, 3, 4)]
    assert not os.path.exists(opened.file("00000000000000000000.index"))
    assert opened.log.retain(now_us=0) == 0
    opened.crash()
    again = opened.again()
    assert (again.log.log_start_offset, again.log.log_end_offset) == (2, 5)


def test_interrupted_retention_is_finished_by_the_next_start(tmp_path):
    disk = FailingDisk()
    opened = OneLog(tmp_path, disk, segment_bytes=1000, retention_bytes=2000)
    opened.fill([b"x" * 800] * 5)
    opened.log.retain(now_us=0)
    disk.fail("unlink", errno.EIO)
    with pytest.raises(StorageFailed):
        opened.commit()
    opened.crash()
    again = opened.again()
    assert segment_names(opened.folder) == [f"{base:020d}.log" for base in (2, 3, 4)]
    assert (again.log.log_start_offset, again.log.recovery.is_clean) == (2, True)


def test_files_kept_by_a_read_only_disk_are_removed_later(tmp_path):
    disk = FailingDisk()
    opened = OneLog(tmp_path, disk, segment_bytes=1000, retention_bytes=2000)
    opened.fill([b"x" * 800] * 5)
    assert opened.log.retain(now_us=0) == 2
    disk.fail("unlink", errno.EROFS)
    opened.commit()
    assert len(segment_names(opened.folder)) == 5
    disk.heal()
    opened.fill([b"x" * 800])
    assert opened.log.retain(now_us=0) == 1
    opened.commit()
    assert segment_names(opened.folder) == [f"{base:020d}.log" for base in (3, 4, 5)]


def test_the_new_log_start_is_durable_before_a_file_is_removed(tmp_path):
    disk = RecordingDisk()
    opened = OneLog(tmp_path, disk, segment_bytes=1000, retention_bytes=0)
    opened.fill([b"x" * 800] * 3)
    del disk.calls[:]
    opened.log.retain(now_us=0)
    opened.commit()
    names = disk.names()
    assert names.index("write") < min(names.index(n) for n in names if n.startswith("sync"))
    assert names.index("unlink") > max(n for n, name in enumerate(names) if name.startswith("sync"))


def test_segments_dropped_during_a_round_are_removed_by_the_next(tmp_path):
    """The running round synced neither the second log start nor the remaining segment."""
    opened = OneLog(tmp_path, segment_bytes=1000)
    opened.fill([b"x" * 800] * 4)
    opened.log.delete_below(1)
    running = opened.committer.begin()
    opened.log.drop()
    opened.committer.sync(running)
    opened.committer.finish(running)
    assert segment_names(opened.folder) == [f"{base:020d}.log" for base in (1, 2, 3, 4)]
    opened.commit()
    assert segment_names(opened.folder) == [f"{4:020d}.log"]


def test_a_reader_overtaken_by_retention_gets_only_an_error(tmp_path):
    """The reader has seen that its offset is kept, and then finds other segments."""
    opened = OneLog(tmp_path, segment_bytes=1000)
    opened.fill([b"x" * 800] * 4)
    segments = opened.log.segment_set
    read = segments.read

    def interrupted(want):
        opened.log.delete_below(3)
        segments.read = read
        return read(want)

    segments.read = interrupted
    with pytest.raises(OffsetOutOfRange) as caught:
        opened.log.read(1, 1)
    assert (caught.value.offset, caught.value.log_start_offset) == (1, 3)


def test_an_expired_newest_segment_is_closed_and_removed(tmp_path):
    opened = OneLog(tmp_path, retention_ms=1000)
    opened.append(b"x", append_us=5_000_000)
    opened.commit()
    assert opened.log.retain(now_us=6_000_000) == 0
    assert opened.log.retain(now_us=6_000_001) == 1
    opened.commit()
    assert (opened.log.log_start_offset, opened.log.log_end_offset) == (1, 1)
    assert opened.append(b"y") == 1
    opened.commit()
    assert opened.all_bodies() == [b"y"]


def test_undurable_records_are_not_dropped(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=300, retention_bytes=0)
    opened.fill([b"x" * 100] * 4, commit=False)
    assert opened.log.retain(now_us=0) == 0


def test_records_below_an_offset_are_deleted_permanently(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=300)
    for _ in range(4):
        opened.append(bytes(200), 2)
        opened.commit()
    bases = [base for base, _, _ in opened.log.segments()]
    middle = bases[1] + 1  # Within a batch.
    assert opened.log.delete_below(middle) == 1
    assert opened.log.delete_below(middle - 1) == 0
    opened.commit()
    for log in before_and_after_restart(opened):
        assert log.log_start_offset == middle
        with pytest.raises(OffsetOutOfRange):
            log.read(middle - 1, 100)
        assert log.read(middle, 100)[0].base_offset == bases[1]


def test_only_durable_records_are_deleted_and_the_end_stays(tmp_path):
    opened = OneLog(tmp_path)
    opened.append(b"a", 3)
    assert opened.log.delete_below(3) == 0
    assert opened.log.log_start_offset == 0
    opened.commit()
    assert opened.log.delete_below(3) == 1
    opened.commit()
    for log in before_and_after_restart(opened):
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)


HOUR_US = 3_600_000_000
NOW_US = 1_700_000_000_000_000


def fill_with_slow_clock(path, **settings):
    """Return a log of a hundred records, the last with a clock two hours behind."""
    opened = OneLog(path, retention_ms=3_600_000, **settings)
    for number in range(100):
        slow_us = 2 * HOUR_US if number == 99 else 0
        opened.append(b"x" * 50, append_us=NOW_US + number - slow_us)
    opened.commit()
    return opened


def set_times(opened, time_us):
    """Give every segment file the modification time of a slow clock."""
    for name in segment_names(opened.folder):
        os.utime(opened.file(name), ns=(time_us * 1000, time_us * 1000))


@pytest.mark.parametrize("durability", ["synced", "written"])
def test_a_slow_clock_does_not_make_fresh_records_old(tmp_path, durability):
    opened = fill_with_slow_clock(tmp_path, durability=durability)
    assert opened.log.retain(now_us=NOW_US + HOUR_US) == 0
    assert opened.log.retain(now_us=NOW_US + HOUR_US + 99) == 1


@pytest.mark.parametrize("end", ["stop", "crash"])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 5000])
def test_a_slow_clock_does_not_make_fresh_records_old_over_a_restart(tmp_path, end, segment_bytes):
    opened = fill_with_slow_clock(tmp_path, segment_bytes=segment_bytes)
    getattr(opened, end)()
    set_times(opened, NOW_US - 2 * HOUR_US)
    count = len(segment_names(opened.folder))
    again = opened.again(retention_ms=3_600_000, segment_bytes=segment_bytes)
    assert again.log.retain(now_us=NOW_US + HOUR_US) == 0
    assert again.log.undated(NOW_US + HOUR_US) is None
    assert again.log.retain(now_us=NOW_US + HOUR_US + 200) == count


def test_a_copied_file_is_as_old_as_its_records(tmp_path):
    """The copy's old modification time makes the file a candidate, and then the headers count."""
    opened = fill_with_slow_clock(tmp_path, segment_bytes=5000)
    opened.stop()
    set_times(opened, NOW_US + 3 * HOUR_US)
    again = opened.again(retention_ms=3_600_000, segment_bytes=5000)
    closed = len(segment_names(opened.folder)) - 1
    assert again.log.retain(now_us=NOW_US + 4 * HOUR_US) < closed
    assert again.log.retain(now_us=NOW_US + 4 * HOUR_US + 1) >= closed


def test_only_candidate_segments_are_read_for_their_age(tmp_path):
    opened = fill_with_slow_clock(tmp_path, segment_bytes=5000)
    opened.stop()
    set_times(opened, NOW_US - 2 * HOUR_US)
    again = opened.again(retention_ms=3_600_000, retention_bytes=0, segment_bytes=5000)
    assert again.log.undated(NOW_US).base_offset == again.log.segment_set.last.base_offset
    again.log.alter(LogSettings(retention_bytes=0))
    assert again.log.undated(NOW_US) is None


def test_records_from_the_future_are_removed_after_the_limit(tmp_path):
    opened = OneLog(tmp_path, retention_ms=3_600_000)
    opened.append(b"x", append_us=NOW_US + 10 * 365 * 24 * HOUR_US)
    opened.commit()
    assert opened.log.retain(now_us=NOW_US) == 0
    assert opened.log.retain(now_us=NOW_US + HOUR_US) == 0
    assert opened.log.retain(now_us=NOW_US + HOUR_US + 1) == 1


def test_a_hold_by_age_counts_the_newest_record(tmp_path):
    opened = fill_with_slow_clock(tmp_path, segment_bytes=5000)
    opened.log.alter(
        LogSettings(retention_bytes=0, retention_hold="x", retention_hold_ms=3_600_000)
    )
    opened.stop()
    set_times(opened, NOW_US - 2 * HOUR_US)
    settings = {"retention_bytes": 0, "retention_hold": "x", "retention_hold_ms": 3_600_000}
    again = opened.again(**settings)
    assert again.log.retain(NOW_US + HOUR_US, None, 0) == 0
    assert again.log.retain(NOW_US + HOUR_US + 200, None, 0) > 0


def test_a_log_that_lost_all_files_has_nothing_to_trim(tmp_path):
    opened = OneLog(tmp_path, retention_ms=1000)
    opened.fill([b"x"] * 3)
    opened.crash()
    for name in segment_names(opened.folder):
        os.remove(opened.file(name))
    again = OneLog(tmp_path, retention_ms=1000)
    assert again.log.recovery.damages and not again.log.takes_appends
    assert (again.log.retain(NOW_US), again.log.drop(), again.log.drop(1)) == (0, 0, 0)
    assert again.log.log_end_offset == 3
