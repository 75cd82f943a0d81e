import errno
import os

import pytest

from braidlog.storage.errors import StorageFailed
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.unsynced import Unsynced
from braidlog.storage.log.watermark import WATERMARK_MAGIC, SlotFile, read_watermark
from tests.storage.files_twins import FailingDisk


@pytest.fixture
def disk():
    return FailingDisk()


@pytest.fixture
def files(tmp_path, disk):
    return LocalFiles(tmp_path, disk, handles_max=0)


@pytest.fixture
def unsynced(tmp_path):
    return Unsynced(str(tmp_path))


@pytest.fixture
def slot(tmp_path, files):
    return SlotFile(files, os.path.join(tmp_path, "watermark"), WATERMARK_MAGIC, 1, 7)


def test_a_file_is_open_from_its_first_write_to_the_end_of_its_round(tmp_path, files, unsynced):
    file = files.create(str(tmp_path / "a"))
    assert file.fd < 0  # No more are open than held.
    unsynced.hold(file)
    unsynced.hold(file)
    point = unsynced.take(9)
    assert (point.files, point.end_offset) == ([file], 9)
    assert file.fd >= 0
    unsynced.synced(point)
    assert file.fd < 0


def test_writes_during_a_round_belong_to_the_next(tmp_path, files, unsynced):
    first, other = (files.create(str(tmp_path / name)) for name in "ab")
    unsynced.hold(first)
    running = unsynced.take(1)
    unsynced.hold(first)
    unsynced.hold(other)
    unsynced.synced(running)
    assert first.fd >= 0
    assert unsynced.take(2).files == [first, other]
    assert unsynced.take(3).files == []


def test_the_folder_is_synced_at_first_and_when_names_changed(tmp_path, unsynced):
    assert unsynced.take(0).folders == [str(tmp_path)]
    assert unsynced.take(0).folders == []
    unsynced.names_changed = True
    assert unsynced.take(0).folders == [str(tmp_path)]


def test_a_changed_slot_is_written_and_its_name_synced(tmp_path, unsynced, slot):
    unsynced.take(0)
    unsynced.write_slot(slot, 0, 5)
    assert (unsynced.take(0).folders, slot.mark.sequence) == ([str(tmp_path)], 1)
    unsynced.write_slot(slot, 0, 5)
    assert slot.mark.sequence == 1
    unsynced.write_slot(slot, 2, 6)
    assert unsynced.take(0).folders == []
    stored_slot = read_watermark(str(tmp_path), 7)
    assert (stored_slot.log_start_offset, stored_slot.durable_offset) == (2, 6)


def test_a_slot_may_lag_on_a_full_disk_but_not_on_a_broken_disk(tmp_path, disk, unsynced, slot):
    unsynced.write_slot(slot, 0, 5)
    disk.fail("write", errno.ENOSPC)
    unsynced.write_slot(slot, 0, 6)
    assert read_watermark(str(tmp_path), 7).durable_offset == 5
    disk.fail("write", errno.EIO)
    with pytest.raises(StorageFailed):
        unsynced.write_slot(slot, 0, 7)


def test_closing_releases_files_that_no_round_took(tmp_path, files, unsynced):
    first, other = (files.create(str(tmp_path / name)) for name in "ab")
    unsynced.hold(first)
    point = unsynced.take(1)
    unsynced.hold(other)
    unsynced.close()
    assert other.fd < 0
    assert first.fd >= 0  # A round still holds the file.
    unsynced.synced(point)
    assert files.open_count == 0
    assert unsynced.take(2).files == []
