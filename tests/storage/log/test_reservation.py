"""Durability `written`: visible at once, and offsets that never name two records."""

import errno

import pytest

from braidlog.storage.errors import StorageFull
from braidlog.storage.formats.api import BatchFlag, BodyFormat, BodyInfo
from braidlog.storage.log.reservation import RESERVE_OFFSETS
from braidlog.storage.log.settings import Durability, LogSettings
from tests.storage.files_twins import FailingDisk, RecordingDisk
from tests.storage.log.logs import OneLog


def test_written_mode_shows_at_once_and_syncs_lazily(tmp_path):
    opened = OneLog(tmp_path, durability=Durability.WRITTEN)
    opened.append(b"a", 3)
    assert (opened.log.high_watermark, opened.log.durable_offset) == (3, 0)
    assert opened.all_bodies() == [b"a"]
    assert opened.committer.begin() is None
    opened.commit()
    assert opened.log.durable_offset == 3


def test_written_mode_continues_above_its_reservation_after_a_crash(tmp_path):
    opened = OneLog(tmp_path, durability=Durability.WRITTEN)
    opened.append(b"a", 3)
    opened.crash()
    again = opened.again(durability=Durability.WRITTEN)
    assert again.log.recovery.gap == (3, RESERVE_OFFSETS)
    assert again.append(b"b") == RESERVE_OFFSETS
    first, gap, last = again.all_batches()
    assert (bytes(first.body), bytes(last.body)) == (b"a", b"b")
    assert (gap.base_offset, gap.next_offset) == (3, RESERVE_OFFSETS)
    assert (gap.header.body_format, gap.header.flags) == (BodyFormat.GAP, BatchFlag.GAP)
    assert gap.header.record_count == 0


def test_written_mode_after_a_clean_stop_has_no_gap(tmp_path):
    opened = OneLog(tmp_path, durability=Durability.WRITTEN)
    opened.append(b"a", 3)
    opened.stop()
    again = opened.again(durability=Durability.WRITTEN)
    assert (again.log.recovery.gap, again.append(b"b")) == (None, 3)


def test_written_mode_never_assigns_offsets_above_the_durable_reservation(tmp_path):
    disk = RecordingDisk()
    opened = OneLog(tmp_path, disk, durability=Durability.WRITTEN)
    big = RESERVE_OFFSETS // 2 + 1
    opened.log.append([b"a"], BodyInfo(1), body_format=1, append_us=1, last_offset_delta=big - 1)
    opened.commit()  # Half is used: the round reserves more.
    del disk.calls[:]
    opened.log.append([b"b"], BodyInfo(1), body_format=1, append_us=1, last_offset_delta=big - 1)
    assert disk.names("sync_data") == []
    opened.log.append([b"c"], BodyInfo(1), body_format=1, append_us=1, last_offset_delta=2 * big)
    names = [(call.name, call.file_name) for call in disk.calls]
    assert names.index(("sync_data", "reserved")) < len(names) - 1
    end = opened.log.log_end_offset
    opened.crash()
    again = opened.again(durability=Durability.WRITTEN)
    assert again.append(b"d") >= end


def test_a_log_that_became_synced_respects_the_reservation(tmp_path):
    opened = OneLog(tmp_path, durability=Durability.WRITTEN)
    opened.append(b"a")
    opened.crash()
    again = opened.again()
    assert again.append(b"b") == RESERVE_OFFSETS


def test_the_next_round_covers_the_first_append_of_a_log_that_became_synced(tmp_path):
    opened = OneLog(tmp_path, durability=Durability.WRITTEN)
    opened.append(b"a")
    opened.log.alter(LogSettings(durability=Durability.SYNCED))
    opened.append(b"b")
    opened.committer.finish(opened.committer.begin())
    assert opened.log.high_watermark == 2


def test_durability_can_change_while_the_log_is_open(tmp_path):
    opened = OneLog(tmp_path)
    opened.append(b"a")
    opened.log.alter(LogSettings(durability=Durability.WRITTEN))
    assert opened.log.high_watermark == 1
    opened.append(b"b")
    opened.log.alter(LogSettings(durability=Durability.SYNCED))
    assert opened.log.high_watermark == 2, "what was shown stays shown"
    opened.append(b"c")
    assert [bytes(batch.body) for batch in opened.log.read(1, 100)] == [b"b"]
    opened.commit()
    assert (opened.log.high_watermark, opened.log.durable_offset) == (3, 3)
    opened.commit()  # Lazily: no client waits for the return of the reservation.
    opened.crash()
    again = opened.again()
    assert (again.log.recovery.gap, again.append(b"d")) == (None, 3)


def test_a_start_without_room_for_the_gap_reads_and_appends_later(tmp_path):
    opened = OneLog(tmp_path, durability=Durability.WRITTEN)
    opened.append(b"a", 3)
    opened.crash()
    disk = FailingDisk()
    disk.fail("write", errno.ENOSPC)
    again = opened.again(disk, durability=Durability.WRITTEN)
    assert again.all_bodies() == [b"a"]
    with pytest.raises(StorageFull):
        again.append(b"b")
    disk.heal()
    with pytest.raises(StorageFull):  # The body was stamped for an offset that is now in the gap.
        again.append(b"b")
    assert again.append(b"b") == RESERVE_OFFSETS
    assert again.all_bodies() == [b"a", b"", b"b"]
    again.stop()
    assert opened.again(durability=Durability.WRITTEN).log.recovery.gap is None


def test_a_reservation_of_an_earlier_life_gets_a_durable_name(tmp_path):
    """The earlier life may have been killed before it synced the folder."""
    OneLog(tmp_path, durability=Durability.WRITTEN).crash()
    disk = RecordingDisk()
    folder = OneLog(tmp_path, disk, durability=Durability.WRITTEN).folder
    synced = [call.path for call in disk.calls if call.name == "sync_folder"]
    assert folder in synced


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_disk_at_a_reservations_confirmation_ends_no_round(tmp_path, number):
    """The second slot is written after the sync: a refusal is retried."""
    disk = FailingDisk()
    opened = OneLog(tmp_path, disk, durability=Durability.WRITTEN)
    big = RESERVE_OFFSETS // 2 + 1
    opened.log.append([b"a"], BodyInfo(1), body_format=1, append_us=1, last_offset_delta=big - 1)
    opened.committer.promote_lazy()
    running = opened.committer.begin()
    opened.committer.sync(running)
    disk.fail("write", number)
    opened.committer.finish(running)
    with pytest.raises(StorageFull):
        opened.log.append(
            [b"b"], BodyInfo(1), body_format=1, append_us=1, last_offset_delta=2 * big
        )
    disk.heal()
    opened.append(b"c")
    opened.commit()
    opened.log.append([b"d"], BodyInfo(1), body_format=1, append_us=1, last_offset_delta=big - 1)
    end = opened.log.log_end_offset
    opened.crash()
    assert opened.again(durability=Durability.WRITTEN).append(b"e") >= end


def test_a_round_without_descriptors_for_a_reservation_continues(tmp_path):
    disk = FailingDisk()
    opened = OneLog(tmp_path, disk, durability=Durability.WRITTEN)
    big = RESERVE_OFFSETS // 2 + 1
    opened.log.append([b"a"], BodyInfo(1), body_format=1, append_us=1, last_offset_delta=big - 1)
    opened.committer.promote_lazy()
    disk.fail("write", errno.EMFILE)
    running = opened.committer.begin()
    opened.committer.sync(running)
    opened.committer.finish(running)
    assert opened.log.high_watermark == big
