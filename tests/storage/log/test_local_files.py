import errno
import os
import random
import threading

import pytest

from braidlog.storage.errors import StorageFailed, StorageFull, WouldBlock
from braidlog.storage.log.disk import Disk
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.local_files import PARTS_MAX, LocalFiles
from braidlog.storage.log.read_buffers import BUFFER_BYTES, POOLED_BYTES_MIN
from tests.storage.files_twins import FailingDisk, RecordingDisk
from tests.waiting import HANG_S


def test_a_write_of_many_parts_is_a_single_call(tmp_path):
    disk = RecordingDisk()
    file = LocalFiles(tmp_path, disk).create(str(tmp_path / "a"))
    file.write_at([b"head", bytearray(b"body"), memoryview(b"tail")], 0)
    assert disk.names("write") == ["write"]
    assert (tmp_path / "a").read_bytes() == b"headbodytail"


def test_more_parts_than_a_call_takes_are_joined(tmp_path):
    file = LocalFiles(tmp_path).create(str(tmp_path / "a"))
    file.write_at([b"%04d" % number for number in range(PARTS_MAX + 5)], 0)
    assert len((tmp_path / "a").read_bytes()) == 4 * (PARTS_MAX + 5)


class ShortDisk(RecordingDisk):
    """A disk that writes at most three bytes per call."""

    def write(self, path, fd, parts, pos):
        return super().write(path, fd, [b"".join(parts)[:3]], pos)


def test_a_short_write_continues(tmp_path):
    file = LocalFiles(tmp_path, ShortDisk()).create(str(tmp_path / "a"))
    file.write_at([b"0123", b"4567"], 0)
    file.write_at([b"89"], 8)
    assert (tmp_path / "a").read_bytes() == b"0123456789"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG])
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, number):
    disk = FailingDisk()
    file = LocalFiles(tmp_path, disk).create(str(tmp_path / "a"))
    file.write_at([b"good"], 0)
    disk.fail("write", number, bytes_first=5)
    with pytest.raises(StorageFull, match="cannot write to"):
        file.write_at([b"too much"], 4)
    assert (tmp_path / "a").read_bytes() == b"good"
    disk.heal()
    file.write_at([b"more"], 4)
    assert (tmp_path / "a").read_bytes() == b"goodmore"


def test_other_failures_are_permanent(tmp_path):
    disk = FailingDisk()
    file = LocalFiles(tmp_path, disk).create(str(tmp_path / "a"))
    disk.fail("write", errno.EIO)
    with pytest.raises(StorageFailed):
        file.write_at([b"x"], 0)
    disk.heal()
    disk.fail("sync_data", errno.ENOSPC)
    with pytest.raises(StorageFailed, match="cannot sync"):
        file.datasync()


def test_a_full_disk_that_cannot_be_cut_back_is_a_failure(tmp_path):
    disk = FailingDisk()
    file = LocalFiles(tmp_path, disk).create(str(tmp_path / "a"))
    disk.fail("write", errno.ENOSPC, bytes_first=1)
    disk.fail("truncate", errno.EIO, bytes_first=1)
    with pytest.raises(StorageFailed, match="nor cut it back"):
        file.write_at([b"xyz"], 0)


class ReadOnlyDisk(FailingDisk):
    """A disk that refuses writable descriptors, like a read-only file system."""

    def open(self, path, flags):
        if flags & os.O_RDWR:
            self._check("write", path)
        return super().open(path, flags)


def test_a_read_only_disk_refuses_writes_and_allows_reads(tmp_path):
    disk = ReadOnlyDisk()
    files = LocalFiles(tmp_path, disk, handles_max=0)
    file = files.create(str(tmp_path / "a"))
    file.write_at([b"good"], 0)
    for name in ("write", "truncate"):
        disk.fail(name, errno.EROFS)
    assert file.read_at(10, 0) == b"good"
    file.hold_to_read()  # A reader has the descriptor, which allows no writes.
    for held in (True, False):
        for change in (lambda: file.write_at([b"more"], 4), file.hold, lambda: file.truncate(0)):
            with pytest.raises(StorageFull, match="Read-only"):
                change()
        assert file.size() == 4
        if held:
            file.release()
    disk.heal()
    file.write_at([b"more"], 4)
    assert file.read_at(10, 0) == b"goodmore"


