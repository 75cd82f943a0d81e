"""Behaviour of every kind of dispatch: permits, turns, acks, resets, moves by other listeners."""

from functools import partial

import pytest
import structlog.testing
import trio

from braidlog.broker.delivery.cursor import DispatchCursor
from braidlog.broker.delivery.entry_reads import FOREIGN_RECORDS_MAX
from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.limits import (
    READ_AHEAD_BYTES,
    READ_AHEAD_BYTES_FOREIGN,
    DeliveryLimits,
)
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.errors import StorageFull, SubscriptionBusy
from braidlog.broker.positions.cursor_moves import CursorEvent
from tests.broker.delivery.dispatch_fakes import memory_cursor, stage
from tests.broker.delivery.entry_fakes import FakePartition

pytestmark = pytest.mark.usefixtures("is_warm")

KINDS = [ExclusiveDispatcher, SharedDispatcher]


@pytest.fixture(params=KINDS, ids=["exclusive", "shared"])
def kind(request):
    return request.param


async def test_nothing_is_sent_without_permits(kind):
    async with stage(kind) as play:
        consumer = play.join()
        play.partition.entries(1, 1)
        await play.settled()
        assert consumer.offsets == []
        play.dispatcher.flow(consumer, 1)
        await play.settled()
        assert consumer.offsets == [0]


async def test_a_permit_counts_a_message_and_entries_are_sent_whole(kind):
    """Flow 4, then three single messages and a batch of 10: Apache sends all and stands at -9."""
    async with stage(kind) as play:
        play.partition.entries(1, 1, 1, 10, 1)
        consumer = play.join(permits=4)
        await play.settled()
        assert consumer.offsets == [0, 1, 2, 3]
        assert consumer.permits == -9
        play.dispatcher.flow(consumer, 9)
        await play.settled()
        assert consumer.offsets == [0, 1, 2, 3]
        play.dispatcher.flow(consumer, 1)
        await play.settled()
        assert consumer.offsets == [0, 1, 2, 3, 13]


async def test_new_entries_are_sent_below_the_watermark(kind):
    async with stage(kind) as play:
        consumer = play.join(permits=10)
        await play.settled()
        play.partition.entries(1, visible=False)
        await play.settled()
        assert consumer.offsets == []
        play.partition.show_all()
        await play.settled()
        assert consumer.offsets == [0]


async def test_few_new_entries_are_sent_while_the_pump_waits(kind, is_warm):
    async with stage(kind) as play:
        consumer = play.join(permits=100)
        await play.settled()
        for number in range(1, 4):
            play.partition.entries(1, 2)
            assert len(consumer.offsets) == (2 * number if is_warm else 0)
        assert play.partition.given_at_once == (3 if is_warm else 0)
        await play.settled()
        assert consumer.offsets == [0, 1, 3, 4, 6, 7]


@pytest.mark.parametrize("why", ["many", "no permits", "acknowledged", "terminated"])
async def test_the_pump_wakes_for_complex_deliveries(kind, why):
    async with stage(kind, limits=DeliveryLimits(at_once_records_max=3)) as play:
        consumer = play.join(permits=1 if why == "no permits" else 100)
        await play.settled()
        if why == "acknowledged":
            play.cursor.ack([(0, 4)], lazy=True)
        play.partition.is_terminated = why == "terminated"
        play.partition.entries(*([1] * (4 if why == "many" else 3)))
        assert play.partition.given_at_once == 0
        await play.settled()
        wanted = {"many": [0, 1, 2, 3], "no permits": [0], "acknowledged": []}
        assert consumer.offsets == wanted.get(why, [0, 1, 2])


async def test_a_turn_ends_at_its_size_and_the_next_turn_continues(kind):
    async with stage(kind, limits=DeliveryLimits(turn_bytes=1)) as play:
        consumer = play.join(permits=10)
        play.partition.entries(1, 1, 1)
        await play.settled()
        assert consumer.offsets == [0, 1, 2]


