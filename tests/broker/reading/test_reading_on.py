"""Consecutive reads: from any format, with any limit, each record is read once and in order."""

import random

import pytest

from braidlog.broker.reading.times import first_not_before
from braidlog.broker.reading.transcode import read_as, read_steps
from braidlog.broker.reading.turn import Turn
from braidlog.broker.runtime.steps import run_now
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_named
from tests.broker.records import APPEND_US, append, make_partition, read_values

STORED = ("plain", "kafka", "kafka_batches", "pulsar", "iggy", "iggy_typed")
READERS = ("kafka", "kafka_batches", "iggy", "iggy_typed")
KIB = 1024


async def read_on(partition, format_name, **limits):
    """Return (offset, value bytes) of every record, by consecutive reads."""
    sizes, offset = [], partition.log_start_offset
    while offset < partition.high_watermark:
        records, result = await read_values(partition, format_name, offset, **limits)
        assert result.record_count == len(records)
        assert result.next_offset > offset
        sizes += [(at, len(value)) for at, value in records if at >= offset]
        offset = result.next_offset
    return sizes


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("reader", READERS)
async def test_each_record_is_read_once_and_in_order_with_any_limit(broker, stored, reader):
    partition = await make_partition(broker)
    rng = random.Random(f"{stored} {reader}")
    sizes = []
    for count in (1, 2, 9, 40):
        batch = [rng.choice((1, 30, 700, 5 * KIB, 60 * KIB)) for _ in range(count)]
        await append(broker, partition, stored, [bytes(size) for size in batch])
        sizes += batch
    for _ in range(5):
        bytes_max = rng.choice((1, 100, 10 * KIB, rng.randrange(1, 400 * KIB), 1 << 20))
        read_sizes = await read_on(partition, reader, bytes_max=bytes_max)
        assert read_sizes == list(enumerate(sizes)), f"at most {bytes_max} bytes"
        records_max = rng.choice((1, 2, 7, 100))
        read_sizes = await read_on(partition, reader, bytes_max=bytes_max, records_max=records_max)
        assert read_sizes == list(enumerate(sizes)), (
            f"at most {bytes_max} bytes, {records_max} records"
        )


class GrowingPartition:
    """A partition with an append before each read of its log."""

    def __init__(self, partition, grow):
        self._partition = partition
        self._grow = grow

    def __getattr__(self, name):
        return getattr(self._partition, name)

    def read_warm(self, *args):
        self._grow()
        return self._partition.read_warm(*args)

    async def read(self, *args, **more):
        self._grow()
        return await self._partition.read(*args, **more)


async def growing_partition(broker):
    """Return a partition with two records, and soon many more."""
    partition = await make_partition(broker, durability="written")
    iggy = codec_named("iggy")

    def grow():
        if partition.next_offset < 500:
            body = iggy.encode([Record(partition.next_offset, 1, value=b"new")], 0)
            partition.append([body], BodyInfo(1), body_format=iggy.format, append_us=1)

    await append(broker, partition, "iggy", [b"a", b"b"])
    return GrowingPartition(partition, grow)


@pytest.mark.parametrize("reader", ["kafka", "iggy"])
async def test_a_read_does_not_follow_a_growing_log(broker, reader):
    growing = await growing_partition(broker)
    result = await read_as(growing, codec_named(reader), 0, bytes_max=1 << 20)
    assert 2 <= result.next_offset <= 3


async def test_a_search_by_time_does_not_follow_a_growing_log(broker):
    growing = await growing_partition(broker)
    assert await first_not_before(growing, 2 * APPEND_US) is None
    assert growing.next_offset < 10


@pytest.mark.parametrize("reader", ["kafka", "kafka_batches", "iggy"])
async def test_small_batches_of_any_format_are_read_in_a_single_turn(broker, reader):
    """A turn of the loop per batch takes as long as a small request of another client."""
    partition = await make_partition(broker)
    for at in range(30):
        await append(broker, partition, STORED[at % len(STORED)], [b"%d" % at])
    steps = read_steps(partition, codec_named(reader), 0, bytes_max=1 << 20, turn=Turn())
    result = run_now(steps)
    assert result is not None and result.record_count == 30


async def test_a_large_read_gives_turns_to_other_tasks(broker):
    partition = await make_partition(broker)
    for _ in range(20):
        await append(broker, partition, "plain", [b"x"] * 100)
    waits = 0
    steps = read_steps(partition, codec_named("kafka"), 0, bytes_max=1 << 20, turn=Turn())
    try:
        waiting = next(steps)
        while True:
            await waiting
            waits += 1
            waiting = steps.send(None)
    except StopIteration as over:
        assert over.value.record_count == 2000
    assert 4 <= waits <= 10
