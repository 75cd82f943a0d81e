"""Offsets without entry or message are skipped: no client will acknowledge them."""

import pytest

from braidlog.broker.delivery.entry_reads import read_entries
from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.holes import holes_within, last_batch_index
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.reading.entries import Entry
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.pulsar.rebatch import without_messages
from tests.broker.delivery.dispatch_fakes import stage
from tests.broker.delivery.entry_fakes import FakePartition
from tests.storage.formats.entries_of import entry, metadata, single


@pytest.mark.parametrize("kind", [ExclusiveDispatcher, SharedDispatcher])
async def test_individual_acks_move_the_position_over_gaps(kind):
    async with stage(kind) as play:
        play.partition.entries(1, 1)
        play.partition.gap(100)
        play.partition.entries(1)
        play.partition.gap(5)
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == [0, 1, 102]
        for offset in (0, 102, 1):
            await play.ack(consumer, offset)
        assert play.cursor.position == 108
        assert not play.cursor.state().acked


def test_holes_within_a_batch_come_from_compaction():
    raw = entry(metadata(num_messages_in_batch=5), b"".join(single(b"v") for _ in range(5)))
    for gone, holes, last in [
        ([False] * 5, [], 4),
        ([True, False, True, True, False], [(10, 11), (12, 14)], 4),
        ([False, False, False, True, True], [(13, 15)], 2),
    ]:
        body = without_messages(raw, gone)
        compacted = Entry(10, 5, body, int(BatchFlag.COMPACTED))
        assert last_batch_index(compacted) == last
        assert holes_within(compacted) == holes


async def test_holes_are_offsets_outside_entries():
    partition = FakePartition()
    partition.entries(2, 1)
    partition.gap(4)
    partition.entries(1)
    read = await read_entries(partition, 0, 1 << 20)
    assert read.has_holes
    assert read.holes_from(0) == [(3, 7)]
    assert read.holes_from(5) == [(5, 7)]