def test_a_write_without_progress_needs_no_cut(tmp_path):
    disk = FailingDisk()
    file = LocalFiles(tmp_path, disk).create(str(tmp_path / "a"))
    file.write_at([b"good"], 0)
    disk.fail("write", errno.EROFS)
    disk.fail("truncate", errno.EROFS)
    with pytest.raises(StorageFull):
        file.write_at([b"more"], 4)


def test_reading_without_waiting(tmp_path):
    disk = FailingDisk()
    file = LocalFiles(tmp_path, disk).create(str(tmp_path / "a"))
    file.write_at([b"0123456789"], 0)
    assert file.read_at(4, 3, wait=False) == b"3456"
    assert file.read_at(100, 8, wait=False) == b"89"
    disk.fail("read_cached", errno.EAGAIN)
    with pytest.raises(WouldBlock):
        file.read_at(4, 3, wait=False)
    assert file.read_at(4, 3) == b"3456"


def test_without_page_cache_queries_the_read_waits(tmp_path):
    disk = FailingDisk()
    file = LocalFiles(tmp_path, disk).create(str(tmp_path / "a"))
    file.write_at([b"0123456789"], 0)
    disk.fail("read_cached", errno.EOPNOTSUPP)
    assert file.read_at(4, 3, wait=False) == b"3456"


