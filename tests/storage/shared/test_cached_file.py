"""Cached files: a read that may wait needs only the objects, whatever happens to
the local files.
"""

import errno
import os
import threading

import pytest

from braidlog.storage.errors import DamagedLog, StoreUnanswered, WouldBlock
from braidlog.storage.log.disk import Disk
from braidlog.storage.log.files import FileGone
from braidlog.storage.shared.cached_file import BLOCK_BYTES, GETS_AT_ONCE, Cache, CachedFiles
from braidlog.storage.shared.pieces import Piece, SegmentPieces
from tests.storage.files_twins import FailingDisk
from tests.storage.shared.memory import MemoryStore
from tests.waiting import HANG_S

DATA = b"0123456789" * 10


class HookedStore(MemoryStore):
    """Calls `before_get` before each get."""

    before_get = staticmethod(lambda: None)

    def get(self, name, pos, size):
        self.before_get()
        return super().get(name, pos, size)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "1").mkdir()
    return CachedFiles(tmp_path, HookedStore(), Cache(1 << 20))


def cached(files, name="0.log", data=DATA):
    """Return a cached file of an object, with an empty cache."""
    files.objects.put(name, data)
    piece = Piece(name, 0, 0, len(data), 1, 0)
    return files.segment_file(f"{files.local.root}/1/{name}", SegmentPieces(0, (piece,)))


def packed(files, count):
    """Return a cached file with a piece in each of that many packs, as slow topics have."""
    size = len(DATA)
    for number in range(count):
        files.objects.put(f"pack{number}", DATA)
    pieces = [Piece(f"pack{at}", 0, at * size, size, at + 1, 0) for at in range(count)]
    return files.segment_file(f"{files.local.root}/1/0.log", SegmentPieces(0, tuple(pieces)))


def test_the_pieces_of_a_block_are_fetched_at_once_and_in_order(files):
    count = 2 * GETS_AT_ONCE
    file = packed(files, count)
    together = threading.Barrier(GETS_AT_ONCE, timeout=HANG_S)
    files.objects.before_get = together.wait  # Broken unless so many gets run at the same time.
    assert file.read_at(count * len(DATA), 0) == DATA * count


def test_a_block_with_a_piece_that_cannot_be_fetched_is_fetched_again(files):
    file = packed(files, 5)
    files.objects.delete("pack3")
    with pytest.raises(DamagedLog, match="pack3"):
        file.read_at(10, 0)
    with pytest.raises(WouldBlock):
        file.read_at(10, 0, wait=False)
    files.objects.put("pack3", DATA)
    assert file.read_at(10, 0) == DATA[:10]


def test_no_answer_is_sent_in_place_from_a_cached_file(files):
    assert not files.leases.offers(files.create(f"{files.local.root}/file"))


def test_a_read_during_a_release_raises_gone(files):
    """A drain closes the files and renames the folder while a reader waits for the store."""
    file = cached(files)

    def give_up():
        file.close()
        os.rename(f"{files.local.root}/1", f"{files.local.root}/1.deleted")

    files.objects.before_get = give_up
    with pytest.raises(FileGone):
        file.read_at(10, 0)
    assert not os.listdir(f"{files.local.root}/1.deleted")


def test_a_reader_leaves_no_file_in_the_folder_of_the_next_tenure(files):
    file = cached(files)

    def give_up_and_take_again():
        file.close()
        os.rename(f"{files.local.root}/1", f"{files.local.root}/1.deleted")
        os.mkdir(f"{files.local.root}/1")

    files.objects.before_get = give_up_and_take_again
    with pytest.raises(FileGone):
        file.read_at(10, 0)
    assert not os.listdir(f"{files.local.root}/1")


@pytest.mark.parametrize("fails", ["create", "open", "write", "read read_cached"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_an_error_of_the_cache_disk_fails_no_read_that_may_wait(files, fails, number):
    file = cached(files)
    files.local.disk = FailingDisk(*fails.split(), number=number)
    assert file.read_at(20, 5) == DATA[5:25]
    with pytest.raises(WouldBlock):
        file.read_at(20, 5, wait=False)
    files.local.disk = Disk()
    assert file.read_at(20, 5) == DATA[5:25]
    assert bytes(file.read_at(20, 5, wait=False)) == DATA[5:25], "the cache works again"
    assert files.cache.bytes == len(DATA), "each block counts once"


def test_a_lost_cache_folder_fails_no_read_that_may_wait(files):
    file = cached(files)
    os.rmdir(f"{files.local.root}/1")
    assert file.read_at(20, 5) == DATA[5:25]


@pytest.mark.parametrize("lose", [os.unlink, lambda path: os.truncate(path, 3)])
def test_a_lost_cache_file_is_fetched_again(files, lose):
    file = cached(files)
    file.read_at(20, 5)
    files.close_idle()
    lose(file.path)
    assert file.read_at(20, 5) == DATA[5:25]
    assert file.read_at(20, 5) == DATA[5:25]
    assert bytes(file.read_at(20, 5, wait=False)) == DATA[5:25]
    assert files.cache.bytes == len(DATA)


def test_a_cache_disk_that_cannot_cut_a_file_fails_no_other_read(files):
    files.cache.bytes_max = len(DATA)
    first, second = cached(files), cached(files, "1.log")
    first.read_at(20, 5)
    files.local.disk = FailingDisk("truncate")
    assert second.read_at(20, 5) == DATA[5:25]
    files.local.disk = Disk()
    assert first.read_at(20, 5) == DATA[5:25]


def test_a_store_without_an_answer_fails_the_read(files):
    file = cached(files)

    def unanswered():
        raise StoreUnanswered("no answer")

    files.objects.before_get = unanswered
    with pytest.raises(StoreUnanswered):
        file.read_at(10, 0)


def test_the_other_blocks_stay_while_the_disk_is_full(files):
    file = cached(files, data=bytes(BLOCK_BYTES + 10))
    file.read_at(10, 0)
    files.local.disk = FailingDisk("write", number=errno.ENOSPC)
    assert file.read_at(10, BLOCK_BYTES) == bytes(10)
    assert bytes(file.read_at(10, 0, wait=False)) == bytes(10)
