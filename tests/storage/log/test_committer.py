import errno

import pytest

from braidlog.storage.errors import StorageFailed
from braidlog.storage.log.committer import Committer, SyncPoint, sync_points
from braidlog.storage.log.local_files import LocalFiles
from tests.storage.files_twins import FailingDisk, RecordingDisk


class FakeMember:
    """A member with files to sync; counts its notifications."""

    def __init__(self, files=(), folders=()):
        self.point = SyncPoint(list(files), list(folders))
        self.begun = 0
        self.finished = 0

    def begin_sync(self):
        self.begun += 1
        return self.point

    def finish_sync(self, point):
        assert point is self.point
        self.finished += 1


class AllAtOnce(LocalFiles):
    """Files on a file system with a call that syncs everything, on any test machine."""

    syncs_all_at_once = True


class OneByOne(LocalFiles):
    """Files on a file system without such a call."""

    syncs_all_at_once = False


def create_files(tmp_path, files_type, count, disk=None):
    disk = disk or RecordingDisk()
    files = files_type(tmp_path, disk)
    return files, disk, [files.create(str(tmp_path / str(number))) for number in range(count)]


def syncs(disk):
    return disk.names("sync_data", "sync_folder", "sync_file_system")


@pytest.mark.parametrize("files_type", [AllAtOnce, OneByOne])
def test_a_file_needs_a_single_fdatasync(tmp_path, files_type):
    files, disk, (file,) = create_files(tmp_path, files_type, 1)
    sync_points(files, [SyncPoint([file]), SyncPoint([file])])
    assert syncs(disk) == ["sync_data"]


def test_several_files_need_a_single_syncfs(tmp_path):
    files, disk, two = create_files(tmp_path, AllAtOnce, 2)
    sync_points(files, [SyncPoint([file]) for file in two])
    assert syncs(disk) == ["sync_file_system"]


def test_a_file_and_its_folder_need_a_single_syncfs(tmp_path):
    files, disk, (file,) = create_files(tmp_path, AllAtOnce, 1)
    sync_points(files, [SyncPoint([file], [str(tmp_path)])])
    assert syncs(disk) == ["sync_file_system"]


def test_without_syncfs_each_file_and_folder_is_synced_once(tmp_path):
    files, disk, two = create_files(tmp_path, OneByOne, 2)
    sync_points(files, [SyncPoint([file], [str(tmp_path)]) for file in two])
    assert syncs(disk) == ["sync_data", "sync_data", "sync_folder"]


def test_without_changes_nothing_is_synced(tmp_path):
    files, disk, _ = create_files(tmp_path, AllAtOnce, 0)
    sync_points(files, [SyncPoint([])])
    assert syncs(disk) == []


def test_a_round_takes_all_marked_members_and_the_next_gathers(tmp_path):
    files, _, _ = create_files(tmp_path, OneByOne, 0)
    committer = Committer(files)
    first, second = FakeMember(), FakeMember()
    assert committer.mark(first) == 1
    assert committer.mark(first) == 1
    running = committer.begin()
    assert committer.mark(second) == 2
    assert committer.mark(first) == 2
    committer.sync(running)
    assert (committer.durable_ticket, first.finished) == (0, 0)
    committer.finish(running)
    assert (committer.durable_ticket, first.finished, second.begun) == (1, 1, 0)
    committer.commit()
    assert (committer.durable_ticket, first.finished, second.finished) == (2, 2, 1)
    assert committer.begin() is None


def test_on_dirty_is_called_with_the_first_mark_of_a_round(tmp_path):
    files, _, _ = create_files(tmp_path, OneByOne, 0)
    calls = []
    committer = Committer(files, lambda: calls.append(1))
    committer.mark(FakeMember())
    committer.mark(FakeMember())
    assert len(calls) == 1
    running = committer.begin()
    committer.mark(FakeMember())
    assert len(calls) == 2
    committer.finish(running)


def test_lazy_members_wait_to_be_promoted(tmp_path):
    files, _, _ = create_files(tmp_path, OneByOne, 0)
    calls = []
    committer = Committer(files, lambda: calls.append(1))
    lazy, eager = FakeMember(), FakeMember()
    committer.mark_lazy(lazy)
    assert committer.begin() is None
    assert calls == []
    committer.mark(eager)
    committer.finish(committer.begin())
    assert (eager.finished, lazy.finished) == (1, 0)
    committer.promote_lazy()
    assert len(calls) == 2
    committer.finish(committer.begin())
    assert lazy.finished == 1
    assert committer.begin() is None


def test_a_lazy_member_taken_by_a_round_is_done(tmp_path):
    files, _, _ = create_files(tmp_path, OneByOne, 0)
    committer = Committer(files)
    member = FakeMember()
    committer.mark_lazy(member)
    committer.mark(member)
    committer.finish(committer.begin())
    committer.promote_lazy()
    assert committer.begin() is None


def test_a_failed_sync_is_never_retried(tmp_path):
    disk = FailingDisk()
    files, _, (file,) = create_files(tmp_path, OneByOne, 1, disk)
    committer = Committer(files)
    member = FakeMember([file])
    committer.mark(member)
    running = committer.begin()
    disk.fail("sync_data", errno.EIO)
    with pytest.raises(StorageFailed):
        committer.sync(running)
    disk.heal()
    committer.mark(FakeMember())
    with pytest.raises(StorageFailed):
        committer.begin()
    with pytest.raises(StorageFailed):
        committer.commit()
    assert (member.finished, committer.durable_ticket) == (0, 0)


def test_commit_ends_an_abandoned_round(tmp_path):
    files, disk, (file,) = create_files(tmp_path, OneByOne, 1)
    committer = Committer(files)
    member = FakeMember([file])
    committer.mark(member)
    committer.begin()
    committer.commit()
    assert (member.finished, committer.durable_ticket) == (1, 1)
    assert syncs(disk) == ["sync_data"]


def test_a_forgotten_member_is_left_out(tmp_path):
    files, _, _ = create_files(tmp_path, OneByOne, 0)
    committer = Committer(files)
    member = FakeMember()
    committer.mark(member)
    committer.mark_lazy(member)
    committer.forget(member)
    committer.commit()
    assert member.begun == 0
