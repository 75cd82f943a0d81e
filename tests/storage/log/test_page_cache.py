"""What the kernel says of pages in memory; older ones say nothing."""

import mmap
import os

import pytest

from braidlog.storage.log.page_cache import PageCache


@pytest.fixture
def asked(tmp_path):
    """A file of a page that was written and one that never was."""
    with open(tmp_path / "file", "wb+", buffering=0) as file:
        file.write(b"x" * mmap.PAGESIZE)
        file.truncate(2 * mmap.PAGESIZE)
        try:
            PageCache().holds(file.fileno(), 0, 1)
        except OSError as error:
            pytest.skip(f"no cachestat here: {error}")
        yield file.fileno()


def test_what_was_just_written_is_in_memory(asked):
    cache = PageCache()
    assert cache.holds(asked, 0, mmap.PAGESIZE)
    assert cache.holds(asked, 17, 100)


def test_what_nobody_has_read_is_not_and_one_such_page_is_enough(asked):
    cache = PageCache()
    assert not cache.holds(asked, mmap.PAGESIZE, 1)
    assert not cache.holds(asked, mmap.PAGESIZE - 1, 2)


def test_a_bad_descriptor_is_an_error():
    fd = os.open("/", os.O_PATH)
    os.close(fd)
    with pytest.raises(OSError):
        PageCache().holds(fd, 0, 1)
