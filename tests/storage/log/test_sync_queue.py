"""Syncs by the kernel's own queue: each is reported once, and unsupported files are refused."""

import errno
import os
import select

import pytest

from braidlog.storage.log.sync_queue import SYNCS_MAX, AioQueue
from tests.waiting import HANG_S


@pytest.fixture
def eventfd():
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    yield fd
    os.close(fd)


@pytest.fixture
def queue(eventfd):
    try:
        sync_queue = AioQueue(eventfd)
    except OSError:
        pytest.skip("no AIO here")
    yield sync_queue
    assert sync_queue.close(HANG_S)


@pytest.fixture
def files(tmp_path):
    paths = [str(tmp_path / f"{number}.log") for number in range(SYNCS_MAX)]
    opened = [(path, os.open(path, os.O_RDWR | os.O_CREAT)) for path in paths]
    for _, fd in opened:
        os.pwrite(fd, b"x" * 1000, 0)
    yield opened
    for _, fd in opened:
        os.close(fd)


def answered(eventfd, count):
    """Wait until `count` syncs are finished."""
    while count:
        poll = select.poll()  # select() takes no descriptor from 1,024 on.
        poll.register(eventfd, select.POLLIN)
        assert poll.poll(HANG_S * 1000)
        count -= os.eventfd_read(eventfd)
    assert count == 0


def test_a_larger_queue_takes_more_files(files, eventfd):
    queue = AioQueue(eventfd, 2 * SYNCS_MAX)
    twice = files * 2
    begun = queue.submit(twice)
    if not begun:
        pytest.skip("the file system of the tests has no such syncs")
    assert begun == len(twice)
    answered(eventfd, begun)
    assert sorted(queue.results()) == sorted((path, 0) for path, _ in twice)
    assert queue.close(HANG_S)


@pytest.mark.parametrize("count", [1, 3, SYNCS_MAX])
def test_every_file_is_reported_once(queue, files, eventfd, count):
    for _ in range(3):
        begun = queue.submit(files[:count])
        if not begun:
            pytest.skip("the file system of the tests has no such syncs")
        assert begun == count
        answered(eventfd, count)
        assert sorted(queue.results()) == [(path, 0) for path, _ in files[:count]]
        assert queue.results() == []


def test_an_unsupported_file_is_refused_and_earlier_files_are_not(queue, files, eventfd):
    reading, writing = os.pipe()
    try:
        if queue.submit([files[0], ("a pipe", reading), files[1]]) == 0:
            pytest.skip("the file system of the tests has no such syncs")
        answered(eventfd, 1)
        assert queue.results() == [(files[0][0], 0)]
        assert queue.submit([("a pipe", reading)]) == 0
        assert queue.submit([("closed", 1 << 20)]) == 0
    finally:
        os.close(reading)
        os.close(writing)


def test_closing_waits_for_pending_syncs(eventfd, files):
    try:
        queue = AioQueue(eventfd)
    except OSError:
        pytest.skip("no AIO here")
    begun = queue.submit(files)
    assert queue.close(HANG_S)
    assert sorted(queue.results()) == [(path, 0) for path, _ in files[:begun]]
    assert queue.results() == []


def test_another_machine_type_has_no_queue(eventfd, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(OSError, match="no AIO") as caught:
        AioQueue(eventfd)
    assert caught.value.errno == errno.ENOSYS
