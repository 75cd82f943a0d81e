"""Retention as a partition log carries it out; test_retention.py checks the decision."""

import errno
import os

import pytest

from braidlog.storage.errors import OffsetOutOfRange, StorageFailed
from braidlog.storage.log.settings import LogSettings
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


def test_interrupted_retention_is_finished_by_the_next_start(tmp_path):
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


def test_files_kept_by_a_read_only_disk_are_removed_later(tmp_path):
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


def test_the_new_log_start_is_durable_before_a_file_is_removed(tmp_path):
    disk = RecordingDisk()
    one = OneLog(tmp_path, disk, segment_bytes=1000, retention_bytes=0)
    one.fill([b"x" * 800] * 3)
    del disk.calls[:]
    one.log.retain(now_us=0)
    one.commit()
    names = disk.names()
    assert names.index("write") < min(names.index(n) for n in names if n.startswith("sync"))
    assert names.index("unlink") > max(n for n, name in enumerate(names) if name.startswith("sync"))


def test_segments_dropped_during_a_round_are_removed_by_the_next(tmp_path):
    """The running round synced neither the second log start nor the remaining segment."""
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


def test_a_reader_overtaken_by_retention_gets_only_an_error(tmp_path):
    """The reader has seen that its offset is kept, and then finds other segments."""
    one = OneLog(tmp_path, segment_bytes=1000)
    one.fill([b"x" * 800] * 4)
    segments = one.log.segment_set
    read = segments.read

    def interrupted(want):
        one.log.delete_below(3)
        segments.read = read
        return read(want)

    segments.read = interrupted
    with pytest.raises(OffsetOutOfRange) as caught:
        one.log.read(1, 1)
    assert (caught.value.offset, caught.value.log_start_offset) == (1, 3)


def test_an_expired_newest_segment_is_closed_and_removed(tmp_path):
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


def test_undurable_records_are_not_dropped(tmp_path):
    one = OneLog(tmp_path, segment_bytes=300, retention_bytes=0)
    one.fill([b"x" * 100] * 4, commit=False)
    assert one.log.retain(now_us=0) == 0


def test_records_below_an_offset_are_deleted_permanently(tmp_path):
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


def test_only_durable_records_are_deleted_and_the_end_stays(tmp_path):
    one = OneLog(tmp_path)
    one.append(b"a", 3)
    assert one.log.delete_below(3) == 0
    assert one.log.log_start_offset == 0
    one.commit()
    assert one.log.delete_below(3) == 1
    one.commit()
    for log in before_and_after_restart(one):
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)


HOUR_US = 3_600_000_000
NOW_US = 1_700_000_000_000_000


def fill_with_slow_clock(path, **settings):
    """Return a log of a hundred records, the last with a clock two hours behind."""
    one = OneLog(path, retention_ms=3_600_000, **settings)
    for number in range(100):
        slow_us = 2 * HOUR_US if number == 99 else 0
        one.append(b"x" * 50, append_us=NOW_US + number - slow_us)
    one.commit()
    return one


def set_times(one, time_us):
    """Give every segment file the modification time of a slow clock."""
    for name in segment_names(one.folder):
        os.utime(one.file(name), ns=(time_us * 1000, time_us * 1000))


@pytest.mark.parametrize("durability", ["synced", "written"])
def test_a_slow_clock_does_not_make_fresh_records_old(tmp_path, durability):
    one = fill_with_slow_clock(tmp_path, durability=durability)
    assert one.log.retain(now_us=NOW_US + HOUR_US) == 0
    assert one.log.retain(now_us=NOW_US + HOUR_US + 99) == 1


@pytest.mark.parametrize("end", ["stop", "crash"])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 5000])
def test_a_slow_clock_does_not_make_fresh_records_old_over_a_restart(tmp_path, end, segment_bytes):
    one = fill_with_slow_clock(tmp_path, segment_bytes=segment_bytes)
    getattr(one, end)()
    set_times(one, NOW_US - 2 * HOUR_US)
    count = len(segment_names(one.folder))
    again = one.again(retention_ms=3_600_000, segment_bytes=segment_bytes)
    assert again.log.retain(now_us=NOW_US + HOUR_US) == 0
    assert again.log.undated(NOW_US + HOUR_US) is None
    assert again.log.retain(now_us=NOW_US + HOUR_US + 200) == count


def test_a_copied_file_is_as_old_as_its_records(tmp_path):
    """The copy's old modification time makes the file a candidate, and then the headers count."""
    one = fill_with_slow_clock(tmp_path, segment_bytes=5000)
    one.stop()
    set_times(one, NOW_US + 3 * HOUR_US)
    again = one.again(retention_ms=3_600_000, segment_bytes=5000)
    closed = len(segment_names(one.folder)) - 1
    assert again.log.retain(now_us=NOW_US + 4 * HOUR_US) < closed
    assert again.log.retain(now_us=NOW_US + 4 * HOUR_US + 1) >= closed


def test_only_candidate_segments_are_read_for_their_age(tmp_path):
    one = fill_with_slow_clock(tmp_path, segment_bytes=5000)
    one.stop()
    set_times(one, NOW_US - 2 * HOUR_US)
    again = one.again(retention_ms=3_600_000, retention_bytes=0, segment_bytes=5000)
    assert again.log.undated(NOW_US).base_offset == again.log.segment_set.last.base_offset
    again.log.alter(LogSettings(retention_bytes=0))
    assert again.log.undated(NOW_US) is None


def test_records_from_the_future_are_removed_after_the_limit(tmp_path):
    one = OneLog(tmp_path, retention_ms=3_600_000)
    one.append(b"x", append_us=NOW_US + 10 * 365 * 24 * HOUR_US)
    one.commit()
    assert one.log.retain(now_us=NOW_US) == 0
    assert one.log.retain(now_us=NOW_US + HOUR_US) == 0
    assert one.log.retain(now_us=NOW_US + HOUR_US + 1) == 1


def test_a_hold_by_age_counts_the_newest_record(tmp_path):
    one = fill_with_slow_clock(tmp_path, segment_bytes=5000)
    one.log.alter(LogSettings(retention_bytes=0, retention_hold="x", retention_hold_ms=3_600_000))
    one.stop()
    set_times(one, NOW_US - 2 * HOUR_US)
    settings = {"retention_bytes": 0, "retention_hold": "x", "retention_hold_ms": 3_600_000}
    again = one.again(**settings)
    assert again.log.retain(NOW_US + HOUR_US, None, 0) == 0
    assert again.log.retain(NOW_US + HOUR_US + 200, None, 0) > 0


def test_a_log_that_lost_all_files_has_nothing_to_trim(tmp_path):
    one = OneLog(tmp_path, retention_ms=1000)
    one.fill([b"x"] * 3)
    one.crash()
    for name in segment_names(one.folder):
        os.remove(one.file(name))
    again = OneLog(tmp_path, retention_ms=1000)
    assert again.log.recovery.damages and not again.log.takes_appends
    assert (again.log.retain(NOW_US), again.log.drop(), again.log.drop(1)) == (0, 0, 0)
    assert again.log.log_end_offset == 3
