"""Chunked messages of which a commit of another protocol passed some pieces."""

import pytest
import trio

from braidlog.broker.delivery.cursor import SubscriptionCursor
from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.storage.metadata.names import TopicName
from tests.broker.delivery.dispatch_fakes import stage
from tests.broker.delivery.entry_fakes import FakePartition
from tests.broker.delivery.test_chunks import chunk
from tests.broker.metadata_fakes import House
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("is_warm")
KINDS = [ExclusiveDispatcher, SharedDispatcher]


@pytest.fixture
def cursor():
    house = House()
    house.create(TopicName("public", "default", "t"), 1)
    (topic,) = house.topics.all()
    return SubscriptionCursor(house.subscriptions.open(topic, b"s"), 0)


def laid_out(*, first=0):
    """The three pieces of a message, each before a record; `first` is the first piece there is."""
    partition = FakePartition()
    for number in range(first, 3):
        partition.entries(1, metadata=chunk(number))
        partition.records(1)
    return partition


async def came(consumer, count):
    """So many have come: pieces are looked for in a thread."""
    await until(lambda: len(consumer.offsets) >= count)


async def stopped_at_piece(play):
    """A consumer that was sent offset 3 and takes nothing more; an event that ends the read of the
    first piece.
    """
    consumer = play.join(permits=1)
    await came(consumer, 1)
    gate = play.partition.gate = trio.Event()
    play.dispatcher.flow(consumer, 1)
    await play.settled()
    consumer.permits, play.partition.gate = 0, None
    return consumer, gate


@pytest.mark.parametrize("kind", KINDS)
async def test_pieces_below_the_position_come_before_the_one_that_needs_them(kind, cursor):
    cursor.subscription.commit(0, 3)
    async with stage(kind, cursor=cursor, partition=laid_out()) as play:
        consumer = play.join(permits=100)
        await came(consumer, 5)
        assert consumer.offsets == [3, 0, 2, 4, 5]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_piece_that_memory_has_no_room_for_is_read_again(kind, cursor):
    cursor.subscription.commit(0, 3)
    async with stage(kind, cursor=cursor, partition=laid_out()) as play:
        consumer, gate = await stopped_at_piece(play)
        gate.set()
        await play.settled()
        play.dispatcher.drop_ahead()
        play.dispatcher.flow(consumer, 100)
        await came(consumer, 5)
        assert consumer.offsets == [3, 0, 2, 4, 5]


async def test_a_beginning_while_a_piece_is_read_reads_all_of_them(cursor):
    cursor.subscription.commit(0, 3)
    async with stage(ExclusiveDispatcher, cursor=cursor, partition=laid_out()) as play:
        consumer, gate = await stopped_at_piece(play)
        play.dispatcher.rewind()
        gate.set()
        play.dispatcher.flow(consumer, 100)
        await came(consumer, 6)
        assert consumer.offsets == [3, 3, 0, 2, 4, 5]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_piece_whose_message_another_protocol_acknowledges_is_not_sent(kind, cursor):
    cursor.subscription.commit(0, 3)
    async with stage(kind, cursor=cursor, partition=laid_out()) as play:
        consumer, gate = await stopped_at_piece(play)
        gate.set()
        await play.settled()
        cursor.subscription.commit(0, 5)
        play.dispatcher.foreign_move(is_seek=False)
        play.dispatcher.flow(consumer, 100)
        await came(consumer, 2)
        assert consumer.offsets == [3, 5]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_comes_live_needs_no_look_back(kind, cursor):
    cursor.subscription.commit(0, 0)
    async with stage(kind, cursor=cursor) as play:
        consumer = play.join(permits=100)
        for number in range(3):
            await play.settled()
            play.partition.entries(1, metadata=chunk(number))
            play.partition.records(1)
        await came(consumer, 6)
        assert consumer.offsets == [0, 1, 2, 3, 4, 5]


async def test_pieces_come_once_more_after_each_beginning(cursor):
    cursor.subscription.commit(0, 3)
    async with stage(ExclusiveDispatcher, cursor=cursor, partition=laid_out()) as play:
        consumer = play.join(permits=100)
        await came(consumer, 5)
        play.nack(consumer, 4)
        await came(consumer, 10)
        assert consumer.offsets == [3, 0, 2, 4, 5] * 2
        await play.ack(consumer, 0, 2, 4)
        assert not cursor.again
        play.nack(consumer, 5)
        await came(consumer, 12)
        assert consumer.offsets[10:] == [3, 5]


@pytest.mark.parametrize("kind", KINDS)
async def test_where_a_piece_is_gone_the_others_come_as_they_are(kind, cursor):
    cursor.subscription.commit(0, 1)
    async with stage(kind, cursor=cursor, partition=laid_out(first=1)) as play:
        consumer = play.join(permits=100)
        await came(consumer, 3)
        assert consumer.offsets == [1, 2, 3]


async def test_a_message_whose_last_piece_is_acknowledged_stays_so(cursor):
    cursor.subscription.commit(0, 3)
    cursor.subscription.ack(0, [(4, 5)], lazy=True)
    async with stage(SharedDispatcher, cursor=cursor, partition=laid_out()) as play:
        consumer = play.join(permits=100)
        await came(consumer, 2)
        assert consumer.offsets == [3, 5]
