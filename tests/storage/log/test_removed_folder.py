"""Failures because of a deleted folder differ from failures of the disk."""

import errno

import pytest

from braidlog.storage.errors import StorageFailed, StorageFull
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.removed_folder import may_be_gone
from tests.storage.files_twins import FailingDisk


def test_a_name_in_a_deleted_folder_is_gone(tmp_path):
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "a").write_bytes(b"")
    folder.rename(tmp_path / "1.deleted")
    with pytest.raises(FileGone), may_be_gone(str(folder)):
        LocalFiles(tmp_path).rename(str(folder / "a"), str(folder / "b"))


def test_a_failure_in_an_existing_folder_stays_a_failure(tmp_path):
    files = LocalFiles(tmp_path)
    with pytest.raises(StorageFailed), may_be_gone(str(tmp_path)):
        files.rename(str(tmp_path / "a"), str(tmp_path / "b"))


def test_a_full_disk_is_no_deletion(tmp_path):
    disk = FailingDisk()
    disk.fail("create", errno.ENOSPC)
    with pytest.raises(StorageFull), may_be_gone(str(tmp_path / "1")):
        LocalFiles(tmp_path, disk).create(str(tmp_path / "a"))
