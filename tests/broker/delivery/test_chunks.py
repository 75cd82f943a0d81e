"""Shared delivery of chunked messages: the chunks of a message go to a single
consumer, in order.
"""

import pytest

from braidlog.broker.delivery.limits import DeliveryLimits
from braidlog.broker.delivery.shared import SharedDispatcher
from tests.broker.delivery.dispatch_fakes import stage

pytestmark = pytest.mark.usefixtures("is_warm")


def chunk(number, of=3, uuid=b"u"):
    return {
        "uuid": uuid,
        "chunk_id": number,
        "num_chunks_from_msg": of,
        "total_chunk_msg_size": 30,
    }


async def test_chunks_of_a_message_go_to_the_consumer_of_the_first():
    async with stage(SharedDispatcher, limits=DeliveryLimits(turn_entries_shared=1)) as play:
        consumers = [play.join(permits=100) for _ in range(3)]
        await play.settled()
        for number in range(3):
            for uuid in (b"u", b"v"):
                play.partition.entries(1, metadata=chunk(number, uuid=uuid))
        await play.settled()
        shares = sorted(consumer.offsets for consumer in consumers)
        assert shares == [[], [0, 2, 4], [1, 3, 5]]


async def test_delayed_chunks_go_to_the_consumer_of_the_first(autojump_clock):
    async with stage(SharedDispatcher) as play:
        consumers = [await play.join_settled(permits=100) for _ in range(3)]
        due_ms = play.clock.now // 1000 + 2000
        for number in range(3):
            for uuid in (b"u", b"v"):
                metadata = chunk(number, uuid=uuid) | {"deliver_at_time": due_ms}
                play.partition.entries(1, metadata=metadata)
        await play.settled()
        play.clock.now += 3_000_000
        await play.passed(3)
        await play.settled()
        assert sorted(offset for consumer in consumers for offset in consumer.offsets) == [
            *range(6)
        ]
        for pieces in ([0, 2, 4], [1, 3, 5]):
            shares = [[o for o in consumer.offsets if o in pieces] for consumer in consumers]
            assert sorted(shares) == [[], [], pieces]


async def test_a_due_chunk_waits_for_the_earlier_chunks(autojump_clock):
    async with stage(SharedDispatcher, limits=DeliveryLimits(due_max=1)) as play:
        first = await play.join_settled(permits=1)
        second = await play.join_settled(permits=100)
        due_ms = play.clock.now // 1000 + 2000
        late = chunk(0, uuid=b"v", of=2) | {"deliver_at_time": due_ms}
        for metadata in (chunk(0, of=2), chunk(1, of=2), late):
            play.partition.entries(1, metadata=metadata)
        await play.settled()
        assert (first.offsets, second.offsets, play.dispatcher.delayed) == ([0], [], 1)
        # Due entries are not collected: the limit of waiting entries is reached.
        play.clock.now += 3_000_000
        play.partition.entries(1, metadata=late | {"chunk_id": 1})
        await play.settled()
        play.dispatcher.flow(first, 1)
        await play.passed(1)
        assert (first.offsets, second.offsets) == ([0, 1], [2, 3])


async def test_returned_chunks_are_redelivered_first():
    async with stage(SharedDispatcher, limits=DeliveryLimits(returned_together=1)) as play:
        first = await play.join_settled(permits=100)
        play.partition.entries(1, 1, 1)
        for number in range(2):
            play.partition.entries(1, metadata=chunk(number))
        await play.settled()
        second = play.join(permits=100)
        play.leave(first)
        play.partition.entries(1, metadata=chunk(2))
        await play.settled()
        assert sorted(second.offsets) == [0, 1, 2, 3, 4, 5]
        assert [offset for offset in second.offsets if offset >= 3] == [3, 4, 5]


async def test_chunks_wait_for_their_consumer_and_delay_no_other():
    async with stage(SharedDispatcher, limits=DeliveryLimits(turn_entries_shared=1)) as play:
        first = await play.join_settled(permits=1)
        second = await play.join_settled(permits=100)
        for number in range(3):
            play.partition.entries(1, metadata=chunk(number))
        play.partition.entries(1)
        await play.settled()
        assert (first.offsets, second.offsets) == ([0], [3])
        play.dispatcher.flow(first, 10)
        await play.settled()
        assert first.offsets == [0, 1, 2]


async def test_a_chunk_for_a_full_consumer_asks_for_room():
    async with stage(SharedDispatcher, limits=DeliveryLimits(turn_entries_shared=1)) as play:
        first = await play.join_settled(permits=100)
        second = await play.join_settled(permits=100)
        first.is_full = True
        play.partition.entries(1, metadata=chunk(0))
        await play.settled()
        assert (first.offsets, second.offsets) == ([], [0])
        first.is_full, second.is_full = False, True
        play.partition.entries(1, metadata=chunk(1))  # The turn is the other consumer's.
        await play.settled()
        assert (first.offsets, second.offsets, second.was_asked) == ([], [0], True)
        second.is_full = False
        play.dispatcher.wake()
        await play.settled()
        assert second.offsets == [0, 1]


async def test_an_unfinished_message_restarts_at_its_first_chunk():
    async with stage(SharedDispatcher, limits=DeliveryLimits(turn_entries_shared=1)) as play:
        first = await play.join_settled(permits=1)
        second = await play.join_settled(permits=100)
        for number in range(3):
            play.partition.entries(1, metadata=chunk(number))
        await play.settled()
        assert first.offsets == [0]
        play.leave(first)
        await play.settled()
        assert second.offsets == [0, 1, 2]


async def test_a_nack_of_a_chunk_redelivers_the_whole_message():
    async with stage(SharedDispatcher) as play:
        for number in range(3):
            play.partition.entries(1, metadata=chunk(number))
        consumer = play.join(permits=100)
        await play.settled()
        play.nack(consumer, 2)
        await play.settled()
        assert consumer.offsets == [0, 1, 2, 0, 1, 2]
