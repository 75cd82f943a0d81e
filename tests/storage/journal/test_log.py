import errno
import os
import random
import shutil

import pytest

from braidlog.storage.errors import DamagedLog, LogClosed, StorageFull
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.journal.log import LAZY_BYTES_MAX, SNAPSHOT_BATCH_BYTES, JournalLog
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.disk import Disk
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.scan import PIECE_BYTES
from braidlog.storage.log.segment_header import KIND_CURSORS, SEGMENT_HEADER_BYTES
from braidlog.storage.log.watermark import read_watermark
from tests.storage.files_twins import FailingDisk, RecordingDisk
from tests.storage.log.logs import flip, segment_names


class OneJournal:
    """A journal in its own folder, and its committer."""

    def __init__(self, path, disk=None):
        self.path = path
        self.folder = str(path / "cursors")
        files = LocalFiles(path, disk)
        self.committer = Committer(files)
        self.journal = JournalLog(self.folder, files, self.committer, KIND_CURSORS, 1)
        self.replayed = list(self.journal.replay())

    def commit(self):
        self.committer.commit()

    def crash(self):
        self.journal.close()

    def stop(self):
        self.commit()
        self.journal.seal()
        self.commit()
        self.journal.close()


def test_records_are_read_back_in_order(tmp_path):
    opened = OneJournal(tmp_path)
    assert opened.replayed == []
    for body in (b"a", b"", b"c" * 1000):
        opened.journal.append(body)
    opened.commit()
    opened.crash()
    assert OneJournal(tmp_path).replayed == [b"a", b"", b"c" * 1000]


def test_a_record_is_durable_with_its_ticket(tmp_path):
    disk = RecordingDisk()
    opened = OneJournal(tmp_path, disk)
    opened.commit()
    ticket = opened.journal.append(b"a")
    assert opened.committer.durable_ticket < ticket
    del disk.calls[:]
    opened.commit()
    assert opened.committer.durable_ticket == ticket
    assert [name for name in disk.names() if name.startswith("sync")]


def test_a_new_journal_is_durable_before_its_use(tmp_path):
    disk = RecordingDisk()
    OneJournal(tmp_path, disk)
    synced = [call.file_name for call in disk.calls if call.name.startswith("sync")]
    assert synced == ["00000000000000000000.log", "cursors", tmp_path.name]


def test_the_first_round_makes_names_of_earlier_lives_durable(tmp_path):
    OneJournal(tmp_path).crash()
    disk = RecordingDisk()
    opened = OneJournal(tmp_path, disk)
    opened.journal.append(b"a")
    opened.commit()
    assert len(disk.names("sync_folder", "sync_file_system")) == 1


def test_lazy_records_share_one_write_with_the_next_round(tmp_path):
    disk = RecordingDisk()
    opened = OneJournal(tmp_path, disk)
    opened.commit()
    del disk.calls[:]
    for number in range(100):
        opened.journal.append_lazy(b"%d" % number)
    assert disk.calls == []
    assert opened.committer.begin() is None
    opened.commit()
    writes = [call for call in disk.calls if call.name == "write" and "log" in call.path]
    assert len(writes) == 1
    opened.crash()
    assert OneJournal(tmp_path).replayed == [b"%d" % number for number in range(100)]


def test_lazy_records_stay_before_later_records(tmp_path):
    opened = OneJournal(tmp_path)
    opened.journal.append(b"1")
    opened.journal.append_lazy(b"2")
    opened.journal.append(b"3")
    opened.journal.append_lazy(b"4")
    opened.commit()
    opened.crash()
    assert OneJournal(tmp_path).replayed == [b"1", b"2", b"3", b"4"]