def test_large_waiting_reads_reuse_memory_that_nobody_sees(tmp_path):
    disk = FailingDisk()
    file = LocalFiles(tmp_path, disk).create(str(tmp_path / "a"))
    content = random.Random(1).randbytes(2 * POOLED_BYTES_MIN)
    file.write_at([content], 0)
    first = file.read_at(POOLED_BYTES_MIN, 5)
    memory = first.obj
    second = file.read_at(POOLED_BYTES_MIN, 9)
    assert second.obj is not memory, "somebody still sees the first read"
    assert first == content[5 : 5 + POOLED_BYTES_MIN]
    del first
    end = file.read_at(POOLED_BYTES_MIN, len(content) - 3)
    assert end.obj is memory
    assert end == content[-3:]
    assert second == content[9 : 9 + POOLED_BYTES_MIN]
    assert file.read_at(BUFFER_BYTES + 1, 0) == content
    disk.fail("read", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.read_at(POOLED_BYTES_MIN, 0)


def test_idle_descriptors_stay_within_the_budget(tmp_path):
    files = LocalFiles(tmp_path, handles_max=3)
    created = [files.create(str(tmp_path / str(number))) for number in range(10)]
    for number, file in enumerate(created):
        file.write_at([b"%d" % number], 0)
    assert files.open_count <= 3
    assert [bytes(file.read_at(10, 0)) for file in created] == [b"%d" % n for n in range(10)]
    assert files.open_count <= 3


def test_held_descriptors_stay_open_beyond_the_budget(tmp_path):
    files = LocalFiles(tmp_path, handles_max=2)
    created = [files.create(str(tmp_path / str(number))) for number in range(6)]
    fds = [file.hold() for file in created]
    assert files.open_count == 6
    assert [os.fstat(fd).st_size for fd in fds] == [0] * 6
    for file in created:
        file.release()
    assert files.open_count == 2


def test_without_free_descriptors_an_idle_file_is_closed(tmp_path):
    class Crowded(RecordingDisk):
        full = False

        def open(self, path, flags):
            if self.full:
                self.full = False
                raise OSError(errno.EMFILE, "Too many open files")
            return super().open(path, flags)

    disk = Crowded()
    files = LocalFiles(tmp_path, disk)
    idle = files.create(str(tmp_path / "idle"))
    disk.full = True
    files.create(str(tmp_path / "new"))
    assert idle.fd == -1
    assert files.open_count == 1


class FullProcess(RecordingDisk):
    """A process without descriptors until `files` has at most `most` open."""

    files = None
    most = 0

    def need(self):
        if self.files is not None and self.files.open_count > self.most:
            raise OSError(errno.EMFILE, "Too many open files")

    def open(self, path, flags):
        self.need()
        return super().open(path, flags)

    def sync_folder(self, path):
        self.need()
        super().sync_folder(path)


CALLS = {
    "sync_folder": lambda files, folder: files.sync_folder(folder),
    "read_whole": lambda files, folder: files.read_whole(f"{folder}/0"),
    "look_into": lambda files, folder: files.look_into(f"{folder}/0", 1),
    "create": lambda files, folder: files.create(f"{folder}/new"),
}


@pytest.mark.parametrize("call", CALLS)
def test_each_call_closes_enough_idle_files_for_its_descriptor(tmp_path, call):
    disk = FullProcess()
    files = LocalFiles(tmp_path, disk)
    for number in range(5):
        files.create(str(tmp_path / str(number)))
    disk.files, disk.most = files, 1
    CALLS[call](files, str(tmp_path))
    assert files.open_count <= 2


def test_a_process_without_descriptors_and_idle_files_raises(tmp_path):
    disk = FullProcess()
    files = LocalFiles(tmp_path, disk)
    held = files.create(str(tmp_path / "held"))
    held.hold()
    disk.files = files
    with pytest.raises(StorageFailed, match="Too many open files"):
        files.sync_folder(str(tmp_path))
    with pytest.raises(StorageFull, match="Too many open files"):
        files.create(str(tmp_path / "new"))


def test_a_closed_file_stays_open_while_held(tmp_path):
    files = LocalFiles(tmp_path)
    file = files.create(str(tmp_path / "a"))
    file.write_at([b"content"], 0)
    fd = file.hold()
    file.close()
    files.unlink(file.path)
    assert os.pread(fd, 7, 0) == b"content"
    file.release()
    assert files.open_count == 0
    with pytest.raises(FileGone):
        file.read_at(7, 0)


def test_a_file_removed_by_others_raises_gone(tmp_path):
    file = LocalFiles(tmp_path).open(str(tmp_path / "never"))
    with pytest.raises(FileGone):
        file.read_at(1, 0)


def test_folder_and_whole_file_errors_are_named(tmp_path):
    disk = FailingDisk()
    files = LocalFiles(tmp_path, disk)
    files.make_folder(str(tmp_path / "folder"))
    with pytest.raises(StorageFailed, match="make the folder"):
        files.make_folder(str(tmp_path / "folder"))
    disk.fail("create", errno.EROFS)
    with pytest.raises(StorageFull, match="cannot create"):
        files.create(str(tmp_path / "x"))
    disk.heal()
    disk.fail("sync_folder", errno.EIO)
    with pytest.raises(StorageFailed, match="sync the folder"):
        files.sync_folder(str(tmp_path))
    disk.heal()
    files.sync_folder(str(tmp_path / "not there"))
    assert files.names(str(tmp_path / "not there")) == []


class ErrorOnceDisk(Disk):
    """A disk whose file system reports an error to a single sync, as the kernel does to the syncs
    of a descriptor. The sync with the error takes until the test lets it go on.
    """

    def __init__(self):
        self.errors = [errno.EIO]
        self.stopped = threading.Event()
        self.go_on = threading.Event()

    def sync_file_system(self, file_system):
        if self.errors:
            number = self.errors.pop()
            self.stopped.set()
            assert self.go_on.wait(HANG_S)
            raise OSError(number, os.strerror(number))


def outcome_of(sync):
    """Return the error of a sync as text, "synced" without an error."""
    try:
        sync()
    except StorageFailed as error:
        return str(error)
    return "synced"


def test_no_joint_sync_succeeds_beside_or_after_a_failed_joint_sync(tmp_path):
    """A round would acknowledge records whose write the kernel has given up."""
    disk = ErrorOnceDisk()
    files = LocalFiles(tmp_path, disk)
    outcomes = []
    threads = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: outcomes.append(outcome_of(files.sync_all)))
        thread.start()
        threads.append(thread)
        assert disk.stopped.wait(HANG_S)
    # The second thread cannot be seen to wait: without a wait it ends at once, long before this.
    threads[1].join(0.05)
    disk.go_on.set()
    for thread in threads:
        thread.join(HANG_S)
    outcomes.append(outcome_of(files.sync_all))
    assert outcomes == [f"cannot sync {tmp_path}: Input/output error"] * 3


