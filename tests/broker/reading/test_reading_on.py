"""Readers that read on: from any format, with any limit, each record comes once and in order."""

import random

import pytest

from tests.broker.records import append, make_partition, read_values

STORED = ("plain", "kafka", "kafka_batches", "pulsar", "iggy", "iggy_typed")
READERS = ("kafka", "kafka_batches", "iggy", "iggy_typed")
KIB = 1024


async def read_on(partition, format_name, **limits):
    """(offset, bytes of the value) of every record, by one read after another."""
    found, offset = [], partition.log_start_offset
    while offset < partition.high_watermark:
        records, result = await read_values(partition, format_name, offset, **limits)
        assert result.record_count == len(records)
        assert result.next_offset > offset
        found += [(at, len(value)) for at, value in records if at >= offset]
        offset = result.next_offset
    return found


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("reader", READERS)
async def test_each_record_comes_once_and_in_order_with_any_limit(broker, stored, reader):
    partition = await make_partition(broker)
    rng = random.Random(f"{stored} {reader}")
    sizes = []
    for count in (1, 2, 9, 40):
        batch = [rng.choice((1, 30, 700, 5 * KIB, 60 * KIB)) for _ in range(count)]
        await append(broker, partition, stored, [bytes(size) for size in batch])
        sizes += batch
    for _ in range(12):
        bytes_max = rng.choice((1, 100, 10 * KIB, rng.randrange(1, 400 * KIB), 1 << 20))
        found = await read_on(partition, reader, bytes_max=bytes_max)
        assert found == list(enumerate(sizes)), f"at most {bytes_max} bytes"
        records_max = rng.choice((1, 2, 7, 100))
        found = await read_on(partition, reader, bytes_max=bytes_max, records_max=records_max)
        assert found == list(enumerate(sizes)), f"at most {bytes_max} bytes, {records_max} records"
