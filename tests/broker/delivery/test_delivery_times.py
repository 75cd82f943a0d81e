"""Delivery times of stored records."""

import pytest

from braidlog.broker.delivery.delivery_times import TOGETHER_MAX, delay_steps
from braidlog.broker.runtime.steps import run
from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX
from braidlog.storage.formats.record import Record
from tests.broker.delivery.entry_fakes import FakePartition

pytestmark = pytest.mark.usefixtures("is_warm")

DELAYED = int(BatchFlag.DELAYED)


def add_plain(partition, *due_ms, flags=DELAYED):
    """Add records of another format with these delivery times; 0: none."""
    base = partition.next_offset
    body = PLAIN.encode(
        [
            Record(base + at, 0, value=b"x", deliver_at_us=1000 * due + 999 if due else None)
            for at, due in enumerate(due_ms)
        ],
        base,
    )
    partition._add(body, BodyFormat.PLAIN, len(due_ms), len(due_ms), flags, 0, True)


async def delays(partition, start=0, end=None):
    end = partition.high_watermark if end is None else end
    return await run(delay_steps(partition, start, end))


async def test_records_of_each_format_have_the_times_that_they_ask_for():
    partition = FakePartition()
    partition.entries(1, 2, metadata={"deliver_at_time": 50})
    partition.entries(1)
    partition.gap(2)
    add_plain(partition, 0, 70, 60)
    partition.records(2)
    assert await delays(partition) == [(0, 3, 50), (7, 8, 70), (8, 9, 60)]
    assert await delays(partition, 8, 9) == [(8, 9, 60)]
    assert await delays(partition, 1, 2) == [(1, 3, 50)]
    assert await delays(partition, 3, 6) == []


async def test_records_in_a_row_with_the_same_time_are_a_delay():
    partition = FakePartition()
    count = TOGETHER_MAX + 5
    add_plain(partition, *[80] * count, 0, 80)
    expected = [(0, TOGETHER_MAX, 80), (TOGETHER_MAX, count, 80), (count + 1, count + 2, 80)]
    assert await delays(partition) == expected


async def test_a_thread_reads_compressed_bodies():
    partition = FakePartition()
    add_plain(partition, 90, flags=DELAYED | int(BatchFlag.COMPRESSED))
    assert await delays(partition) == [(0, 1, 90)]


async def test_an_entry_that_cannot_be_read_has_no_delay():
    partition = FakePartition()
    partition.entries(1, metadata={"deliver_at_time": 50})
    body = bytearray(partition.batches[0].body)
    body[ENTRY_PREFIX.size + 10] = 0xFF  # The first tag of the metadata.
    partition.batches[0].body = memoryview(bytes(body))
    assert await delays(partition) == []
