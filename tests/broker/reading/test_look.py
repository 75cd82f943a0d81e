"""Looks into large batches: memory is reserved before the read, a thread reads and decodes."""

import pytest

from braidlog.broker.limits import OUTPUT_LAST_BYTES
from braidlog.broker.reading import entries
from braidlog.broker.reading.entries import EntryId
from braidlog.broker.reading.look import look_at
from braidlog.broker.reading.raw import read_raw
from braidlog.broker.reading.times import first_not_before
from braidlog.broker.reading.transcode import read_as, read_steps
from braidlog.broker.reading.unpacking import large_limiter
from braidlog.broker.runtime.steps import run
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.large import LARGE_BYTES_MIN
from tests.broker.records import APPEND_US, append, make_partition
from tests.waiting import until

pytestmark = pytest.mark.slow

KAFKA, IGGY = codec_named("kafka"), codec_named("iggy")


@pytest.fixture
async def partition(broker):
    """A Kafka set of two records with a large body at offset 1, after a small set."""
    partition = await make_partition(broker)
    await append(broker, partition, "kafka", [b"a"])
    await append(broker, partition, "kafka", [b"b", bytes(LARGE_BYTES_MIN)])
    return partition


async def read_in(partition, codec):
    with partition.room() as room:
        result = await run(read_steps(partition, codec, 1, bytes_max=500, memory=room))
        return result.record_count


async def raw(partition):
    with await partition._calls.output.reserve(OUTPUT_LAST_BYTES) as room:
        return (await read_raw(partition, 1, room)).next_offset


async def look(partition):
    async with look_at(partition, 1) as looked:
        return looked.batches[0].base_offset


async def seek(partition):
    return await entries.resolve_seek(partition, EntryId(partition.partition_id, 2))


CALLS = {
    "look": (look, 1),
    "seek to an id": (seek, 2),
    "seek to a time": (lambda partition: entries.resolve_time(partition, APPEND_US), 0),
    "time": (lambda partition: first_not_before(partition, APPEND_US + 1), None),
    "own format": (lambda partition: read_in(partition, KAFKA), 2),
    "other format": (lambda partition: read_in(partition, IGGY), 1),
    "raw": (raw, 3),
}


@pytest.mark.parametrize("name", [name for name in CALLS if "time" not in name])
async def test_memory_is_reserved_before_a_large_batch_is_read(broker, partition, nursery, name):
    work, expected = CALLS[name]
    budget, results = broker.output, []
    held = budget._bytes_max - LARGE_BYTES_MIN
    budget.charge(held)

    async def begin():
        results.append(await work(partition))

    nursery.start_soon(begin)
    await until(lambda: budget._large)
    assert large_limiter().statistics().tasks_waiting == large_limiter().borrowed_tokens == 0
    assert not results
    budget.charge(-held)
    await until(lambda: results)
    assert results == [expected]
    assert budget.used == 0


@pytest.mark.parametrize("name", CALLS)
async def test_a_large_batch_is_found(broker, partition, name):
    work, expected = CALLS[name]
    assert await work(partition) == expected
    assert broker.output.used == 0


async def test_a_large_batch_is_read_and_delivered_behind_smaller_batches(partition):
    """The read that meets the large batch ends before it."""
    first = await read_as(partition, KAFKA, 0, bytes_max=2 * LARGE_BYTES_MIN)
    assert first.next_offset in (1, 3)
    with partition.room() as room:
        steps = read_steps(partition, KAFKA, 0, bytes_max=1 << 20, memory=room)
        assert (await run(steps)).next_offset == 1