async def test_acknowledged_entries_are_not_redelivered(kind):
    async with stage(kind) as play:
        play.partition.entries(1, 3, 1, 1)
        first = play.join(permits=10)
        await play.settled()
        await play.ack(first, 1, 5)
        play.leave(first)
        second = play.join(permits=10)
        await play.settled()
        assert second.offsets == [0, 4]
        assert play.cursor.position == 0


async def test_ack_of_an_id_that_names_no_entry_does_nothing(kind):
    async with stage(kind) as play:
        play.partition.entries(3, 1)
        consumer = play.join(permits=10)
        await play.settled()
        await play.ack(consumer, 1, 2, 99)
        await play.dispatcher.acknowledge(consumer, [play.id(0)._replace(ledger=6)], lazy=True)
        assert play.cursor.position == 0
        assert not play.cursor.state().acked


async def test_an_entry_is_redelivered_with_its_ack_set(kind):
    async with stage(kind) as play:
        play.partition.entries(10)
        first = play.join(permits=10)
        await play.settled()
        await play.dispatcher.acknowledge(first, [play.id(0, 0b11_1111_1110)], lazy=True)
        await play.dispatcher.acknowledge(first, [play.id(0, 0b11_1111_0111)], lazy=True)
        play.leave(first)
        second = play.join(permits=10)
        await play.settled()
        (delivery,) = second.inbox
        assert delivery.ack_set == (1014,)
        assert second.permits == 2
        await play.dispatcher.acknowledge(second, [play.id(0, 0)], lazy=True)
        assert play.cursor.position == 10


async def test_an_entry_partly_committed_by_another_listener_is_sent_whole(kind):
    async with stage(kind) as play:
        play.partition.entries(10)
        play.cursor.seek(4)
        consumer = play.join(permits=10)
        await play.settled()
        (delivery,) = consumer.inbox
        assert delivery.ack_set == ()
        await play.dispatcher.acknowledge(consumer, [play.id(0, 0b11_1110_1111)], lazy=True)
        play.leave(consumer)
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.inbox[0].ack_set == (0b11_1110_1111,)


async def test_a_reset_disconnects_consumers_and_changes_the_position(kind):
    async with stage(kind) as play:
        play.partition.entries(1, 1, 1)
        consumer = play.join(permits=10)
        await play.settled()
        await play.ack(consumer, 0, 1, 2)
        gate = trio.Event()

        async def position():
            await gate.wait()
            return 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(play.dispatcher.reset, position)
            await play.settled()
            assert consumer.was_disconnected
            assert play.dispatcher.resetting is not None
            gate.set()
        assert play.dispatcher.resetting is None
        again = play.join(permits=10)
        await play.settled()
        assert again.offsets == [1, 2]


async def test_backward_move_of_another_listener_closes_the_consumers(kind):
    async with stage(kind) as play:
        play.partition.entries(1, 1)
        consumer = play.join(permits=10)
        await play.settled()
        play.cursor.seek(0)
        play.dispatcher.cursor_moved(CursorEvent.SOUGHT, is_own=False)
        assert consumer.was_disconnected
        assert play.dispatcher.consumers == []


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "cumulative"])
async def test_an_acknowledgement_from_before_a_seek_does_nothing(kind, is_ours):
    is_cumulative = kind == "cumulative"

    async def start():
        return 0

    async with stage(ExclusiveDispatcher if is_cumulative else kind) as play:
        play.partition.entries(1, 1, 1)
        consumer = play.join()  # The consumer had them before it reconnected.
        await play.settled()
        play.partition.gate = trio.Event()  # The dispatcher looks up their entries.
        async with trio.open_nursery() as nursery:
            if is_cumulative:
                ack = partial(play.dispatcher.acknowledge_to, consumer, play.id(1), lazy=True)
            else:
                ack = partial(play.ack_by_ids, consumer, 0, 1)
            nursery.start_soon(ack)
            await play.settled()
            if is_ours:
                await play.dispatcher.reset(start)
            else:
                play.cursor.seek(0)
                play.dispatcher.cursor_moved(CursorEvent.SOUGHT, is_own=False)
            play.partition.gate.set()
        assert play.cursor.position == 0


