"""The room kept for what makes room: who gets it, how much at once, and when it comes back."""

import errno
import os

import pytest

from braidlog.storage.errors import StorageFailed, StorageFull
from braidlog.storage.log.files import Files
from braidlog.storage.log.reserve import BLOCK_BYTES, PIECE_BYTES, Reserve
from tests.storage.files_twins import FailingDisk, SmallDisk

SIZE = 2 * PIECE_BYTES
BLOCKS_KEPT = SIZE // BLOCK_BYTES
BLOCKS = 100


class Home:
    """A small disk with a reserve on it, and a file that acts write to."""

    def __init__(self, folder):
        self.disk = SmallDisk(folder, BLOCKS)
        self.path = str(folder / "reserve")
        self.start()
        self.journal = self.files.create(str(folder / "journal"))

    def start(self):
        self.files = Files(self.disk.root, self.disk)
        self.reserve = Reserve(self.files, self.path, SIZE)
        self.reserve.make()

    def write(self, blocks=1):
        """An act: all or nothing."""
        size = self.journal.size()
        self.journal.write_at([bytes(blocks * BLOCK_BYTES)], size)
        return size

    @property
    def kept(self):
        return os.path.getsize(self.path)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def test_its_blocks_are_really_there(home):
    assert home.reserve.is_whole
    assert home.disk.blocks_free == BLOCKS - BLOCKS_KEPT
    assert os.stat(home.path).st_blocks * 512 >= SIZE


def test_an_act_that_has_room_leaves_it_alone(home):
    assert home.reserve.use_reserve(home.write) == 0
    assert home.kept == SIZE


