import errno
import os
import subprocess
import sys
import time
from collections import Counter

import pytest

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.errors import DamagedLog, DirectoryLocked, StorageFull
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.disk import Disk
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.settings import Durability, LogSettings
from braidlog.storage.log.topic_file import TopicFile
from tests.storage.files_twins import FailingDisk, RecordingDisk
from tests.storage.log.logs import OneLog, flip

SETTINGS = LogSettings()


def opened(path, disk=None):
    path.mkdir(exist_ok=True)
    files = LocalFiles(path, disk)
    return DataDir.open(path, files), Committer(files)


def test_a_missing_directory_is_created(tmp_path):
    data_dir = DataDir.open(tmp_path / "a" / "b")
    names = os.listdir(tmp_path / "a" / "b")
    assert sorted(names) == ["lock", "partitions", "reserve", "set-aside"]
    assert (tmp_path / "a/b/lock").read_text() == f"{os.getpid()}\n"
    data_dir.abandon()


def test_a_directory_belongs_to_a_single_broker(tmp_path):
    data_dir = DataDir.open(tmp_path)
    with pytest.raises(DirectoryLocked, match=f"in use by process {os.getpid()}"):
        DataDir.open(tmp_path)
    data_dir.abandon()
    DataDir.open(tmp_path).abandon()


@pytest.mark.slow
def test_the_lock_ends_with_its_process(tmp_path):
    code = (
        "import sys\n"
        "from braidlog.storage.directory.data_dir import DataDir\n"
        "DataDir.open(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    DataDir.open(tmp_path).abandon()


def test_an_unusable_path_is_a_single_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match=r"cannot use the data directory .*/file: Not a directory"):
        DataDir.open(tmp_path / "file")


def test_partitions_are_numbered_folders_with_a_topic_file(tmp_path):
    data_dir, committer = opened(tmp_path)
    log = data_dir.create_partitions(
        [NewPartition(17, "public/default/orders", 2)], SETTINGS, committer
    )[0]
    assert log.partition_id == 17
    assert data_dir.partition_ids() == [17]
    assert data_dir.read_topic_file(17) == TopicFile(17, "public/default/orders", 2)
    names = os.listdir(tmp_path / "partitions" / "17")
    assert {"topic", "00000000000000000000.log"} <= set(names)
    data_dir.close(committer)


@pytest.mark.parametrize("all_at_once", [True, False])
def test_a_new_partition_is_durable_including_its_names(tmp_path, all_at_once):
    disk = RecordingDisk()
    data_dir, committer = opened(tmp_path, disk)
    if not all_at_once:
        data_dir.files.adopt("/proc")
    elif not data_dir.files.syncs_all_at_once:
        pytest.skip("this file system has no trusted syncfs")
    del disk.calls[:]
    new = [NewPartition(number, "public/default/t", number - 1) for number in (1, 2)]
    data_dir.create_partitions(new, SETTINGS, committer)
    synced = [call.file_name for call in disk.calls if call.name.startswith("sync")]
    if all_at_once:
        assert synced == [""]
    else:
        files = ["00000000000000000000.log", "topic", "watermark"]
        assert synced == [*files, "1", *files, "2", "partitions"]


def test_a_partition_without_space_leaves_nothing(tmp_path):
    disk = FailingDisk()
    data_dir, committer = opened(tmp_path, disk)
    disk.fail("write", errno.ENOSPC)
    new = [NewPartition(number, "public/default/t", number - 1) for number in (1, 2)]
    with pytest.raises(StorageFull):
        data_dir.create_partitions(new, SETTINGS, committer)
    assert data_dir.partition_ids() == []


def test_a_partition_without_folder_or_with_a_wrong_topic_file_is_damage(tmp_path):
    data_dir, committer = opened(tmp_path)
    with pytest.raises(DamagedLog, match="folder is missing"):
        data_dir.open_partition(5, SETTINGS, committer)
    data_dir.create_partitions([NewPartition(5, "public/default/t", 0)], SETTINGS, committer)
    data_dir.close(committer)
    os.rename(tmp_path / "partitions/5", tmp_path / "partitions/6")
    data_dir, committer = opened(tmp_path)
    with pytest.raises(DamagedLog, match="partition 5"):
        data_dir.open_partition(6, SETTINGS, committer)
    flip(tmp_path / "partitions/6/topic", 20)
    with pytest.raises(DamagedLog, match="checksum"):
        data_dir.open_partition(6, SETTINGS, committer)
    os.unlink(tmp_path / "partitions/6/topic")
    with pytest.raises(DamagedLog, match="No such file or directory") as missing:
        data_dir.open_partition(6, SETTINGS, committer)
    assert "Errno" not in str(missing.value)


