"""Large records of another protocol: a single record per read, decoded once memory is free."""

import pytest

from braidlog.broker.delivery.entry_reads import PLAIN_INLINE_BYTES_MAX, read_entries
from braidlog.broker.reading.unpacking import large_limiter
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.storage.formats.api import BatchFlag, BodyFormat, BodyInfo
from braidlog.storage.large import LARGE_BYTES_MIN
from tests.broker.records import append, make_partition, store
from tests.storage.formats.kafka.test_message_sets import entry, message, wrapper
from tests.waiting import until

pytestmark = pytest.mark.slow

MIB = 1 << 20
SIZES = {"large": LARGE_BYTES_MIN + MIB, "of some MiB": 4 * MIB}


def set_of(size, base_offset, count):
    """A compressed set of Kafka with messages of that size."""
    offsets = range(base_offset, base_offset + count)
    inner = b"".join(entry(at, message(None, bytes(size))) for at in offsets)
    return wrapper(inner, 1, offsets[-1])


@pytest.fixture
async def partition(broker):
    return await make_partition(broker)


async def store_sets(broker, partition, sizes, count=1):
    info = BodyInfo(count, flags=BatchFlag.COMPRESSED)
    for size in sizes:
        body = set_of(size, partition.next_offset, count)
        await store(broker, partition, BodyFormat.KAFKA, body, info)


@pytest.mark.parametrize("name", SIZES)
async def test_a_large_record_is_alone_in_its_read(broker, partition, name):
    size = SIZES[name]
    await store_sets(broker, partition, [10, size, size])
    budget, offset, sizes = OutputBudget(), 0, []
    while offset < partition.high_watermark:
        with budget.reserve_now(1000) as room:
            read = await read_entries(partition, offset, 512 * 1024, memory=room)
            sizes.append([len(entry.body) // size for entry in read.entries])
            assert read.size <= size + 1000
            assert room.size >= read.size - 1000
        offset = read.next_offset
    assert sizes == [[0], [1], [1]]
    assert budget.used == 0


@pytest.mark.parametrize("count", [1, 3], ids=["alone in its set", "with others"])
@pytest.mark.parametrize("name", SIZES)
async def test_a_large_record_is_made_once_there_is_memory(broker, partition, nursery, name, count):
    size = SIZES[name]
    await store_sets(broker, partition, [size], count)
    budget, read = OutputBudget(64 * MIB), []
    held = 64 * MIB - 2000
    budget.charge(held)

    async def begin():
        with budget.reserve_now(1000) as room:
            read.append(await read_entries(partition, 0, 512 * 1024, memory=room))
            assert size <= room.size < size + 1000

    nursery.start_soon(begin)
    await until(lambda: budget._large)
    assert budget.used == held and not read
    assert large_limiter().borrowed_tokens == 0
    budget.charge(-held)
    await until(lambda: read)
    assert len(read[0].entries) == 1


async def test_a_large_batch_of_another_protocol_waits_for_memory_once(broker, partition, nursery):
    await append(broker, partition, "iggy", [bytes(PLAIN_INLINE_BYTES_MAX)] * 2)
    budget, read = OutputBudget(8 * MIB), []
    held = 8 * MIB - 2000
    budget.charge(held)

    async def begin():
        with budget.reserve_now(1000) as room:
            read.append(await read_entries(partition, 0, 128 * 1024, memory=room))

    nursery.start_soon(begin)
    await until(lambda: budget._large)
    assert budget.used == held and not read
    budget.charge(-held)
    await until(lambda: read)
    assert len(read[0].entries) == 2 and budget.used == 0
