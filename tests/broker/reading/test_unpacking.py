"""Small bodies never wait for large bodies, and large bodies are unpacked one at a time."""

import ctypes
import threading

import cramjam
import pytest
import trio

from braidlog.broker.reading.unpacking import large_limiter, run_packing, run_unpacking
from braidlog.broker.runtime.heap import resident_bytes
from braidlog.storage.errors import RecordTooLarge
from braidlog.storage.formats.compression import unzstd
from braidlog.storage.large import LARGE_BYTES_MIN
from braidlog.storage.log.read_buffers import BUFFER_BYTES, ReadBuffers
from tests.waiting import until

HOLES, HOLE_BYTES = 400, 100_000  # Smaller than pieces that glibc returns at once.
LARGE = bytes(cramjam.zstd.compress(bytes(LARGE_BYTES_MIN)))


def unpacked(size_max=64 << 20):
    return len(unzstd(LARGE, size_max))


async def test_small_work_continues_during_large_work(nursery):
    go_on, done = threading.Event(), []

    def large():
        size = unpacked()
        go_on.wait()
        return size

    async def run(work):
        done.append(await run_unpacking(work))

    try:
        for _ in range(3):
            nursery.start_soon(run, large)
        await until(lambda: large_limiter().statistics().tasks_waiting == 2)
        for number in range(4):
            await run(lambda number=number: number)
        assert done == [0, 1, 2, 3]
        assert large_limiter().borrowed_tokens == 1
    finally:
        go_on.set()
    await until(lambda: len(done) == 7)
    assert done[4:] == [LARGE_BYTES_MIN] * 3


async def test_large_work_begins_after_its_caller_has_made_room():
    begun, sizes = [], []

    async def room(size):
        assert begun == ["unless large"]
        sizes.append(size)

    def work():
        begun.append("again" if begun else "unless large")
        return unpacked()

    assert await run_unpacking(work, before_large=room) == LARGE_BYTES_MIN
    assert sizes == [LARGE_BYTES_MIN]
    assert begun == ["unless large", "again"]


async def test_a_cancelled_wait_for_room_unpacks_nothing():
    begun = []

    def work():
        begun.append(True)
        return unpacked()

    with trio.CancelScope() as scope:

        async def room(size):
            scope.cancel()
            await trio.sleep_forever()

        await run_unpacking(work, before_large=room)
    assert scope.cancelled_caught and begun == [True]
    assert large_limiter().borrowed_tokens == 0


async def test_errors_of_the_work_are_raised():
    with pytest.raises(RecordTooLarge):
        await run_unpacking(lambda: unpacked(LARGE_BYTES_MIN - 1))


@pytest.mark.parametrize(("size", "is_large"), [(LARGE_BYTES_MIN - 1, 0), (LARGE_BYTES_MIN, 1)])
async def test_records_are_packed_by_size(size, is_large):
    def work():
        return trio.from_thread.run_sync(lambda: large_limiter().borrowed_tokens)

    assert await run_packing(work, size) == is_large


@pytest.mark.parametrize("size", [LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN])
async def test_buffers_of_past_reads_are_freed_before_large_work(size):
    """A record of 62 MiB takes three copies: the buffers would come on top of them."""
    buffers = ReadBuffers()
    buffers.take(BUFFER_BYTES)[:4] = b"read"
    unused = bytes(4) if size == LARGE_BYTES_MIN else b"read"

    def work():
        return bytes(buffers.take(BUFFER_BYTES)[:4])

    assert await run_packing(work, size) == unused


async def test_buffers_of_past_reads_are_freed_before_large_unpacking():
    buffers = ReadBuffers()
    buffers.take(BUFFER_BYTES)[:4] = b"read"

    def work():
        seen = bytes(buffers.take(BUFFER_BYTES)[:4])
        unpacked()
        return seen

    assert await run_unpacking(work) == bytes(4)


async def test_holes_of_the_heap_are_returned_before_large_work():
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("the C library is not glibc")
    pieces = [bytearray(HOLE_BYTES) for _ in range(HOLES)]
    pieces = pieces[::20]  # Those in between are free memory amid memory in use.
    before = resident_bytes()
    after = await run_packing(resident_bytes, LARGE_BYTES_MIN)
    assert before - after > HOLES * HOLE_BYTES // 2
    assert len(pieces) == HOLES // 20