def test_unknown_folders_are_set_aside_and_their_numbers_remembered(tmp_path):
    data_dir, committer = opened(tmp_path)
    for number in (3, 8, 11):
        data_dir.create_partitions(
            [NewPartition(number, "public/default/t", 0)], SETTINGS, committer
        )
    data_dir.close(committer)
    os.mkdir(tmp_path / "partitions" / "lost+found")
    os.mkdir(tmp_path / "set-aside" / "11")
    data_dir, _ = opened(tmp_path)
    moved = data_dir.set_aside_unknown({3, 8})
    assert [os.path.basename(path) for path in moved] == ["11.2", "lost+found"]
    assert data_dir.partition_ids() == [3, 8]
    assert data_dir.highest_partition_id() == 11
    assert data_dir.set_aside_unknown([3, 8]) == []


def test_a_removed_partition_leaves_nothing(tmp_path):
    data_dir, committer = opened(tmp_path)
    log = data_dir.create_partitions([NewPartition(3, "public/default/t", 0)], SETTINGS, committer)[
        0
    ]
    data_dir.create_partitions([NewPartition(4, "public/default/t", 1)], SETTINGS, committer)
    data_dir.retire_partition(3)
    assert not log.takes_appends
    assert data_dir.partition_ids() == [4]
    data_dir.remove_retired()
    assert os.listdir(tmp_path / "partitions") == ["4"]


def test_an_interrupted_removal_is_finished_by_the_next_start(tmp_path):
    disk = FailingDisk()
    data_dir, committer = opened(tmp_path, disk)
    data_dir.create_partitions([NewPartition(3, "public/default/t", 0)], SETTINGS, committer)
    disk.fail("unlink", errno.EIO)
    data_dir.retire_partition(3)
    with pytest.raises(Exception, match="cannot remove"):
        data_dir.remove_retired()
    data_dir.abandon()
    data_dir, _ = opened(tmp_path)
    assert data_dir.set_aside_unknown(()) == []
    data_dir.remove_retired()
    assert os.listdir(tmp_path / "partitions") == []


def test_a_removal_can_be_interrupted_between_two_folders(tmp_path):
    data_dir, committer = opened(tmp_path)
    for number in (1, 2, 3):
        data_dir.create_partitions(
            [NewPartition(number, "public/default/t", number - 1)], SETTINGS, committer
        )
        data_dir.retire_partition(number)
    calls = []

    def before_each():
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data_dir.remove_retired(before_each)
    assert os.listdir(tmp_path / "partitions") == ["3.deleted"]


def test_a_clean_stop_makes_everything_durable(tmp_path):
    disk = RecordingDisk()
    opened = OneLog(tmp_path, disk)
    journal = opened.data_dir.open_journal("catalogue", opened.committer)
    opened.append(b"x")
    journal.append_lazy(b"y")
    opened.stop()
    last_sync = max(n for n, name in enumerate(disk.names()) if name.startswith("sync"))
    assert "write" not in disk.names()[last_sync:]
    again = OneLog(tmp_path)
    journal = again.data_dir.open_journal("catalogue", again.committer)
    assert again.log.recovery.batches_walked == 0
    assert again.log.durable_offset == again.log.log_end_offset == 1
    assert list(journal.replay()) == [b"y"]
    assert journal.durable_offset == 1


def test_many_partitions_need_few_descriptors(tmp_path):
    files = LocalFiles(tmp_path, handles_max=20)
    data_dir, committer = DataDir.open(tmp_path, files), Committer(files)
    new = [NewPartition(number, "public/default/t", number - 1) for number in range(1, 101)]
    logs = data_dir.create_partitions(new, SETTINGS, committer)
    append = OneLog.append
    for round_number in range(3):
        for log in logs[:15]:
            append(PartitionHolder(log), b"%d" % round_number)
        committer.commit()
    for log in logs:
        for batch in log.read(0, 100) if log.high_watermark else []:
            assert batch.body
    assert files.open_count <= 20
    data_dir.close(committer)


class PartitionHolder:
    """The part of a OneLog that appends."""

    def __init__(self, log):
        self.log = log