@pytest.mark.parametrize("blocks", [1, 3, PIECE_BYTES // BLOCK_BYTES + 3, BLOCKS_KEPT])
def test_an_act_on_a_full_disk_gets_the_blocks_that_it_needs_and_others_none(home, blocks):
    home.disk.fill()
    assert home.reserve.use_reserve(lambda: home.write(blocks)) == 0
    assert home.kept == SIZE - blocks * BLOCK_BYTES
    assert not home.reserve.is_whole
    with pytest.raises(StorageFull):
        home.write()  # Who is not told to spend it gets none.
    assert home.kept == SIZE - blocks * BLOCK_BYTES


def test_so_many_acts_have_room_and_the_next_is_refused(home):
    home.disk.fill()
    for _ in range(BLOCKS_KEPT):
        home.reserve.use_reserve(home.write)
    assert home.kept == 0
    with pytest.raises(StorageFull):
        home.reserve.use_reserve(home.write)


def test_what_others_leave_of_a_piece_is_made_up_by_the_next_one(home):
    home.disk.fill()
    calls = []

    def act():
        calls.append(1)
        if len(calls) == 2:
            home.disk.fill()  # Quicker than the act.
        return home.write()

    home.reserve.use_reserve(act)
    assert home.kept == SIZE - PIECE_BYTES - BLOCK_BYTES


def test_it_is_whole_again_once_there_is_room(home):
    home.disk.fill()
    home.reserve.use_reserve(home.write)
    home.reserve.make()
    assert not home.reserve.is_whole
    home.disk.blocks += BLOCKS_KEPT
    home.reserve.make()
    assert home.reserve.is_whole
    assert home.kept == SIZE


def test_a_disk_with_little_room_gives_as_much_as_it_has(tmp_path):
    disk = SmallDisk(tmp_path, 3)
    reserve = Reserve(Files(tmp_path, disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    assert not reserve.is_whole
    assert os.path.getsize(tmp_path / "reserve") == 3 * BLOCK_BYTES


def test_room_is_found_by_taking_it_and_giving_it_back(home):
    free = home.disk.blocks_free
    assert home.reserve.has_room(free * BLOCK_BYTES)
    assert not home.reserve.has_room(free * BLOCK_BYTES + 1)
    assert home.disk.blocks_free == free
    assert home.kept == SIZE
    home.disk.fill()
    assert not home.reserve.has_room(1)


@pytest.mark.parametrize(
    ("number", "found"),
    [(errno.EROFS, False), (errno.EDQUOT, False), (errno.EOPNOTSUPP, True), (errno.EMFILE, True)],
)
def test_where_it_cannot_be_found_out_there_may_be_room(tmp_path, number, found):
    disk = FailingDisk()
    reserve = Reserve(Files(tmp_path, disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    disk.fail("allocate", number)
    assert reserve.has_room(1) == found


@pytest.mark.parametrize("left", [None, 0, 1, SIZE - 1, SIZE])
def test_whatever_a_crash_left_of_it_a_start_makes_it_whole(home, left):
    home.reserve.close()
    if left is None:
        os.unlink(home.path)
    else:
        os.truncate(home.path, left)
    home.start()
    assert home.reserve.is_whole
    assert home.kept == SIZE


def test_blocks_that_a_copy_left_out_are_there_again_after_a_start(home):
    os.truncate(home.path, 0)
    os.truncate(home.path, SIZE)  # A hole, as `cp` makes of bytes that are zero.
    home.start()
    assert os.stat(home.path).st_blocks * 512 >= SIZE


@pytest.mark.parametrize("number", [errno.EROFS, errno.EMFILE])
def test_it_is_kept_where_room_is_not_what_is_missing(home, number):
    def act():
        raise StorageFull("", number)

    with pytest.raises(StorageFull):
        home.reserve.use_reserve(act)
    assert home.kept == SIZE


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSPC, errno.EROFS])
def test_a_file_system_that_cannot_do_it_leaves_acts_refused_as_before(tmp_path, number):
    disk = FailingDisk()
    disk.fail("allocate", number)
    reserve = Reserve(Files(tmp_path, disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    assert not reserve.is_whole

    def act():
        raise StorageFull("")

    with pytest.raises(StorageFull):
        reserve.use_reserve(act)


def test_a_disk_that_has_no_room_for_the_file_itself_is_as_one_without_it(tmp_path):
    disk = FailingDisk()
    disk.fail("create", errno.ENOSPC)
    reserve = Reserve(Files(tmp_path, disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    assert not reserve.is_whole
    assert not reserve.has_room(1)
    disk.heal()
    reserve.make()
    assert reserve.is_whole


def test_a_disk_that_cannot_truncate_it_leaves_the_act_refused(tmp_path):
    disk = FailingDisk()
    reserve = Reserve(Files(tmp_path, disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    disk.fail("truncate", errno.EROFS)

    def act():
        raise StorageFull("")

    with pytest.raises(StorageFull):
        reserve.use_reserve(act)


def test_a_disk_that_fails_is_no_full_one(tmp_path):
    disk = FailingDisk()
    disk.fail("allocate", errno.EIO)
    with pytest.raises(StorageFailed):
        Reserve(Files(tmp_path, disk), str(tmp_path / "reserve"), SIZE).make()


@pytest.mark.parametrize("call", ["create", "write", "allocate"])
def test_a_disk_that_refuses_one_kind_of_call_has_no_room(tmp_path, call):
    disk = FailingDisk()
    reserve = Reserve(Files(str(tmp_path), disk), str(tmp_path / "reserve"), SIZE)
    reserve.make()
    assert reserve.has_room(BLOCK_BYTES)
    disk.fail(call, errno.ENOSPC)
    assert not reserve.has_room(BLOCK_BYTES)
    disk.heal()
    assert reserve.has_room(BLOCK_BYTES)
    assert os.listdir(tmp_path) == ["reserve"]


def test_a_crash_may_leave_the_file_of_a_test_for_room(home):
    with open(home.path + ".probe", "wb"):
        pass
    assert home.reserve.has_room(BLOCK_BYTES)
    assert not os.path.exists(home.path + ".probe")