def test_another_file_system_ends_joint_syncs(tmp_path):
    files = LocalFiles(tmp_path)
    files.adopt(str(tmp_path))
    before = files.syncs_all_at_once
    files.adopt("/proc")
    assert not files.syncs_all_at_once
    assert before in (True, False)


def test_two_threads_remove_an_incomplete_file_once(tmp_path):
    """The loop writes a journal while a thread creates a topic: both try the removal."""
    entered, leave = threading.Event(), threading.Event()

    class HeldUnlink(FailingDisk):
        def unlink(self, path):
            if "unlink" not in self.failing:
                entered.set()
                assert leave.wait(60)
            super().unlink(path)

    disk = HeldUnlink()
    files = LocalFiles(tmp_path, disk)
    (tmp_path / "vain").write_bytes(b"")
    disk.fail("unlink", errno.EROFS)
    files.discard(str(tmp_path / "vain"))
    disk.heal()
    exists = []

    def second():
        files.clear_discarded()
        exists.append((tmp_path / "vain").exists())

    first = threading.Thread(target=files.clear_discarded)
    first.start()
    assert entered.wait(60)
    other = threading.Thread(target=second)
    other.start()
    leave.set()
    first.join()
    other.join()
    assert exists == [False]


class SlowToOpen(FailingDisk):
    """A disk on which opening a file of that name waits."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.entered, self.leave = threading.Semaphore(0), threading.Event()
        self.closed = []

    def open(self, path, flags):
        if path.endswith(self.name):
            self.entered.release()
            assert self.leave.wait(60)
        return super().open(path, flags)

    def close(self, path, fd):
        self.closed.append(path)
        super().close(path, fd)


def test_a_slow_open_delays_no_other_file(tmp_path):
    for name in ("slow", "other"):
        (tmp_path / name).write_bytes(b"x")
    disk = SlowToOpen("slow")
    files = LocalFiles(tmp_path, disk)
    slow, other = files.open(str(tmp_path / "slow")), files.open(str(tmp_path / "other"))
    threads = [threading.Thread(target=slow.hold) for _ in range(2)]
    for thread in threads:
        thread.start()
        assert disk.entered.acquire(timeout=60)
    other.hold()  # While both wait for the disk.
    other.release()
    disk.leave.set()
    for thread in threads:
        thread.join()
    assert (slow.holds, files.open_count, len(disk.closed)) == (2, 2, 1), "one is closed again"
    for _ in threads:
        slow.release()
    assert slow.read_at(1, 0) == b"x"


def test_a_file_removed_during_its_open_raises_gone(tmp_path):
    (tmp_path / "slow").write_bytes(b"x")
    disk = SlowToOpen("slow")
    files = LocalFiles(tmp_path, disk)
    slow, raised = files.open(str(tmp_path / "slow")), []

    def hold():
        try:
            slow.hold()
        except FileGone as error:
            raised.append(error)

    thread = threading.Thread(target=hold)
    thread.start()
    assert disk.entered.acquire(timeout=60)
    slow.close()
    disk.leave.set()
    thread.join()
    assert len(raised) == 1
    assert files.open_count == 0