class CallCountingDisk(Disk):
    """Counts the calls of each name."""

    def __init__(self):
        self.counts = Counter()

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if callable(value):
            self.counts[name] += 1
        return value


def test_a_new_partition_is_written_and_not_read_again(tmp_path):
    disk = CallCountingDisk()
    data_dir, committer = opened(tmp_path, disk)
    disk.counts.clear()
    new = [NewPartition(number, "public/default/t", number - 1) for number in range(1, 11)]
    data_dir.create_partitions(new, SETTINGS, committer)
    syncs = {name: disk.counts.pop(name) for name in [*disk.counts] if name.startswith("sync")}
    if data_dir.files.syncs_all_at_once:
        assert syncs == {"sync_file_system": 1}
        # Folder, topic file, segment and watermark of each; the topic file is closed.
        assert disk.counts == {"make_folder": 10, "open": 30, "write": 30, "close": 10}
    assert disk.counts["read"] == disk.counts["read_into"] == 0
    data_dir.close(committer)


@pytest.mark.parametrize("durability", list(Durability))
def test_a_new_log_is_as_the_log_that_a_start_opens(tmp_path, durability):
    settings = LogSettings(durability=durability)
    data_dir, committer = opened(tmp_path)
    begun_us = time.time_ns() // 1000
    (new,) = data_dir.create_partitions(
        [NewPartition(1, "public/default/t", 0)], settings, committer
    )
    facts = facts_of(new)
    ((base_offset, made_us, size),) = new.segments()
    assert begun_us <= made_us <= time.time_ns() // 1000
    data_dir.abandon()  # As after a crash: nothing more is written.
    data_dir, committer = opened(tmp_path)
    started = data_dir.open_partition(1, settings, committer)
    if durability == Durability.WRITTEN:
        assert facts.pop("log_end_offset") < started.log_end_offset  # Above the reservation.
    else:
        assert [segment[::2] for segment in started.segments()] == [(base_offset, size)]
    assert facts.items() <= facts_of(started).items()
    data_dir.close(committer)


def facts_of(log):
    names = ("log_start_offset", "durable_offset", "log_end_offset", "takes_appends", "folder")
    return {name: getattr(log, name) for name in names}


def test_a_folder_of_partitions_on_another_device_is_not_synced_at_once(tmp_path):
    data_dir, committer = opened(tmp_path, RecordingDisk())
    adopted = []
    files = data_dir.files
    data_dir.files = AdoptingFiles(files, adopted)
    data_dir.create_partitions([NewPartition(1, "public/default/t", 0)], SETTINGS, committer)
    assert adopted == [str(tmp_path / "partitions")]
    assert "sync_file_system" not in files.disk.names()


class AdoptingFiles:
    """Files of which every adopted folder is on another device."""

    def __init__(self, files, adopted):
        self._files, self._adopted = files, adopted

    def __getattr__(self, name):
        return getattr(self._files, name)

    def adopt(self, folder):
        self._adopted.append(folder)
        self._files.adopt("/proc")


class LittleDisk(Disk):
    """A disk without room for a file of that name in the second partition, or
    without a descriptor.
    """

    def __init__(self, name, number):
        self.path = os.path.join("partitions", "2", name)
        self.number = number

    def open(self, path, flags):
        if path.endswith(self.path) and flags & os.O_CREAT:
            raise OSError(self.number, os.strerror(self.number), path)
        return super().open(path, flags)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("reserved", errno.ENOSPC),
        ("watermark", errno.ENOSPC),
        ("00000000000000000000.log", errno.EMFILE),
        ("topic", errno.ENOSPC),
        ("topic", errno.EMFILE),
    ],
)
def test_refused_partitions_leave_nothing_even_if_some_were_open(tmp_path, name, number):
    data_dir, committer = opened(tmp_path, LittleDisk(name, number))
    settings = LogSettings(durability=Durability.WRITTEN)
    open_before = data_dir.files.open_count
    new = [NewPartition(partition_id, "public/default/t", partition_id) for partition_id in (1, 2)]
    with pytest.raises(StorageFull, match=f"2/{name}") as refused:
        data_dir.create_partitions(new, settings, committer)
    assert refused.value.number == number
    assert data_dir.partition_ids() == []
    assert data_dir.files.open_count <= open_before
    data_dir.create_partitions([NewPartition(1, "public/default/t", 0)], settings, committer)
    data_dir.close(committer)
