"""Parts of an answer that lie in a file: reads and sends of them, and their descriptors."""

import errno
import os
import random
import socket

import pytest

from braidlog.storage.log.disk import Disk
from braidlog.storage.log.file_part import LEASES_MAX, FilePart, LostBytes, all_in_memory
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.local_files import LocalFiles

DATA = bytes(range(256)) * 64


class WarmDisk(Disk):
    """A disk fully in the page cache; it may fail to send or to duplicate a descriptor."""

    error = 0
    duplicate_error = 0

    def duplicate(self, path, fd):
        if self.duplicate_error:
            raise OSError(self.duplicate_error, os.strerror(self.duplicate_error))
        return super().duplicate(path, fd)

    def is_cached(self, path, fd, size, pos):
        return True

    def send(self, path, fd, sock_fd, size, pos):
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return super().send(path, fd, sock_fd, size, pos)


@pytest.fixture
def files(tmp_path):
    files = LocalFiles(tmp_path, WarmDisk())
    yield files
    assert files.leases.count == 0


@pytest.fixture
def file(files):
    file = files.create(f"{files.root}/file")
    file.write_at([DATA], 0)
    return file


def leased(files, file):
    file.hold_to_read()
    try:
        return files.leases.take(file, len(DATA), 0)
    finally:
        file.release()


def part_of(files, file, places):
    return FilePart(leased(files, file), places, sum(size for _, size in places))


def error_of(call):
    """Return only the error's type: an error would hold its frames and their objects."""
    try:
        call()
    except OSError as error:
        return type(error)
    return None


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("seed", range(10))
def test_read_gives_the_places_from_any_byte_on(files, file, seed):
    random_ = random.Random(seed)
    starts = [random_.randrange(len(DATA) - 500) for _ in range(5)]
    places = [(pos, random_.randrange(1, 500)) for pos in starts]
    wanted = b"".join(DATA[pos : pos + size] for pos, size in places)
    part = part_of(files, file, places)
    assert len(part) == len(wanted)
    for start in (0, 1, random_.randrange(len(wanted)), len(wanted)):
        assert part.read(start) == wanted[start:]


def test_a_socket_takes_a_part_and_the_rest_can_be_read(files, file):
    part = part_of(files, file, [(0, len(DATA))] * 1000)
    sender, receiver = socket.socketpair()
    with sender, receiver:
        sender.setblocking(False)
        sent = part.send(sender.fileno())
        assert 0 < sent < len(part)
        assert part.send(sender.fileno()) == 0
        received = b""
        while len(received) < sent:
            received += receiver.recv(sent - len(received))
        assert received + part.read(sent) == DATA * 1000


def test_a_part_outlives_the_removal_of_its_file(files, file):
    part = part_of(files, file, [(10, 100)])
    file.close()
    files.unlink(file.path)
    with pytest.raises(FileGone):
        file.hold_to_read()
    assert part.read() == DATA[10:110]


def test_the_last_part_closes_the_descriptor(files, file):
    before = open_descriptors()
    lease = leased(files, file)
    parts = [FilePart(lease, [(0, 10)], 10), FilePart(lease, [(10, 10)], 10)]
    del lease
    parts.pop()
    assert (open_descriptors(), files.leases.count) == (before + 1, 1)
    parts.clear()
    assert (open_descriptors(), files.leases.count) == (before, 0)


def test_leases_have_a_limit(files, file):
    held = []
    while files.leases.offers(file):
        held.append(leased(files, file))
    assert len(held) == files.leases.count == LEASES_MAX
    held.pop()
    assert files.leases.offers(file)


def test_a_too_short_file_is_reported_and_no_longer_leased(files, file):
    assert error_of(part_of(files, file, [(len(DATA), 10)]).read) is LostBytes
    assert not files.leases.offers(file)
    sender, receiver = socket.socketpair()
    with sender, receiver:
        part = part_of(files, file, [(len(DATA), 10)])
        assert error_of(lambda: part.send(sender.fileno())) is LostBytes


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, LostBytes), (errno.EPIPE, BrokenPipeError)]
)
def test_disk_errors_differ_from_socket_errors(files, file, number, kind):
    part = part_of(files, file, [(0, 10)])
    files.disk.error = number
    assert error_of(lambda: part.send(0)) is kind
    assert files.leases.offers(file) == (number == errno.EPIPE)


def test_a_kernel_without_page_cache_queries_ends_the_leases(files, file, monkeypatch):
    def refuse(path, fd, size, pos):
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(files.disk, "is_cached", refuse)
    assert leased(files, file) is None
    assert not files.leases.offers(file)


def test_uncached_pages_give_no_lease(files, file, monkeypatch):
    monkeypatch.setattr(files.disk, "is_cached", lambda *_: False)
    assert leased(files, file) is None
    assert files.leases.offers(file)


def test_cached_parts_differ_from_others(files, file):
    assert all_in_memory([b"a", bytearray(b"b"), memoryview(b"c")])
    assert not all_in_memory([b"a", part_of(files, file, [(0, 1)])])


def test_a_process_without_descriptors_gets_no_lease(files, file):
    files.disk.duplicate_error = errno.EMFILE
    assert leased(files, file) is None
    files.disk.duplicate_error = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        leased(files, file)