async def test_forward_move_of_another_listener_counts_as_acknowledged(kind):
    async with stage(kind) as play:
        consumer = play.join(permits=2)
        play.partition.entries(1, 1, 1, 1)
        await play.settled()
        play.cursor.ack_to(3, lazy=True)
        play.dispatcher.cursor_moved(CursorEvent.ACKED, is_own=False)
        assert not consumer.was_disconnected
        assert consumer.unacked == 0
        play.dispatcher.flow(consumer, 10)
        await play.settled()
        assert consumer.offsets == [0, 1, 3]


async def test_a_move_beyond_the_log_skips_records_below(kind):
    async with stage(kind) as play:
        consumer = play.join(permits=10)
        play.partition.entries(1)
        await play.settled()
        play.cursor.ack_to(3, lazy=True)
        play.dispatcher.cursor_moved(CursorEvent.ACKED, is_own=False)
        play.partition.entries(1, 1)
        await play.settled()
        play.partition.entries(1)
        await play.settled()
        assert consumer.offsets == [0, 3]


async def test_delivery_continues_at_the_log_start_after_retention(kind):
    async with stage(kind) as play:
        play.partition.entries(1, 1, 1)
        play.partition.log_start_offset = 2
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == [2]
        assert play.cursor.position == 2


class FullCursor(DispatchCursor):
    """A cursor on a full disk: no position can be stored."""

    def ack_to(self, position, *, lazy):
        raise StorageFull("no room")


async def test_delivery_continues_at_the_log_start_on_a_full_disk_too(kind):
    async with stage(
        kind, cursor=FullCursor(memory_cursor().subscription, 0, is_durable=False)
    ) as play:
        play.partition.entries(1, 1, 1)
        play.partition.log_start_offset = 2
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == [2]


def unreadable(partition):
    """Add a record of another protocol that cannot be opened; return its offset."""
    offset = partition.records(1)[0]
    partition.batches[-1].body = memoryview(b"\xff" * 40)
    return offset


async def test_entries_before_an_unreadable_record_are_sent_once_and_acknowledged(kind):
    """A client disconnected at that place used to return before its acks were stored: endlessly."""
    async with stage(kind) as play:
        play.partition.entries(1, 1)
        place = unreadable(play.partition)
        play.partition.entries(1)
        with structlog.testing.capture_logs() as lines:
            consumer = play.join(permits=10)
            await play.settled()
            assert consumer.offsets == [0, 1]
            await play.ack(consumer, 0)
            play.dispatcher.redeliver(consumer, [])
            await play.settled()
        assert consumer.offsets == [0, 1, 1]
        assert not consumer.was_disconnected
        assert play.cursor.position == 1
        (line,) = [line for line in lines if line["event"] == "delivery_stopped"]
        assert (line["offset"], line["subscription"]) == (place, "s")


class FarPartition(FakePartition):
    """A partition whose records are in a shared store that may not answer."""

    answers = False

    async def read(self, offset, bytes_max, **more):
        await trio.lowlevel.checkpoint()
        if not self.answers:
            raise StorageFull("the object store does not answer")
        return self._batches_at(offset, bytes_max)

    def read_warm(self, offset, bytes_max):
        return None


async def test_delivery_resumes_once_the_shared_store_answers(kind, autojump_clock):
    async with stage(kind, partition=FarPartition()) as play:
        play.partition.entries(1, 1)
        consumer = play.join(permits=10)
        await play.passed(10)
        assert consumer.offsets == []
        play.partition.answers = True
        await play.passed(10)
        assert consumer.offsets == [0, 1]
        play.partition.answers = False
        play.nack(consumer)
        await play.passed(10)
        play.partition.answers = True
        await play.passed(10)
        assert consumer.offsets == [0, 1, 0, 1]


