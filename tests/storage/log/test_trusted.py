"""Bodies that were found good before, for readers that check bodies themselves: not checked again
while in memory, and always checked for every other reader.
"""

import errno
import random

import pytest

from braidlog.storage.errors import DamagedLog, WouldBlock
from braidlog.storage.log.in_place import IN_PLACE_BYTES_MIN
from braidlog.storage.log.segment_reading import Trusted
from tests.storage.files_twins import FailingDisk
from tests.storage.log.logs import FORMAT, OneLog

BODY_BYTES = 2 * IN_PLACE_BYTES_MIN


@pytest.fixture
def opened(tmp_path):
    opened = OneLog(tmp_path, FailingDisk())
    random_ = random.Random(1)
    opened.fill([random_.randbytes(BODY_BYTES) for _ in range(6)], 2)
    return opened


def damage(opened):
    """Change bytes of the third batch, offsets 4 and 5, without the log's knowledge."""
    place = opened.all_batches()[2].file_pos
    with open(opened.log.segment_set.last.path, "r+b") as file:
        file.seek(place + 1000)
        file.write(b"\0damage\0")


def restarted(opened):
    opened.stop()
    return OneLog(opened.path, FailingDisk())


def trusting(opened, offset, body_format=FORMAT):
    return opened.log.read(offset, 1 << 20, wait=False, trusted=Trusted(body_format))


def test_batches_written_by_this_process_are_not_checked_again(opened):
    damage(opened)
    assert len(trusting(opened, 0)) == 6
    assert b"damage" in bytes(trusting(opened, 4)[0].body)


def test_readers_without_checks_get_no_wrong_byte(opened):
    damage(opened)
    for _ in range(2):
        assert len(opened.log.read(0, 1 << 20, wait=False)) == 2
        with pytest.raises(DamagedLog, match="body checksum"):
            opened.log.read(4, 1 << 20, wait=False)
        trusting(opened, 0)


def test_batches_from_the_disk_are_checked_again(opened):
    damage(opened)
    opened.files.disk.fail("read_cached", errno.EAGAIN)
    with pytest.raises(WouldBlock):
        trusting(opened, 0)
    opened.files.disk.heal()
    with pytest.raises(WouldBlock):  # A thread reads and checks the batches first.
        trusting(opened, 0)
    assert len(opened.log.read(0, 1 << 20)) == 2
    with pytest.raises(DamagedLog, match="body checksum"):
        opened.log.read(4, 1 << 20)
    opened.fill([b"later"])
    assert bytes(trusting(opened, 6)[-1].body) == b"later"


def test_batches_from_before_the_start_are_checked_once(opened):
    damage(opened)
    opened = restarted(opened)
    assert len(trusting(opened, 0)) == 2


def test_checked_batches_are_not_checked_again(opened):
    opened = restarted(opened)
    assert len(trusting(opened, 0)) == 6
    damage(opened)
    assert b"damage" in bytes(trusting(opened, 4)[0].body)


def test_bodies_of_other_formats_are_checked(opened):
    damage(opened)
    assert len(trusting(opened, 0, FORMAT + 1)) == 2


def test_a_batch_cut_at_its_beginning_is_checked(opened):
    damage(opened)
    with pytest.raises((DamagedLog, WouldBlock)):  # The read needs a search through the file.
        trusting(opened, 5)


def test_a_file_that_lost_bytes_is_not_trusted(opened):
    damage(opened)
    opened.files.leases.lost.add(opened.log.segment_set.last.path)
    assert len(trusting(opened, 0)) == 2


def cut(opened, offset, bytes_max):
    trusted = Trusted(FORMAT, may_be_cut=True)
    return opened.log.read(offset, bytes_max, 128, wait=False, trusted=trusted)


def test_the_first_batch_is_cut_to_the_room(opened):
    whole = opened.log.read(4, 0)[0]
    for bytes_max in (1, 1000, BODY_BYTES - 1):
        (batch,) = cut(opened, 4, bytes_max)
        assert batch.is_cut
        assert bytes(batch.body) == bytes(whole.body[:bytes_max])
        assert (batch.header, batch.file_pos) == (whole.header, whole.file_pos)


def test_batches_with_room_are_whole(opened):
    assert [batch.is_cut for batch in cut(opened, 4, BODY_BYTES)] == [False]
    assert [batch.is_cut for batch in cut(opened, 4, BODY_BYTES + 1)] == [False, False]


def test_an_unchecked_batch_is_not_cut(opened):
    damage(opened)
    opened = restarted(opened)
    assert [batch.is_cut for batch in cut(opened, 0, 1000)] == [False]
    with pytest.raises(DamagedLog, match="body checksum"):
        cut(opened, 4, 1000)
    assert not opened.log.read(0, 1000, 128, wait=False, trusted=Trusted(FORMAT))[0].is_cut


def test_a_batch_that_begins_before_the_offset_is_not_cut(opened):
    assert not cut(opened, 5, 1000)[0].is_cut
