import errno

import pytest

from braidlog.storage.errors import StorageFull
from braidlog.storage.log.disk import Disk
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.segment_header import SegmentHeader
from braidlog.storage.tools.rewriting import SECTOR_BYTES, SegmentWriter, SetAside, write_whole
from tests.storage.files_twins import FailingDisk, RecordingDisk


class BadSector(Disk):
    """A disk with an unreadable sector."""

    def __init__(self, number):
        self.start, self.end = number * SECTOR_BYTES, (number + 1) * SECTOR_BYTES

    def read(self, path, fd, size, pos):
        if pos < self.end and pos + size > self.start:
            raise OSError(errno.EIO, "bad sector")
        return super().read(path, fd, size, pos)

    def read_into(self, path, fd, into, pos):
        if pos < self.end and pos + len(into) > self.start:
            raise OSError(errno.EIO, "bad sector")
        return super().read_into(path, fd, into, pos)


@pytest.fixture
def original(tmp_path):
    path = tmp_path / "original"
    path.write_bytes(bytes(range(256)) * 64)
    return path


def test_a_copy_is_synced_before_it_has_its_name(tmp_path, original):
    disk = RecordingDisk()
    SetAside(LocalFiles(tmp_path, disk), str(tmp_path / "aside")).copy(str(original), "it")
    assert (tmp_path / "aside" / "it").read_bytes() == original.read_bytes()
    names = disk.names("create", "write", "sync_data", "rename", "sync_folder")
    assert names[-5:] == ["create", "write", "sync_data", "rename", "sync_folder"]


def test_a_copy_is_not_made_twice_and_replaces_nothing(tmp_path, original):
    aside = SetAside(LocalFiles(tmp_path), str(tmp_path / "aside"))
    for content in (b"one", b"two", b"one", b"two", b"three"):
        original.write_bytes(content)
        aside.copy(str(original), "it")
    copies = {path.name: path.read_bytes() for path in (tmp_path / "aside").iterdir()}
    assert copies == {"it": b"one", "it.2": b"two", "it.3": b"three"}
    aside.move(str(original), "it")
    assert (tmp_path / "aside" / "it.4").read_bytes() == b"three"
    assert not original.exists()


def test_an_unreadable_sector_is_zeros_in_the_copy(tmp_path, original):
    content = original.read_bytes()
    SetAside(LocalFiles(tmp_path, BadSector(1)), str(tmp_path / "aside")).copy(str(original), "it")
    copy = (tmp_path / "aside" / "it").read_bytes()
    assert copy[:SECTOR_BYTES] == content[:SECTOR_BYTES]
    assert copy[SECTOR_BYTES : 2 * SECTOR_BYTES] == bytes(SECTOR_BYTES)
    assert copy[2 * SECTOR_BYTES :] == content[2 * SECTOR_BYTES :]


def test_a_segment_gets_its_name_when_complete_and_without_old_index(tmp_path):
    disk = RecordingDisk()
    (tmp_path / f"{7:020d}.log").write_bytes(b"old")
    (tmp_path / f"{7:020d}.index").write_bytes(b"old")
    writer = SegmentWriter(LocalFiles(tmp_path, disk), str(tmp_path), SegmentHeader(1, 5, 1, 7))
    writer.gap(7, 9)
    assert (tmp_path / f"{7:020d}.log").read_bytes() == b"old"
    writer.finish()
    assert [path.name for path in tmp_path.iterdir()] == [f"{7:020d}.log"]
    names = disk.names("sync_data", "unlink", "rename", "sync_folder")
    assert names[-5:] == ["sync_data", "unlink", "sync_folder", "rename", "sync_folder"]


def test_a_full_disk_changes_nothing(tmp_path):
    disk = FailingDisk()
    path = tmp_path / "topic"
    path.write_bytes(b"old")
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(StorageFull):
        write_whole(LocalFiles(tmp_path, disk), str(path), b"new")
    assert path.read_bytes() == b"old"
    disk.heal()
    write_whole(LocalFiles(tmp_path, disk), str(path), b"new")
    assert path.read_bytes() == b"new"