async def test_delivery_resumes_when_the_cursor_moves_past_an_unreadable_record(kind):
    async with stage(kind) as play:
        place = unreadable(play.partition)
        play.partition.entries(1)
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == []
        play.cursor.subscription.ack_to(
            0, place + 1, lazy=True
        )  # As a commit of another protocol moves the position.
        play.dispatcher.cursor_moved(CursorEvent.ACKED, is_own=False)
        await play.settled()
        assert consumer.offsets == [place + 1]


async def test_a_detached_consumer_receives_nothing(kind):
    async with stage(kind) as play:
        consumer = play.join(permits=10)
        await play.settled()
        play.dispatcher.detach(consumer)
        play.partition.entries(1)
        await play.settled()
        assert consumer.offsets == []
        other = play.join(permits=10)
        await play.settled()
        assert other.offsets == [0]


class AskedPartition(FakePartition):
    """Records the requested sizes."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def _batches_at(self, offset, bytes_max):
        self.asked.append(bytes_max)
        return super()._batches_at(offset, bytes_max)


async def test_less_is_read_ahead_for_entries_made_from_other_records(kind):
    partition = AskedPartition()
    partition.is_warm = False
    count = 2 * FOREIGN_RECORDS_MAX + 1
    async with stage(kind, partition=partition) as play:
        partition.records(count)
        partition.entries(1)
        consumer = play.join(permits=2 * count)
        for _ in range(2):
            await play.settled()
            partition.entries(1)
        await play.settled()
        assert consumer.offsets == list(range(count + 3))
        most, less = READ_AHEAD_BYTES, READ_AHEAD_BYTES_FOREIGN
        assert partition.asked == [most, less, less, less, most]


async def test_acknowledged_ranges_are_not_even_read(kind):
    """Many acknowledged entries lie behind an unacknowledged message."""
    partition = AskedPartition()
    for _ in range(500):
        partition.entries(1)
    async with stage(kind, partition=partition, limits=DeliveryLimits(read_ahead_bytes=1)) as play:
        play.cursor.ack([(1, 200), (201, 499)], lazy=True)
        play.dispatcher.rewind()
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == [0, 200, 499]
        assert len(partition.asked) == 3


async def test_records_removed_while_the_pump_waited_are_skipped(kind):
    async with stage(kind) as play:
        consumer = play.join(permits=10)
        await play.settled()
        for _ in range(4):
            play.partition.entries(1, visible=False)
        play.partition.log_start_offset = 2
        play.partition.show_all()
        await play.settled()
        assert consumer.offsets == [2, 3]


async def test_entries_without_a_possible_consumer_are_not_read(kind):
    partition = AskedPartition()
    async with stage(kind, partition=partition) as play:
        consumer = play.join(permits=1)
        await play.settled()
        for _ in range(3):
            partition.entries(1)
            await play.settled()
        assert consumer.offsets == [0]
        assert len(partition.asked) == 1


async def test_a_full_connection_receives_nothing_until_it_has_room(kind):
    async with stage(kind) as play:
        consumer = play.join(permits=10)
        consumer.is_full = True
        play.partition.entries(1, 1)
        await play.settled()
        assert consumer.offsets == []
        consumer.is_full = False
        play.dispatcher.wake()
        await play.settled()
        assert consumer.offsets == [0, 1]


async def test_dropped_read_ahead_entries_are_read_again(kind):
    async with stage(kind) as play:
        play.partition.entries(1, 1, 1, 1)
        consumer = play.join(permits=1)
        await play.settled()
        assert play.budget.bytes_held > 0
        play.budget.sweep(trio.current_time() + 10)
        assert play.budget.bytes_held == 0
        play.dispatcher.flow(consumer, 9)
        await play.settled()
        assert consumer.offsets == [0, 1, 2, 3]
        assert play.budget.bytes_held == 0


async def test_consumers_of_a_subscription_have_a_limit():
    async with stage(SharedDispatcher, limits=DeliveryLimits(consumers_max=2)) as play:
        first = play.join()
        play.join()
        with pytest.raises(SubscriptionBusy):
            play.join()
        play.leave(first)
        play.join()
