"""Partly returned batches: kept for the next read, or read from the log again."""

import pytest

from braidlog.broker.errors import TopicNotFound
from braidlog.broker.limits import CUT_BATCHES_MAX, CUT_READ_BYTES_MAX
from braidlog.broker.reading.cutting import BatchRest, CutBatches
from braidlog.broker.reading.transcode import read_steps
from braidlog.broker.runtime.steps import run
from braidlog.storage.formats.kafka.message_sets import KAFKA
from tests.broker.reading.test_transcode import CountingPartition
from tests.broker.records import append, make_partition


@pytest.fixture
async def three(broker):
    """Return a partition with three sets of four messages each."""
    partition = await make_partition(broker)
    for _ in range(3):
        await append(broker, partition, "kafka", [bytes(100)] * 4)
    return CountingPartition(partition)


def size_of(partition, count):
    return partition.read_warm(0, 1)[0].header.body_bytes * count // 4


async def test_batches_after_a_cut_are_read_once(three):
    cut = CutBatches()
    whole = await run(read_steps(three, KAFKA, 0, bytes_max=1 << 20))
    log = b"".join(whole.parts)
    bytes_max = size_of(three, 6) + 10
    three.reads = 0
    first = await run(read_steps(three, KAFKA, 0, bytes_max=bytes_max, fills=cut))
    assert b"".join(first.parts) == log[:bytes_max]
    assert (first.size, first.next_offset, three.reads) == (bytes_max, 4, 1)
    rest = log[bytes_max - 10 :]
    second = await run(read_steps(three, KAFKA, 6, bytes_max=len(rest) // 3, fills=cut))
    assert b"".join(second.parts) == rest[: len(rest) // 3]
    assert (second.next_offset, three.reads) == (8, 1)
    again = await run(read_steps(three, KAFKA, 6, bytes_max=1 << 20, fills=cut))
    assert b"".join(again.parts) == rest


async def test_batches_after_a_kept_batch_need_a_single_read(broker, three):
    """The read includes the batch in which the answer ends."""
    await append(broker, three._partition, "kafka", [bytes(100)] * 4)
    cut, bytes_max = CutBatches(), size_of(three, 8)
    await run(read_steps(three, KAFKA, 0, bytes_max=size_of(three, 6), fills=cut))
    three.reads = 0
    result = await run(read_steps(three, KAFKA, 6, bytes_max=bytes_max, fills=cut))
    assert (result.size, three.reads) == (bytes_max, 1)


def rest_of(partition, offset):
    """Return the whole batch at an offset, and the bytes of its first two messages."""
    batch, *_ = partition.read_warm(offset, 1)
    return BatchRest(offset, batch.next_offset, batch.body, len(batch.body)), len(batch.body) // 2


async def test_a_kept_batch_serves_its_partition_and_offset_once(three):
    cut = CutBatches()
    rest, half = rest_of(three, 4)
    cut.keep(three, KAFKA, rest, half + 10)
    other = CountingPartition(three)
    other.partition_id = three.partition_id + 1
    assert cut.take(other, 6) is None
    assert cut.take(three, 5) is None
    assert cut.take(three, 7) is None
    assert cut.take(three, 6) == BatchRest(6, 8, rest.body[half:], len(rest.body))
    assert cut.take(three, 6) is None


async def test_a_large_batch_is_not_kept(broker):
    partition = await make_partition(broker)
    await append(broker, partition, "kafka", [bytes(CUT_READ_BYTES_MAX)])
    cut = CutBatches()
    rest, _ = rest_of(partition, 0)
    cut.keep(partition, KAFKA, rest, 10)
    assert cut.take(partition, 0) is None


async def test_kept_batches_have_a_limit(three):
    cut = CutBatches()
    rest, half = rest_of(three, 4)
    for _ in range(CUT_BATCHES_MAX + 3):
        cut.keep(three, KAFKA, rest, half)
    served = [cut.take(three, 6) is not None for _ in range(CUT_BATCHES_MAX + 1)]
    assert served == [True] * CUT_BATCHES_MAX + [False]


async def test_no_batch_below_the_log_start_or_of_a_deleted_partition_is_returned(three):
    cut = CutBatches()
    rest, half = rest_of(three, 4)
    cut.keep(three, KAFKA, rest, half)
    three.log.log_start_offset = 7
    assert cut.take(three, 6) is None
    three.log.log_start_offset = 6
    assert cut.take(three, 6) is not None
    cut.keep(three, KAFKA, rest, half)
    three.remove()
    with pytest.raises(TopicNotFound):
        cut.take(three, 6)


class Compacted(CountingPartition):
    wants_keys = True


async def test_batches_that_compaction_may_change_are_not_kept(three):
    cut = CutBatches()
    rest, half = rest_of(three, 4)
    cut.keep(Compacted(three), KAFKA, rest, half)
    assert cut.take(three, 6) is None
    cut.keep(three, KAFKA, rest, half)
    assert cut.take(Compacted(three), 6) is None
