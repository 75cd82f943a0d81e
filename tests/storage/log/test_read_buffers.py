"""Memory lent for reads: never lent twice at the same time, and reused."""

import random
import threading

import pytest

from braidlog.storage.log.read_buffers import (
    BUFFER_BYTES,
    BUFFERS_MAX,
    LARGE_BUFFERS_MAX,
    LARGE_BYTES,
    POOLED_BYTES_MIN,
    ReadBuffers,
    drop_free_buffers,
    is_lent,
)


def test_memory_is_reused_after_the_last_view():
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


def test_large_memory_is_reused_for_large_reads_only():
    buffers = ReadBuffers()
    buffers.take(LARGE_BYTES)[:4] = b"mine"
    assert bytes(buffers.take(BUFFER_BYTES)[:4]) == bytes(4)
    assert bytes(buffers.take(BUFFER_BYTES + 1)[:4]) == b"mine"
    buffers.take(LARGE_BYTES + 1)[:4] = b"more"
    assert bytes(buffers.take(LARGE_BYTES + 1)[:4]) == bytes(4)


@pytest.mark.parametrize(
    ("size", "buffers_max"), [(BUFFER_BYTES, BUFFERS_MAX), (LARGE_BYTES, LARGE_BUFFERS_MAX)]
)
def test_a_bounded_number_of_buffers_is_kept(size, buffers_max):
    buffers = ReadBuffers()
    views = [buffers.take(size) for _ in range(buffers_max + 3)]
    for view in views:
        view[:4] = b"used"
    del view, views
    views = [buffers.take(size) for _ in range(buffers_max + 3)]
    assert [bytes(view[:4]) for view in views] == [b"used"] * buffers_max + [bytes(4)] * 3


@pytest.mark.parametrize(
    "size",
    [
        *(0, 1, POOLED_BYTES_MIN - 1, POOLED_BYTES_MIN),
        *(BUFFER_BYTES, BUFFER_BYTES + 1, LARGE_BYTES, LARGE_BYTES + 1),
    ],
)
def test_sizes_are_as_requested(size):
    assert len(ReadBuffers().take(size)) == size


def test_kept_views_keep_their_bytes():
    buffers = ReadBuffers()
    views = [buffers.take(POOLED_BYTES_MIN) for _ in range(3 * BUFFERS_MAX)]
    for number, view in enumerate(views):
        view[:] = bytes([number]) * len(view)
    assert [view[-1] for view in views] == list(range(len(views)))


def test_a_query_changes_neither_size_nor_content():
    buffer = bytearray(range(256))
    assert not is_lent(buffer)
    for lend in (memoryview, lambda lent: memoryview(lent)[3:5].toreadonly().cast("B")):
        view = lend(buffer)
        assert is_lent(buffer)
        assert buffer == bytearray(range(256))
        view.release()
        assert not is_lent(buffer) or lend is not memoryview
        del view
        assert not is_lent(buffer)
    assert buffer == bytearray(range(256))


@pytest.mark.parametrize("seed", range(3))
def test_no_reader_receives_bytes_of_another_reader(seed):
    """Threads take, slice, keep and drop views in random order; none sees another's bytes."""
    buffers = ReadBuffers()
    faults = []

    def read(number):
        rng = random.Random(seed * 100 + number)
        held = []
        for turn in range(150):
            mark = bytes([number, turn % 256])
            view = buffers.take(rng.choice([POOLED_BYTES_MIN, POOLED_BYTES_MIN + 7, BUFFER_BYTES]))
            view[:2], view[-2:] = mark, mark
            parts = (view[:2].toreadonly(), view[2:][-2:])
            held.append((mark, rng.choice(parts)))
            del view, parts
            rng.shuffle(held)
            del held[rng.randrange(1, 12) :]
            faults.extend(mark for mark, part in held if bytes(part) != mark)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == [], f"seed {seed}"


def test_free_buffers_are_dropped_and_lent_buffers_stay():
    buffers = ReadBuffers()
    for size in (BUFFER_BYTES, LARGE_BYTES):
        lent, free = buffers.take(size), buffers.take(size)
        lent[:4] = b"lent"
        free[:4] = b"free"
        del free
        drop_free_buffers()
        assert bytes(buffers.take(size)[:4]) == bytes(4)
        part = lent[:4]
        del lent
        drop_free_buffers()
        assert bytes(part) == b"lent"
        del part
        assert bytes(buffers.take(size)[:4]) == b"lent"
