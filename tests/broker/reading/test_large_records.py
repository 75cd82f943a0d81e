"""A record that unpacks to more than a piece is decoded once memory is free."""

import threading
from contextlib import contextmanager

import cramjam
import pytest

from braidlog.broker.limits import DECODE_BYTES_MAX, READ_PIECE_BYTES
from braidlog.broker.reading.transcode import read_steps
from braidlog.broker.reading.unpacking import large_limiter
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.runtime.steps import run
from braidlog.storage.formats.api import BatchFlag, BodyInfo
from braidlog.storage.formats.kafka.message_sets import KafkaCodec
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.large import LARGE_BYTES_MIN
from tests.broker.records import append, make_partition, store
from tests.storage.formats.entries_of import body, entry, metadata
from tests.waiting import until

KAFKA, PULSAR = codec_named("kafka"), codec_named("pulsar")


@pytest.fixture
async def partition(broker):
    return await make_partition(broker)


def zipped(size):
    """Return a Pulsar entry of a message that unpacks to that many bytes."""
    about = metadata(compression=3, uncompressed_size=size)
    return body((entry(about, bytes(cramjam.zstd.compress(bytes(size)))), 1))


@pytest.mark.slow
async def test_a_large_record_is_decoded_once_memory_is_free(broker, partition, nursery):
    size = 4 * DECODE_BYTES_MAX
    info = BodyInfo(1, flags=BatchFlag.COMPRESSED)
    await store(broker, partition, PULSAR.format, zipped(size), info)
    budget = OutputBudget(2 * size)
    budget.charge(2 * size - 1000)
    results = []

    async def read():
        with budget.reserve_now(500) as room:
            steps = read_steps(partition, KAFKA, 0, bytes_max=500, memory=room)
            results.append((await run(steps), room.size))

    nursery.start_soon(read)
    await until(lambda: budget._large_bytes)
    assert budget.used == 2 * size - 1000
    assert not results
    budget.charge(1000 - 2 * size)
    await until(lambda: results)
    ((result, held),) = results
    assert held == size and result.size > size
    assert budget.used == 0


class NotingCodec(KafkaCodec):
    """Records the threads of its encodings."""

    def __init__(self):
        self.threads = set()

    def encode(self, records, base_offset):
        self.threads.add(threading.current_thread())
        return super().encode(records, base_offset)


@pytest.mark.slow
async def test_a_large_record_is_unpacked_only_once_there_is_memory_and_encoded_in_a_thread(
    broker, partition, nursery
):
    size, codec = 2 * LARGE_BYTES_MIN, NotingCodec()
    info = BodyInfo(1, flags=BatchFlag.COMPRESSED)
    await store(broker, partition, PULSAR.format, zipped(size), info)
    budget = OutputBudget(2 * size)
    budget.charge(2 * size - 1000)
    results = []

    async def read():
        with budget.reserve_now(500) as room:
            steps = read_steps(partition, codec, 0, bytes_max=500, memory=room)
            results.append((await run(steps), room.size))

    with large_thread_busy():
        nursery.start_soon(read)
        await until(lambda: budget._large_bytes)  # Without the thread, which is not there.
        assert budget.used == 2 * size - 1000
        budget.charge(1000 - 2 * size)
        await until(lambda: budget.used)
        assert budget.used == size
    await until(lambda: results)
    ((result, held),) = results
    assert held == size and result.size > size
    assert codec.threads and threading.current_thread() not in codec.threads
    assert budget.used == 0


@pytest.mark.parametrize(
    ("stored", "size", "copies"),
    [("kafka", 2 * DECODE_BYTES_MAX, 2), ("iggy", READ_PIECE_BYTES + 1000, 1)],
)
async def test_a_large_batch_is_held_once_there_is_memory_for_it(
    broker, partition, nursery, stored, size, copies
):
    """Of the reader's own format, as often as it will be in memory; else once."""
    await append(broker, partition, stored, [bytes(size // 8)] * 8)
    budget, results = OutputBudget(16 * size), []
    held = 16 * size - 1000
    budget.charge(held)

    async def read():
        with budget.reserve_now(500, copies=2) as room:
            steps = read_steps(partition, KAFKA, 0, bytes_max=500, memory=room)
            results.append((await run(steps), room.size))

    nursery.start_soon(read)
    await until(lambda: budget._large)
    assert budget.used == held and not results
    budget.charge(-held)
    await until(lambda: results)
    ((result, reserved),) = results
    assert size * copies <= reserved < (size + 10_000) * copies
    assert result.record_count == (8 if copies == 2 else 1)
    assert budget.used == 0


async def test_small_batches_wait_for_no_memory(broker, partition):
    await append(broker, partition, "kafka", [bytes(DECODE_BYTES_MAX - 1000)])
    await append(broker, partition, "iggy", [bytes(READ_PIECE_BYTES - 1000)])
    budget = OutputBudget(1000)
    budget.charge(1000)
    for offset in range(2):
        with budget.reserve_now(0) as room:
            steps = read_steps(partition, KAFKA, offset, bytes_max=500, memory=room)
            assert (await run(steps)).record_count == 1


@contextmanager
def large_thread_busy():
    holder = object()
    large_limiter().acquire_on_behalf_of_nowait(holder)
    try:
        yield
    finally:
        large_limiter().release_on_behalf_of(holder)