def test_lazy_records_do_not_accumulate(tmp_path):
    disk = RecordingDisk()
    opened = OneJournal(tmp_path, disk)
    del disk.calls[:]
    for _ in range(5):
        opened.journal.append_lazy(b"x" * (LAZY_BYTES_MAX // 4))
    assert disk.names("write") == ["write"]


def test_a_lazy_source_is_read_when_a_round_begins(tmp_path):
    opened = OneJournal(tmp_path)
    calls = []

    def source():
        calls.append(1)
        return [b"state"]

    opened.journal.lazy_source = source
    opened.journal.mark_lazy()
    assert calls == []
    opened.commit()
    opened.crash()
    assert calls == [1]
    assert OneJournal(tmp_path).replayed == [b"state"]


def test_a_snapshot_replaces_all_earlier_records(tmp_path):
    opened = OneJournal(tmp_path)
    for number in range(100):
        opened.journal.append(b"old %d" % number)
    opened.journal.append_lazy(b"old, lazy")
    before = opened.journal.size_bytes
    opened.journal.snapshot([b"all", b"of it"])
    assert opened.journal.size_bytes == opened.journal.snapshot_bytes < before
    opened.journal.append(b"new")
    assert len(segment_names(opened.folder)) == 2
    opened.commit()
    opened.commit()
    assert len(segment_names(opened.folder)) == 1
    opened.crash()
    again = OneJournal(tmp_path)
    assert again.replayed == [b"all", b"of it", b"new"]
    assert 0 < again.journal.snapshot_bytes < again.journal.size_bytes


def test_old_segments_stay_until_snapshot_and_slot_are_durable(tmp_path):
    """A round that began before the snapshot does not make it durable; the slot records its
    durability.
    """
    opened = OneJournal(tmp_path)
    opened.journal.append(b"old")
    running = opened.committer.begin()
    opened.journal.snapshot([b"state"])
    opened.committer.sync(running)
    opened.committer.finish(running)
    states = []
    for _ in range(3):
        slot = read_watermark(opened.folder, 1, KIND_CURSORS)
        states.append((len(segment_names(opened.folder)), slot.log_start_offset))
        opened.commit()
    assert states == [(2, 0), (2, 1), (1, 1)]


def test_old_segments_kept_by_a_read_only_disk_do_no_harm(tmp_path):
    disk = FailingDisk()
    opened = OneJournal(tmp_path, disk)
    opened.journal.append(b"old")
    opened.commit()
    opened.journal.snapshot([b"new"])
    disk.fail("unlink", errno.EROFS)
    opened.commit()
    opened.commit()
    assert len(segment_names(opened.folder)) == 2
    opened.journal.append(b"more")
    opened.stop()
    assert OneJournal(tmp_path).replayed == [b"new", b"more"]


def test_a_large_snapshot_takes_several_batches(tmp_path):
    opened = OneJournal(tmp_path)
    state = [random.Random(number).randbytes(5000) for number in range(300)]
    opened.journal.snapshot(state)
    opened.commit()
    opened.stop()
    assert OneJournal(tmp_path).replayed == state


class MeasuringDisk(Disk):
    """Counts the read bytes."""

    def __init__(self):
        self.sizes = []

    def read(self, path, fd, size, pos):
        data = super().read(path, fd, size, pos)
        if path.endswith(".log"):
            self.sizes.append(len(data))
        return data

    def read_into(self, path, fd, into, pos):
        count = super().read_into(path, fd, into, pos)
        if path.endswith(".log"):
            self.sizes.append(count)
        return count


def test_a_start_reads_a_snapshot_once_and_in_small_pieces(tmp_path):
    """The records behind the snapshot are read again, to find their end."""
    opened = OneJournal(tmp_path)
    state = [random.Random(number).randbytes(5000) for number in range(1000)]
    opened.journal.snapshot(state)
    changes = [random.Random(number).randbytes(200) for number in range(2000)]
    for body in changes:
        opened.journal.append(body)
    opened.stop()
    changes_bytes = opened.journal.size_bytes - opened.journal.snapshot_bytes
    disk = MeasuringDisk()
    assert OneJournal(tmp_path, disk).replayed == state + changes
    # A batch cut at the end of a piece is read again with the next piece.
    assert sum(disk.sizes) < 4 / 3 * opened.journal.snapshot_bytes + 2.1 * changes_bytes
    assert max(disk.sizes) == PIECE_BYTES


def test_an_empty_snapshot_is_valid(tmp_path):
    opened = OneJournal(tmp_path)
    opened.journal.append(b"old")
    opened.journal.snapshot([])
    opened.commit()
    opened.crash()
    assert OneJournal(tmp_path).replayed == []


@pytest.mark.slow
def test_a_crash_at_any_byte_of_a_snapshot_keeps_the_old_or_new_state(tmp_path):
    opened = OneJournal(tmp_path)
    for body in (b"one", b"two"):
        opened.journal.append(body)
    opened.commit()
    opened.journal.snapshot([b"state" * 3])
    new = segment_names(opened.folder)[1]
    opened.crash()
    whole = os.path.getsize(os.path.join(opened.folder, new))
    for size in range(whole + 1):
        path = tmp_path.parent / f"{tmp_path.name}-{size}"
        shutil.copytree(tmp_path, path)
        with open(path / "cursors" / new, "r+b") as file:
            file.truncate(size)
        again = OneJournal(path)
        expected = [b"state" * 3] if size == whole else [b"one", b"two"]
        assert again.replayed == expected, size
        again.journal.append(b"more")
        again.commit()
        again.crash()
        last = OneJournal(path)
        assert last.replayed == [*expected, b"more"]
        last.crash()
        shutil.rmtree(path)


def test_the_newer_whole_snapshot_counts(tmp_path):
    """There are two snapshots in a round, and the power fails before the second is on disk."""
    opened = OneJournal(tmp_path)
    opened.journal.append(b"old")
    opened.journal.snapshot([b"first"])
    opened.journal.append(b"more")
    opened.journal.snapshot([b"second"])
    newest = os.path.join(opened.folder, segment_names(opened.folder)[-1])
    opened.crash()
    with open(newest, "r+b") as file:
        file.truncate(os.path.getsize(newest) - 1)
    again = OneJournal(tmp_path)
    assert again.replayed == [b"first", b"more"]
    again.journal.append(b"next")
    again.stop()
    assert OneJournal(tmp_path).replayed == [b"first", b"more", b"next"]


def test_a_torn_tail_is_cut_and_the_journal_continues(tmp_path):
    opened = OneJournal(tmp_path)
    opened.journal.append(b"kept")
    opened.commit()
    opened.journal.append(b"torn")
    opened.crash()
    path = os.path.join(opened.folder, segment_names(opened.folder)[0])
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - 1)
    again = OneJournal(tmp_path)
    assert (again.replayed, len(again.journal.recovery.cuts)) == ([b"kept"], 1)
    again.journal.append(b"next")
    again.commit()
    again.crash()
    assert OneJournal(tmp_path).replayed == [b"kept", b"next"]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_damage_is_a_single_clear_error(tmp_path, number):
    opened = OneJournal(tmp_path)
    for body in (b"aaaa", b"bbbb", b"cccc"):
        opened.journal.append(body)
        opened.commit()
    opened.stop()
    path = os.path.join(opened.folder, segment_names(opened.folder)[0])
    flip(path, SEGMENT_HEADER_BYTES + number * (HEADER_BYTES + 8) + HEADER_BYTES + 6)
    with pytest.raises(DamagedLog, match=r"cursors.*checksum"):
        OneJournal(tmp_path)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_damage_in_a_snapshot_is_a_single_clear_error(tmp_path, number):
    opened = OneJournal(tmp_path)
    opened.journal.append(b"old")
    opened.commit()
    opened.journal.snapshot([b"x" * SNAPSHOT_BATCH_BYTES] * 3)
    opened.commit()  # Durable, but its slot is not: the old segment still exists.
    names = segment_names(opened.folder)
    opened.crash()
    flip(os.path.join(opened.folder, names[1]), 1000 + number * SNAPSHOT_BATCH_BYTES)
    with pytest.raises(DamagedLog, match=r"cursors.*checksum"):
        OneJournal(tmp_path)
    assert segment_names(opened.folder) == names


def test_a_journal_without_its_segments_is_damaged(tmp_path):
    opened = OneJournal(tmp_path)
    opened.journal.append(b"a")
    opened.stop()
    os.unlink(os.path.join(opened.folder, segment_names(opened.folder)[0]))
    with pytest.raises(DamagedLog):
        OneJournal(tmp_path)


def test_no_space_refuses_the_record_and_the_snapshot(tmp_path):
    disk = FailingDisk()
    opened = OneJournal(tmp_path, disk)
    opened.journal.append(b"a")
    disk.fail("write", errno.ENOSPC, bytes_first=5)
    with pytest.raises(StorageFull):
        opened.journal.append(b"b")
    with pytest.raises(StorageFull):
        opened.journal.snapshot([b"c"])
    opened.journal.append_lazy(b"d")
    opened.commit()
    disk.heal()
    opened.commit()
    opened.journal.append(b"e")
    opened.commit()
    opened.crash()
    assert OneJournal(tmp_path).replayed == [b"a", b"d", b"e"]
    assert len(segment_names(opened.folder)) == 1


def test_a_refused_lazy_record_is_not_written_later(tmp_path):
    """Otherwise the record would return after a restart, and memory would grow with
    each refusal.
    """
    disk = FailingDisk()
    opened = OneJournal(tmp_path, disk)
    disk.fail("write", errno.ENOSPC)
    small = b"k" * (LAZY_BYTES_MAX // 2)
    for _ in range(2):
        opened.journal.append_lazy(small)
    for _ in range(3):
        with pytest.raises(StorageFull):
            opened.journal.append_lazy(b"refused")
    disk.heal()
    opened.journal.append_lazy(b"taken")
    opened.committer.promote_lazy()
    opened.commit()
    opened.crash()
    assert OneJournal(tmp_path).replayed == [small, small, b"taken"]


class ForgetfulDisk(Disk):
    """A disk with room for a snapshot's header and first batch, which loses all removals in a power
    cut.
    """

    writes_left = -1

    def write(self, path, fd, parts, pos):
        if self.writes_left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.writes_left -= 1
        return super().write(path, fd, parts, pos)

    def unlink(self, path):
        pass


def test_an_abandoned_snapshot_with_a_lost_removal_does_no_harm(tmp_path):
    disk = ForgetfulDisk()
    opened = OneJournal(tmp_path, disk)
    opened.journal.append(b"before")
    opened.commit()
    disk.writes_left = 2
    with pytest.raises(StorageFull):
        opened.journal.snapshot([bytes(SNAPSHOT_BATCH_BYTES // 2)] * 5)
    disk.writes_left = -1
    expected = [b"before"]
    for life in range(3):
        for number in range(2):  # Fewer than in the snapshot.
            opened.journal.append(b"%d-%d" % (life, number))
            opened.commit()
            expected.append(b"%d-%d" % (life, number))
        opened.crash()
        opened = OneJournal(tmp_path)
        assert opened.replayed == expected
        assert opened.journal.recovery.is_clean
    opened.crash()


def test_a_closed_journal_raises_a_clear_error(tmp_path):
    opened = OneJournal(tmp_path)
    opened.crash()
    with pytest.raises(LogClosed):
        opened.journal.append(b"a")
    with pytest.raises(LogClosed):
        opened.journal.snapshot([])
