"""The disk space reserved for changes that free space: its users, its pieces, and its refill."""

import errno
import os

import pytest

from braidlog.storage.errors import StorageFailed, StorageFull
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.reserve import BLOCK_BYTES, PIECE_BYTES, Reserve
from tests.storage.files_twins import FailingDisk, LimitedDisk

SIZE = 2 * PIECE_BYTES
BLOCKS_KEPT = SIZE // BLOCK_BYTES
BLOCKS = 100


class Home:
    """A small disk with a reserve, and a file for changes."""

    def __init__(self, folder):
        self.disk = LimitedDisk(folder, BLOCKS)
        self.path = str(folder / "reserve")
        self.start()
        self.journal = self.files.create(str(folder / "journal"))

    def start(self):
        self.files = LocalFiles(self.disk.root, self.disk)
        self.reserve = Reserve(self.files, self.path, SIZE)
        self.reserve.make()

    def write(self, blocks=1):
        """Make a change: all or nothing."""
        size = self.journal.size()
        self.journal.write_at([bytes(blocks * BLOCK_BYTES)], size)
        return size

    @property
    def reserved_bytes(self):
        return os.path.getsize(self.path)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def test_the_reserves_blocks_are_allocated(home):
    assert home.reserve.is_whole
    assert home.disk.blocks_free == BLOCKS - BLOCKS_KEPT
    assert os.stat(home.path).st_blocks * 512 >= SIZE


def test_a_change_with_room_does_not_use_the_reserve(home):
    assert home.reserve.use_reserve(home.write) == 0
    assert home.reserved_bytes == SIZE


