"""The kernel's answers about pages in memory; older kernels have none."""

import mmap
import os

import pytest

from braidlog.storage.log.page_cache import PageCache


@pytest.fixture
def fd(tmp_path):
    """Return a file with a page that was written and a page that never was."""
    with open(tmp_path / "file", "wb+", buffering=0) as file:
        file.write(b"x" * mmap.PAGESIZE)
        file.truncate(2 * mmap.PAGESIZE)
        try:
            PageCache().holds(file.fileno(), 0, 1)
        except OSError as error:
            pytest.skip(f"no cachestat here: {error}")
        yield file.fileno()


def test_a_written_page_is_in_memory(fd):
    cache = PageCache()
    assert cache.holds(fd, 0, mmap.PAGESIZE)
    assert cache.holds(fd, 17, 100)


def test_a_single_unread_page_is_not_in_memory(fd):
    cache = PageCache()
    assert not cache.holds(fd, mmap.PAGESIZE, 1)
    assert not cache.holds(fd, mmap.PAGESIZE - 1, 2)


def test_a_bad_descriptor_is_an_error():
    fd = os.open("/", os.O_PATH)
    os.close(fd)
    with pytest.raises(OSError):
        PageCache().holds(fd, 0, 1)
