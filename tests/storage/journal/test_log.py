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
    one = OneJournal(tmp_path)
    assert one.replayed == []
    for body in (b"a", b"", b"c" * 1000):
        one.journal.append(body)
    one.commit()
    one.crash()
    assert OneJournal(tmp_path).replayed == [b"a", b"", b"c" * 1000]


def test_a_record_is_durable_with_its_ticket(tmp_path):
    disk = RecordingDisk()
    one = OneJournal(tmp_path, disk)
    one.commit()
    ticket = one.journal.append(b"a")
    assert one.committer.durable_ticket < ticket
    del disk.calls[:]
    one.commit()
    assert one.committer.durable_ticket == ticket
    assert [name for name in disk.names() if name.startswith("sync")]


def test_a_new_journal_is_durable_before_its_use(tmp_path):
    disk = RecordingDisk()
    OneJournal(tmp_path, disk)
    synced = [call.file_name for call in disk.calls if call.name.startswith("sync")]
    assert synced == ["00000000000000000000.log", "cursors", tmp_path.name]


def test_the_first_round_makes_names_of_earlier_lives_durable(tmp_path):
    OneJournal(tmp_path).crash()
    disk = RecordingDisk()
    one = OneJournal(tmp_path, disk)
    one.journal.append(b"a")
    one.commit()
    assert len(disk.names("sync_folder", "sync_file_system")) == 1


def test_lazy_records_share_one_write_with_the_next_round(tmp_path):
    disk = RecordingDisk()
    one = OneJournal(tmp_path, disk)
    one.commit()
    del disk.calls[:]
    for number in range(100):
        one.journal.append_lazy(b"%d" % number)
    assert disk.calls == []
    assert one.committer.begin() is None
    one.commit()
    writes = [call for call in disk.calls if call.name == "write" and "log" in call.path]
    assert len(writes) == 1
    one.crash()
    assert OneJournal(tmp_path).replayed == [b"%d" % number for number in range(100)]


def test_lazy_records_stay_before_later_records(tmp_path):
    one = OneJournal(tmp_path)
    one.journal.append(b"1")
    one.journal.append_lazy(b"2")
    one.journal.append(b"3")
    one.journal.append_lazy(b"4")
    one.commit()
    one.crash()
    assert OneJournal(tmp_path).replayed == [b"1", b"2", b"3", b"4"]


