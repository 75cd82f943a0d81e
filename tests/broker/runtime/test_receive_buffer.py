"""The pool stays bounded, and received bytes survive every move between buffers."""

import random

import pytest

from braidlog.broker.limits import KIB, LEFTOVER_BYTES_MAX, MIB, RECEIVE_BYTES, RECEIVE_BYTES_SMALL
from braidlog.broker.runtime.receive_buffer import BufferPool, OutOfBuffers, ReceiveBuffer


def fill(buffer, data):
    """Write data as receives do; return the number of written bytes."""
    room = buffer.room()
    size = min(len(room), len(data))
    room[:size] = data[:size]
    buffer.received(size)
    return size


def test_the_pool_lends_small_buffers_without_large_ones_and_keeps_few():
    pool = BufferPool(buffers_max=3, free_max=2)
    lent = [pool.borrow() for _ in range(5)]
    assert [len(buffer) for buffer in lent] == [RECEIVE_BYTES] * 3 + [RECEIVE_BYTES_SMALL] * 2
    for buffer in lent:
        pool.give_back(buffer)
    assert (pool.lent, pool.free) == (0, 2)


def test_a_thousand_idle_connections_hold_no_buffer():
    pool = BufferPool()
    buffers = [ReceiveBuffer(pool) for _ in range(1000)]
    for buffer in buffers:
        fill(buffer, b"frame")
        buffer.consume(5)
        buffer.rest()
    assert pool.lent == 0
    assert pool.free == 1


def test_a_short_piece_of_a_frame_needs_no_buffer():
    pool = BufferPool()
    buffer = ReceiveBuffer(pool)
    fill(buffer, b"\0\0\1\0start")
    buffer.expect(260)
    buffer.rest()
    assert (pool.lent, len(buffer)) == (0, 9)
    fill(buffer, b"end")
    assert bytes(buffer.filled()) == b"\0\0\1\0startend"


def test_a_long_piece_keeps_its_buffer():
    pool = BufferPool()
    buffer = ReceiveBuffer(pool)
    fill(buffer, bytes(LEFTOVER_BYTES_MAX + 1))
    buffer.rest()
    assert pool.lent == 1
    buffer.close()
    assert pool.lent == 0


def test_memory_follows_the_bytes_received_not_the_length_announced():
    pool = BufferPool()
    buffer = ReceiveBuffer(pool)
    fill(buffer, b"x" * 100)
    buffer.expect(100 * MIB)
    while len(buffer) < RECEIVE_BYTES:
        fill(buffer, b"x" * RECEIVE_BYTES)
    assert pool.grown_bytes == 0
    fill(buffer, b"x")
    assert pool.grown_bytes == 2 * RECEIVE_BYTES
    buffer.close()
    assert pool.grown_bytes == 0


def test_a_large_buffer_grows_in_place():
    pool = BufferPool()
    buffer = ReceiveBuffer(pool)
    data = random.Random(2).randbytes(2 * MIB)
    filled = fill(buffer, data)
    buffer.expect(len(data))
    while filled < len(data):
        view = buffer.filled() if filled == MIB else None  # Then the buffer must make a copy.
        filled += fill(buffer, data[filled:])
        assert view is None or view == data[:MIB]
        assert pool.used <= 2 * filled
    assert bytes(buffer.filled()) == data
    buffer.close()
    assert pool.used == 0


def test_growth_beyond_the_budget_of_all_connections_is_refused():
    pool = BufferPool(bytes_max=MIB - 1)
    first, second = ReceiveBuffer(pool), ReceiveBuffer(pool)
    for buffer in (first, second):
        fill(buffer, b"x" * RECEIVE_BYTES)
        buffer.expect(10 * MIB)
    fill(first, b"x")
    assert pool.is_short
    with pytest.raises(OutOfBuffers):
        fill(second, b"x")
    assert bytes(second.filled()) == b"x" * RECEIVE_BYTES
    second.close()
    first.close()
    assert (pool.lent, pool.grown_bytes) == (0, 0)


def test_a_small_buffer_grows_for_a_frame_that_does_not_fit():
    pool = BufferPool(buffers_max=0)
    buffer = ReceiveBuffer(pool)
    data = random.Random(1).randbytes(40 * KIB)
    filled = fill(buffer, data)
    assert filled == RECEIVE_BYTES_SMALL
    buffer.expect(len(data))
    while filled < len(data):
        filled += fill(buffer, data[filled:])
    assert bytes(buffer.filled()) == data
    buffer.consume(len(data))
    buffer.close()
    assert pool.lent == 0


@pytest.mark.parametrize("seed", range(20))
def test_any_frames_in_any_pieces_come_out_unchanged(seed):
    chance = random.Random(seed)
    pool = BufferPool(buffers_max=chance.choice([0, 1, 128]))
    buffer = ReceiveBuffer(pool)
    sizes = [chance.choice([5, 100, 5000, 60_000, 300_000, 700_000]) for _ in range(60)]
    frames = [len(bytes(size)).to_bytes(4, "big") + chance.randbytes(size) for size in sizes]
    stream, sent, got = b"".join(frames), 0, []
    while sent < len(stream):
        sent += fill(buffer, stream[sent : sent + chance.choice([1, 3, 1000, 70_000, 300_000])])
        while True:
            view = buffer.filled()
            size = int.from_bytes(view[:4], "big") + 4 if len(view) >= 4 else 0
            if not size or size > len(view):
                buffer.expect(size)
                break
            buffer.consume(size)
            got.append(bytes(view[:size]))
        if chance.random() < 0.3:
            buffer.rest()
    assert got == frames, f"seed {seed}"
    buffer.close()
    assert (pool.lent, pool.grown_bytes) == (0, 0)
