"""Chunked messages of which another protocol's commit passed some chunks."""

import pytest
import trio

from braidlog.broker.delivery.cursor import DispatchCursor
from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.positions.cursor_moves import CursorEvent
from braidlog.storage.metadata.names import TopicName
from tests.broker.delivery.dispatch_fakes import stage
from tests.broker.delivery.entry_fakes import FakePartition
from tests.broker.delivery.test_chunks import chunk
from tests.broker.metadata_fakes import MetadataParts
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("is_warm")
KINDS = [ExclusiveDispatcher, SharedDispatcher]


@pytest.fixture
def cursor():
    house = MetadataParts()
    house.create(TopicName("public", "default", "t"), 1)
    (topic,) = house.topics.all()
    return DispatchCursor(house.subscriptions.open(topic, b"s"), 0)


def laid_out(*, first=0):
    """Return the three chunks of a message, each before a record; `first` is the first existing
    chunk.
    """
    partition = FakePartition()
    for number in range(first, 3):
        partition.entries(1, metadata=chunk(number))
        partition.records(1)
    return partition


async def await_entries(consumer, count):
    """Wait for `count` entries: a thread looks for chunks."""
    await until(lambda: len(consumer.offsets) >= count)


async def stopped_at_piece(play):
    """Return a consumer that received offset 3 and takes no more, and an event that ends the read
    of the first chunk.
    """
    consumer = play.join(permits=1)
    await await_entries(consumer, 1)
    gate = play.partition.gate = trio.Event()
    play.dispatcher.flow(consumer, 1)
    await play.settled()
    consumer.permits, play.partition.gate = 0, None
    return consumer, gate


@pytest.mark.parametrize("kind", KINDS)
async def test_chunks_below_the_position_precede_the_chunk_that_needs_them(kind, cursor):
    cursor.subscription.commit(0, 3)
    async with stage(kind, cursor=cursor, partition=laid_out()) as play:
        consumer = play.join(permits=100)
        await await_entries(consumer, 5)
        assert consumer.offsets == [3, 0, 2, 4, 5]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_chunk_without_room_in_memory_is_read_again(kind, cursor):
    cursor.subscription.commit(0, 3)
    async with stage(kind, cursor=cursor, partition=laid_out()) as play:
        consumer, gate = await stopped_at_piece(play)
        gate.set()
        await play.settled()
        play.dispatcher.drop_ahead()
        play.dispatcher.flow(consumer, 100)
        await await_entries(consumer, 5)
        assert consumer.offsets == [3, 0, 2, 4, 5]


async def test_a_rewind_during_the_read_of_a_chunk_reads_all_chunks(cursor):
    cursor.subscription.commit(0, 3)
    async with stage(ExclusiveDispatcher, cursor=cursor, partition=laid_out()) as play:
        consumer, gate = await stopped_at_piece(play)
        play.dispatcher.rewind()
        gate.set()
        play.dispatcher.flow(consumer, 100)
        await await_entries(consumer, 6)
        assert consumer.offsets == [3, 3, 0, 2, 4, 5]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_chunk_of_a_message_acknowledged_by_another_protocol_is_not_sent(kind, cursor):
    cursor.subscription.commit(0, 3)
    async with stage(kind, cursor=cursor, partition=laid_out()) as play:
        consumer, gate = await stopped_at_piece(play)
        gate.set()
        await play.settled()
        cursor.subscription.commit(0, 5)
        play.dispatcher.cursor_moved(CursorEvent.ACKED, is_own=False)
        play.dispatcher.flow(consumer, 100)
        await await_entries(consumer, 2)
        assert consumer.offsets == [3, 5]


@pytest.mark.parametrize("kind", KINDS)
async def test_live_messages_need_no_search_for_chunks(kind, cursor):
    cursor.subscription.commit(0, 0)
    async with stage(kind, cursor=cursor) as play:
        consumer = play.join(permits=100)
        for number in range(3):
            await play.settled()
            play.partition.entries(1, metadata=chunk(number))
            play.partition.records(1)
        await await_entries(consumer, 6)
        assert consumer.offsets == [0, 1, 2, 3, 4, 5]


async def test_chunks_are_redelivered_after_each_rewind(cursor):
    cursor.subscription.commit(0, 3)
    async with stage(ExclusiveDispatcher, cursor=cursor, partition=laid_out()) as play:
        consumer = play.join(permits=100)
        await await_entries(consumer, 5)
        play.nack(consumer, 4)
        await await_entries(consumer, 10)
        assert consumer.offsets == [3, 0, 2, 4, 5] * 2
        await play.ack(consumer, 0, 2, 4)
        assert not cursor.again
        play.nack(consumer, 5)
        await await_entries(consumer, 12)
        assert consumer.offsets[10:] == [3, 5]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_other_chunks_are_delivered_if_a_chunk_is_missing(kind, cursor):
    cursor.subscription.commit(0, 1)
    async with stage(kind, cursor=cursor, partition=laid_out(first=1)) as play:
        consumer = play.join(permits=100)
        await await_entries(consumer, 3)
        assert consumer.offsets == [1, 2, 3]


async def test_a_message_with_an_acknowledged_last_chunk_stays_acknowledged(cursor):
    cursor.subscription.commit(0, 3)
    cursor.subscription.ack(0, [(4, 5)], lazy=True)
    async with stage(SharedDispatcher, cursor=cursor, partition=laid_out()) as play:
        consumer = play.join(permits=100)
        await await_entries(consumer, 2)
        assert consumer.offsets == [3, 5]
