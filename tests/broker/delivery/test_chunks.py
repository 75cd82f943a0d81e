"""Shared delivery of chunked messages: the pieces of one go to one consumer, in order."""

import pytest

from braidlog.broker.delivery import returning
from braidlog.broker.delivery import shared as dispatch_shared
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


async def test_pieces_of_a_message_go_to_the_consumer_of_its_first(monkeypatch):
    monkeypatch.setattr(dispatch_shared, "TURN_ENTRIES_SHARED", 1)
    async with stage(SharedDispatcher) as play:
        consumers = [play.join(permits=100) for _ in range(3)]
        await play.settled()
        for number in range(3):
            for uuid in (b"u", b"v"):
                play.partition.entries(1, metadata=chunk(number, uuid=uuid))
        await play.settled()
        shares = sorted(consumer.offsets for consumer in consumers)
        assert shares == [[], [0, 2, 4], [1, 3, 5]]


async def test_pieces_whose_delay_is_over_go_to_the_consumer_of_the_first(autojump_clock):
    async with stage(SharedDispatcher) as play:
        consumers = [await play.join_settled(permits=100) for _ in range(3)]
        due_ms = play.clock.now_us // 1000 + 2000
        for number in range(3):
            for uuid in (b"u", b"v"):
                metadata = chunk(number, uuid=uuid) | {"deliver_at_time": due_ms}
                play.partition.entries(1, metadata=metadata)
        await play.settled()
        play.clock.now_us += 3_000_000
        await play.passed(3)
        await play.settled()
        assert sorted(offset for one in consumers for offset in one.offsets) == [*range(6)]
        for pieces in ([0, 2, 4], [1, 3, 5]):
            shares = [[o for o in one.offsets if o in pieces] for one in consumers]
            assert sorted(shares) == [[], [], pieces]


async def test_piece_that_comes_when_its_message_is_due_waits_for_the_earlier_ones(
    monkeypatch, autojump_clock
):
    monkeypatch.setattr(dispatch_shared, "DUE_MAX", 1)
    async with stage(SharedDispatcher) as play:
        first = await play.join_settled(permits=1)
        second = await play.join_settled(permits=100)
        due_ms = play.clock.now_us // 1000 + 2000
        late = chunk(0, uuid=b"v", of=2) | {"deliver_at_time": due_ms}
        for metadata in (chunk(0, of=2), chunk(1, of=2), late):
            play.partition.entries(1, metadata=metadata)
        await play.settled()
        assert (first.offsets, second.offsets, play.dispatcher.delayed) == ([0], [], 1)
        play.clock.now_us += 3_000_000  # What is due is not collected: as much as may waits.
        play.partition.entries(1, metadata=late | {"chunk_id": 1})
        await play.settled()
        play.dispatcher.flow(first, 1)
        await play.passed(1)
        assert (first.offsets, second.offsets) == ([0, 1], [2, 3])


async def test_pieces_come_back_first_where_much_is_given_back(monkeypatch):
    monkeypatch.setattr(returning, "RETURNED_TOGETHER", 1)
    async with stage(SharedDispatcher) as play:
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


async def test_pieces_wait_for_their_consumer_and_hold_up_nobody_else(monkeypatch):
    monkeypatch.setattr(dispatch_shared, "TURN_ENTRIES_SHARED", 1)
    async with stage(SharedDispatcher) as play:
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


async def test_a_piece_for_a_full_consumer_has_it_asked_for_room(monkeypatch):
    monkeypatch.setattr(dispatch_shared, "TURN_ENTRIES_SHARED", 1)
    async with stage(SharedDispatcher) as play:
        first = await play.join_settled(permits=100)
        second = await play.join_settled(permits=100)
        first.is_full = True
        play.partition.entries(1, metadata=chunk(0))
        await play.settled()
        assert (first.offsets, second.offsets) == ([], [0])
        first.is_full, second.is_full = False, True
        play.partition.entries(1, metadata=chunk(1))  # It is the other's turn.
        await play.settled()
        assert (first.offsets, second.offsets, second.was_asked) == ([], [0], True)
        second.is_full = False
        play.dispatcher.wake()
        await play.settled()
        assert second.offsets == [0, 1]


async def test_unfinished_message_starts_again_at_its_first_piece(monkeypatch):
    monkeypatch.setattr(dispatch_shared, "TURN_ENTRIES_SHARED", 1)
    async with stage(SharedDispatcher) as play:
        first = await play.join_settled(permits=1)
        second = await play.join_settled(permits=100)
        for number in range(3):
            play.partition.entries(1, metadata=chunk(number))
        await play.settled()
        assert first.offsets == [0]
        play.leave(first)
        await play.settled()
        assert second.offsets == [0, 1, 2]


async def test_nack_of_one_piece_brings_the_whole_message_again():
    async with stage(SharedDispatcher) as play:
        for number in range(3):
            play.partition.entries(1, metadata=chunk(number))
        consumer = play.join(permits=100)
        await play.settled()
        play.nack(consumer, 2)
        await play.settled()
        assert consumer.offsets == [0, 1, 2, 0, 1, 2]