@pytest.mark.parametrize("blocks", [1, 3, PIECE_BYTES // BLOCK_BYTES + 3, BLOCKS_KEPT])
def test_a_permitted_change_on_a_full_disk_gets_its_blocks(home, blocks):
    home.disk.fill()
    assert home.reserve.use_reserve(lambda: home.write(blocks)) == 0
    assert home.reserved_bytes == SIZE - blocks * BLOCK_BYTES
    assert not home.reserve.is_whole
    with pytest.raises(StorageFull):
        home.write()  # A change without permission gets no reserve.
    assert home.reserved_bytes == SIZE - blocks * BLOCK_BYTES


def test_the_reserve_has_room_for_a_number_of_changes(home):
    home.disk.fill()
    for _ in range(BLOCKS_KEPT):
        home.reserve.use_reserve(home.write)
    assert home.reserved_bytes == 0
    with pytest.raises(StorageFull):
        home.reserve.use_reserve(home.write)


def test_a_piece_taken_by_others_is_completed_by_the_next(home):
    home.disk.fill()
    calls = []

    def act():
        calls.append(1)
        if len(calls) == 2:
            home.disk.fill()  # Another process is quicker than the change.
        return home.write()

    home.reserve.use_reserve(act)
    assert home.reserved_bytes == SIZE - PIECE_BYTES - BLOCK_BYTES


def test_the_reserve_is_refilled_once_there_is_room(home):
    home.disk.fill()
    home.reserve.use_reserve(home.write)
    home.reserve.make()
    assert not home.reserve.is_whole
    home.disk.blocks += BLOCKS_KEPT
    home.reserve.make()
    assert home.reserve.is_whole
    assert home.reserved_bytes == SIZE


def test_the_reserve_takes_all_room_of_a_small_disk(tmp_path):
    disk = LimitedDisk(tmp_path, 3)
    reserve = Reserve(LocalFiles(tmp_path, disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    assert not reserve.is_whole
    assert os.path.getsize(tmp_path / "reserve") == 3 * BLOCK_BYTES


def test_room_is_checked_by_allocating_and_freeing(home):
    free = home.disk.blocks_free
    assert home.reserve.has_room(free * BLOCK_BYTES)
    assert not home.reserve.has_room(free * BLOCK_BYTES + 1)
    assert home.disk.blocks_free == free
    assert home.reserved_bytes == SIZE
    home.disk.fill()
    assert not home.reserve.has_room(1)


@pytest.mark.parametrize(
    ("number", "has_room"),
    [(errno.EROFS, False), (errno.EDQUOT, False), (errno.EOPNOTSUPP, True), (errno.EMFILE, True)],
)
def test_an_unknown_amount_of_room_counts_as_room(tmp_path, number, has_room):
    disk = FailingDisk()
    reserve = Reserve(LocalFiles(tmp_path, disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    disk.fail("allocate", number)
    assert reserve.has_room(1) == has_room


@pytest.mark.parametrize("left", [None, 0, 1, SIZE - 1, SIZE])
def test_a_start_refills_the_reserve_after_any_crash(home, left):
    home.reserve.close()
    if left is None:
        os.unlink(home.path)
    else:
        os.truncate(home.path, left)
    home.start()
    assert home.reserve.is_whole
    assert home.reserved_bytes == SIZE


def test_a_start_allocates_blocks_that_a_copy_left_out(home):
    os.truncate(home.path, 0)
    os.truncate(home.path, SIZE)  # A hole, as `cp` makes of zero bytes.
    home.start()
    assert os.stat(home.path).st_blocks * 512 >= SIZE


@pytest.mark.parametrize("number", [errno.EROFS, errno.EMFILE])
def test_the_reserve_is_kept_if_room_is_not_missing(home, number):
    def act():
        raise StorageFull("", number)

    with pytest.raises(StorageFull):
        home.reserve.use_reserve(act)
    assert home.reserved_bytes == SIZE


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSPC, errno.EROFS])
def test_an_unsupported_file_system_refuses_changes_as_before(tmp_path, number):
    disk = FailingDisk()
    disk.fail("allocate", number)
    reserve = Reserve(LocalFiles(tmp_path, disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    assert not reserve.is_whole

    def act():
        raise StorageFull("")

    with pytest.raises(StorageFull):
        reserve.use_reserve(act)


def test_a_disk_without_room_for_the_reserve_works_without(tmp_path):
    disk = FailingDisk()
    disk.fail("create", errno.ENOSPC)
    reserve = Reserve(LocalFiles(tmp_path, disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    assert not reserve.is_whole
    assert not reserve.has_room(1)
    disk.heal()
    reserve.make()
    assert reserve.is_whole


def test_a_disk_that_cannot_truncate_the_reserve_refuses_the_change(tmp_path):
    disk = FailingDisk()
    reserve = Reserve(LocalFiles(tmp_path, disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    disk.fail("truncate", errno.EROFS)

    def act():
        raise StorageFull("")

    with pytest.raises(StorageFull):
        reserve.use_reserve(act)


def test_a_failing_disk_is_not_a_full_disk(tmp_path):
    disk = FailingDisk()
    disk.fail("allocate", errno.EIO)
    with pytest.raises(StorageFailed):
        Reserve(LocalFiles(tmp_path, disk), str(tmp_path / "reserve"), SIZE).make()


@pytest.mark.parametrize("call", ["create", "write", "allocate"])
def test_a_disk_that_refuses_a_kind_of_call_has_no_room(tmp_path, call):
    disk = FailingDisk()
    reserve = Reserve(LocalFiles(str(tmp_path), disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    assert reserve.has_room(BLOCK_BYTES)
    disk.fail(call, errno.ENOSPC)
    assert not reserve.has_room(BLOCK_BYTES)
    disk.heal()
    assert reserve.has_room(BLOCK_BYTES)
    assert os.listdir(tmp_path) == ["reserve"]


def test_a_crash_may_leave_the_file_of_a_room_check(home):
    with open(home.path + ".probe", "wb"):
        pass
    assert home.reserve.has_room(BLOCK_BYTES)
    assert not os.path.exists(home.path + ".probe")
