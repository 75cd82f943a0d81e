"""Memory lent for reads: never twice at the same time, and not fresh each time."""

import pytest

from storage.log.read_buffers import BUFFER_BYTES, BUFFERS_MAX, POOLED_BYTES_MIN, ReadBuffers


def test_memory_is_used_again_when_the_last_view_is_gone():
    buffers = ReadBuffers()
    view = buffers.take(BUFFER_BYTES)
    view[:4] = b"mine"
    part = memoryview(view[1:3]).toreadonly()
    del view
    other = buffers.take(POOLED_BYTES_MIN)
    other[:4] = b"more"
    assert bytes(part) == b"in"
    del part
    assert bytes(buffers.take(POOLED_BYTES_MIN)[:4]) == b"mine"


@pytest.mark.parametrize("size", [0, 1, POOLED_BYTES_MIN - 1, POOLED_BYTES_MIN, BUFFER_BYTES + 1])
def test_sizes_are_as_asked_for(size):
    assert len(ReadBuffers().take(size)) == size


def test_views_that_stay_keep_their_bytes_whatever_is_lent_after_them():
    buffers = ReadBuffers()
    views = [buffers.take(POOLED_BYTES_MIN) for _ in range(3 * BUFFERS_MAX)]
    for number, view in enumerate(views):
        view[:] = bytes([number]) * len(view)
    assert [view[-1] for view in views] == list(range(len(views)))