def test_lazy_records_do_not_accumulate(tmp_path):
    disk = RecordingDisk()
    one = OneJournal(tmp_path, disk)
    del disk.calls[:]
    for _ in range(5):
        one.journal.append_lazy(b"x" * (LAZY_BYTES_MAX // 4))
    assert disk.names("write") == ["write"]


def test_a_lazy_source_is_read_when_a_round_begins(tmp_path):
    one = OneJournal(tmp_path)
    asked = []

    def source():
        asked.append(1)
        return [b"state"]

    one.journal.lazy_source = source
    one.journal.mark_lazy()
    assert asked == []
    one.commit()
    one.crash()
    assert asked == [1]
    assert OneJournal(tmp_path).replayed == [b"state"]


def test_a_snapshot_replaces_all_earlier_records(tmp_path):
    one = OneJournal(tmp_path)
    for number in range(100):
        one.journal.append(b"old %d" % number)
    one.journal.append_lazy(b"old, lazy")
    before = one.journal.size_bytes
    one.journal.snapshot([b"all", b"of it"])
    assert one.journal.size_bytes == one.journal.snapshot_bytes < before
    one.journal.append(b"new")
    assert len(segment_names(one.folder)) == 2
    one.commit()
    one.commit()
    assert len(segment_names(one.folder)) == 1
    one.crash()
    again = OneJournal(tmp_path)
    assert again.replayed == [b"all", b"of it", b"new"]
    assert 0 < again.journal.snapshot_bytes < again.journal.size_bytes


def test_old_segments_stay_until_snapshot_and_slot_are_durable(tmp_path):
    """A round that began before the snapshot does not make it durable; the slot records its
    durability.
    """
    one = OneJournal(tmp_path)
    one.journal.append(b"old")
    running = one.committer.begin()
    one.journal.snapshot([b"state"])
    one.committer.sync(running)
    one.committer.finish(running)
    kept = []
    for _ in range(3):
        slot = read_watermark(one.folder, 1, KIND_CURSORS)
        kept.append((len(segment_names(one.folder)), slot.log_start_offset))
        one.commit()
    assert kept == [(2, 0), (2, 1), (1, 1)]


def test_old_segments_kept_by_a_read_only_disk_do_no_harm(tmp_path):
    disk = FailingDisk()
    one = OneJournal(tmp_path, disk)
    one.journal.append(b"old")
    one.commit()
    one.journal.snapshot([b"new"])
    disk.fail("unlink", errno.EROFS)
    one.commit()
    one.commit()
    assert len(segment_names(one.folder)) == 2
    one.journal.append(b"more")
    one.stop()
    assert OneJournal(tmp_path).replayed == [b"new", b"more"]


def test_a_large_snapshot_takes_several_batches(tmp_path):
    one = OneJournal(tmp_path)
    state = [random.Random(number).randbytes(5000) for number in range(300)]
    one.journal.snapshot(state)
    one.commit()
    one.stop()
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


def test_a_start_reads_a_snapshot_once_and_in_small_pieces(tmp_path):
    """The records behind the snapshot are read again, to find their end."""
    one = OneJournal(tmp_path)
    state = [random.Random(number).randbytes(5000) for number in range(1000)]
    one.journal.snapshot(state)
    changes = [random.Random(number).randbytes(200) for number in range(2000)]
    for body in changes:
        one.journal.append(body)
    one.stop()
    changes_bytes = one.journal.size_bytes - one.journal.snapshot_bytes
    disk = MeasuringDisk()
    assert OneJournal(tmp_path, disk).replayed == state + changes
    # A batch cut at the end of a piece is read again with the next piece.
    assert sum(disk.sizes) < 4 / 3 * one.journal.snapshot_bytes + 2.1 * changes_bytes
    assert max(disk.sizes) == PIECE_BYTES


def test_an_empty_snapshot_is_valid(tmp_path):
    one = OneJournal(tmp_path)
    one.journal.append(b"old")
    one.journal.snapshot([])
    one.commit()
    one.crash()
    assert OneJournal(tmp_path).replayed == []


@pytest.mark.slow
def test_a_crash_at_any_byte_of_a_snapshot_keeps_the_old_or_new_state(tmp_path):
    one = OneJournal(tmp_path)
    for body in (b"one", b"two"):
        one.journal.append(body)
    one.commit()
    one.journal.snapshot([b"state" * 3])
    new = segment_names(one.folder)[1]
    one.crash()
    whole = os.path.getsize(os.path.join(one.folder, new))
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
    one = OneJournal(tmp_path)
    one.journal.append(b"old")
    one.journal.snapshot([b"first"])
    one.journal.append(b"more")
    one.journal.snapshot([b"second"])
    newest = os.path.join(one.folder, segment_names(one.folder)[-1])
    one.crash()
    with open(newest, "r+b") as file:
        file.truncate(os.path.getsize(newest) - 1)
    again = OneJournal(tmp_path)
    assert again.replayed == [b"first", b"more"]
    again.journal.append(b"next")
    again.stop()
    assert OneJournal(tmp_path).replayed == [b"first", b"more", b"next"]


def test_a_torn_tail_is_cut_and_the_journal_continues(tmp_path):
    one = OneJournal(tmp_path)
    one.journal.append(b"kept")
    one.commit()
    one.journal.append(b"torn")
    one.crash()
    path = os.path.join(one.folder, segment_names(one.folder)[0])
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
    one = OneJournal(tmp_path)
    for body in (b"aaaa", b"bbbb", b"cccc"):
        one.journal.append(body)
        one.commit()
    one.stop()
    path = os.path.join(one.folder, segment_names(one.folder)[0])
    flip(path, SEGMENT_HEADER_BYTES + number * (HEADER_BYTES + 8) + HEADER_BYTES + 6)
    with pytest.raises(DamagedLog, match=r"cursors.*checksum"):
        OneJournal(tmp_path)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_damage_in_a_snapshot_is_a_single_clear_error(tmp_path, number):
    one = OneJournal(tmp_path)
    one.journal.append(b"old")
    one.commit()
    one.journal.snapshot([b"x" * SNAPSHOT_BATCH_BYTES] * 3)
    one.commit()  # Durable, but its slot is not: the old segment still exists.
    names = segment_names(one.folder)
    one.crash()
    flip(os.path.join(one.folder, names[1]), 1000 + number * SNAPSHOT_BATCH_BYTES)
    with pytest.raises(DamagedLog, match=r"cursors.*checksum"):
        OneJournal(tmp_path)
    assert segment_names(one.folder) == names


def test_a_journal_without_its_segments_is_damaged(tmp_path):
    one = OneJournal(tmp_path)
    one.journal.append(b"a")
    one.stop()
    os.unlink(os.path.join(one.folder, segment_names(one.folder)[0]))
    with pytest.raises(DamagedLog):
        OneJournal(tmp_path)


def test_no_space_refuses_the_record_and_the_snapshot(tmp_path):
    disk = FailingDisk()
    one = OneJournal(tmp_path, disk)
    one.journal.append(b"a")
    disk.fail("write", errno.ENOSPC, bytes_first=5)
    with pytest.raises(StorageFull):
        one.journal.append(b"b")
    with pytest.raises(StorageFull):
        one.journal.snapshot([b"c"])
    one.journal.append_lazy(b"d")
    one.commit()
    disk.heal()
    one.commit()
    one.journal.append(b"e")
    one.commit()
    one.crash()
    assert OneJournal(tmp_path).replayed == [b"a", b"d", b"e"]
    assert len(segment_names(one.folder)) == 1


def test_a_refused_lazy_record_is_not_written_later(tmp_path):
    """Otherwise the record would return after a restart, and memory would grow with
    each refusal.
    """
    disk = FailingDisk()
    one = OneJournal(tmp_path, disk)
    disk.fail("write", errno.ENOSPC)
    kept = b"k" * (LAZY_BYTES_MAX // 2)
    for _ in range(2):
        one.journal.append_lazy(kept)
    for _ in range(3):
        with pytest.raises(StorageFull):
            one.journal.append_lazy(b"refused")
    disk.heal()
    one.journal.append_lazy(b"taken")
    one.committer.promote_lazy()
    one.commit()
    one.crash()
    assert OneJournal(tmp_path).replayed == [kept, kept, b"taken"]


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
    one = OneJournal(tmp_path, disk)
    one.journal.append(b"before")
    one.commit()
    disk.writes_left = 2
    with pytest.raises(StorageFull):
        one.journal.snapshot([bytes(SNAPSHOT_BATCH_BYTES // 2)] * 5)
    disk.writes_left = -1
    expected = [b"before"]
    for life in range(3):
        for number in range(2):  # Fewer than in the snapshot.
            one.journal.append(b"%d-%d" % (life, number))
            one.commit()
            expected.append(b"%d-%d" % (life, number))
        one.crash()
        one = OneJournal(tmp_path)
        assert one.replayed == expected
        assert one.journal.recovery.is_clean
    one.crash()


def test_a_closed_journal_raises_a_clear_error(tmp_path):
    one = OneJournal(tmp_path)
    one.crash()
    with pytest.raises(LogClosed):
        one.journal.append(b"a")
    with pytest.raises(LogClosed):
        one.journal.snapshot([])
