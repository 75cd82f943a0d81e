"""What every kind of dispatch shares: permits, turns, acks, resets, moves by other listeners."""

from functools import partial

import pytest
import structlog.testing
import trio

from braidlog.broker.delivery import dispatcher as dispatch
from braidlog.broker.delivery import entry_reads, pump
from braidlog.broker.delivery.cursor import MemoryCursor
from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.errors import StorageFull, SubscriptionBusy
from tests.broker.delivery.dispatch_fakes import stage
from tests.broker.delivery.entry_fakes import FakePartition

pytestmark = pytest.mark.usefixtures("is_warm")

KINDS = [ExclusiveDispatcher, SharedDispatcher]


@pytest.fixture(params=KINDS, ids=["exclusive", "shared"])
def kind(request):
    return request.param


async def test_nothing_goes_without_permits(kind):
    async with stage(kind) as play:
        consumer = play.join()
        play.partition.entries(1, 1)
        await play.settled()
        assert consumer.offsets == []
        play.dispatcher.flow(consumer, 1)
        await play.settled()
        assert consumer.offsets == [0]


async def test_a_permit_is_a_message_and_an_entry_goes_whole(kind):
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


async def test_new_entries_go_when_the_watermark_passes_them(kind):
    async with stage(kind) as play:
        consumer = play.join(permits=10)
        await play.settled()
        play.partition.entries(1, visible=False)
        await play.settled()
        assert consumer.offsets == []
        play.partition.show_all()
        await play.settled()
        assert consumer.offsets == [0]


async def test_few_entries_that_come_while_the_pump_waits_go_out_without_it(kind, is_warm):
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
async def test_the_pump_looks_itself_where_there_is_more_to_it(kind, monkeypatch, why):
    monkeypatch.setattr(pump, "AT_ONCE_RECORDS_MAX", 3)
    async with stage(kind) as play:
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


async def test_a_turn_ends_at_its_size_and_goes_on_in_the_next(kind, monkeypatch):
    monkeypatch.setattr(dispatch, "TURN_BYTES", 1)
    async with stage(kind) as play:
        consumer = play.join(permits=10)
        play.partition.entries(1, 1, 1)
        await play.settled()
        assert consumer.offsets == [0, 1, 2]


async def test_what_is_acknowledged_does_not_come_again(kind):
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


async def test_entry_is_sent_again_with_what_is_left_of_it(kind):
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


async def test_entry_that_another_listener_left_half_done_is_sent_whole(kind):
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


async def test_reset_lets_everybody_go_and_starts_elsewhere(kind):
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
        play.dispatcher.foreign_move(is_seek=True)
        assert consumer.was_disconnected
        assert play.dispatcher.consumers == []


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "cumulative"])
async def test_an_acknowledgement_under_way_over_a_seek_does_nothing(kind, is_ours):
    is_cumulative = kind == "cumulative"

    async def start():
        return 0

    async with stage(ExclusiveDispatcher if is_cumulative else kind) as play:
        play.partition.entries(1, 1, 1)
        consumer = play.join()  # It had them before it came back.
        await play.settled()
        play.partition.gate = trio.Event()  # Where they are is looked up.
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
                play.dispatcher.foreign_move(is_seek=True)
            play.partition.gate.set()
        assert play.cursor.position == 0


async def test_forward_move_of_another_listener_counts_as_acknowledged(kind):
    async with stage(kind) as play:
        consumer = play.join(permits=2)
        play.partition.entries(1, 1, 1, 1)
        await play.settled()
        play.cursor.ack_to(3, lazy=True)
        play.dispatcher.foreign_move(is_seek=False)
        assert not consumer.was_disconnected
        assert consumer.unacked == 0
        play.dispatcher.flow(consumer, 10)
        await play.settled()
        assert consumer.offsets == [0, 1, 3]


async def test_move_beyond_the_log_skips_what_comes_in_below(kind):
    async with stage(kind) as play:
        consumer = play.join(permits=10)
        play.partition.entries(1)
        await play.settled()
        play.cursor.ack_to(3, lazy=True)
        play.dispatcher.foreign_move(is_seek=False)
        play.partition.entries(1, 1)
        await play.settled()
        play.partition.entries(1)
        await play.settled()
        assert consumer.offsets == [0, 3]


async def test_delivery_goes_on_at_the_log_start_when_retention_has_passed(kind):
    async with stage(kind) as play:
        play.partition.entries(1, 1, 1)
        play.partition.log_start_offset = 2
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == [2]
        assert play.cursor.position == 2


class FullCursor(MemoryCursor):
    """Its position cannot be stored: the disk is full."""

    def ack_to(self, position, *, lazy):
        raise StorageFull("no room")


async def test_delivery_goes_on_at_the_log_start_on_a_full_disk_too(kind):
    async with stage(kind, cursor=FullCursor(0)) as play:
        play.partition.entries(1, 1, 1)
        play.partition.log_start_offset = 2
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == [2]


def unreadable(partition):
    """A record of another protocol that cannot be opened; returns its offset."""
    offset = partition.records(1)[0]
    partition.batches[-1].body = memoryview(b"\xff" * 40)
    return offset


async def test_what_comes_before_a_record_that_cannot_be_read_goes_once_and_is_acknowledged(kind):
    """A client that was sent away there came again before its acks had: for ever."""
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
    """Its records are in a shared store that may not answer."""

    answers = False

    async def read(self, offset, bytes_max):
        await trio.lowlevel.checkpoint()
        if not self.answers:
            raise StorageFull("the object store does not answer")
        return self._found(offset, bytes_max)

    def read_warm(self, offset, bytes_max):
        return None


async def test_delivery_goes_on_once_the_shared_store_answers_again(kind, autojump_clock):
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


async def test_delivery_goes_on_when_the_cursor_is_moved_past_what_cannot_be_read(kind):
    async with stage(kind) as play:
        place = unreadable(play.partition)
        play.partition.entries(1)
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == []
        play.cursor.position = place + 1  # As a commit of another protocol moves it.
        play.dispatcher.foreign_move(is_seek=False)
        await play.settled()
        assert consumer.offsets == [place + 1]


async def test_consumer_that_left_gets_nothing_though_its_task_still_runs(kind):
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
    """Remembers how much was asked for."""

    def _found(self, offset, bytes_max):
        self.asked.append(bytes_max)
        return super()._found(offset, bytes_max)


async def test_less_is_read_ahead_where_entries_are_made_of_other_records(kind, monkeypatch):
    monkeypatch.setattr(entry_reads, "FOREIGN_RECORDS_MAX", 2)
    monkeypatch.setattr(AskedPartition, "is_warm", False)
    partition = AskedPartition()
    partition.asked = []
    async with stage(kind, partition=partition) as play:
        partition.records(5)
        partition.entries(1)
        consumer = play.join(permits=100)
        for _ in range(2):
            await play.settled()
            partition.entries(1)
        await play.settled()
        assert consumer.offsets == list(range(8))
        most, less = pump.READ_AHEAD_BYTES, pump.READ_AHEAD_BYTES_FOREIGN
        assert partition.asked == [most, less, less, less, most]


async def test_acknowledged_ranges_are_not_even_read(kind, monkeypatch):
    """However much lies acknowledged behind one open message."""
    partition = AskedPartition()
    partition.asked = []
    monkeypatch.setattr(pump, "READ_AHEAD_BYTES", 1)
    for _ in range(500):
        partition.entries(1)
    async with stage(kind, partition=partition) as play:
        play.cursor.ack([(1, 200), (201, 499)], lazy=True)
        play.dispatcher.rewind()
        consumer = play.join(permits=10)
        await play.settled()
        assert consumer.offsets == [0, 200, 499]
        assert len(partition.asked) == 3


async def test_what_retention_took_while_the_pump_waited_is_passed_over(kind):
    async with stage(kind) as play:
        consumer = play.join(permits=10)
        await play.settled()
        for _ in range(4):
            play.partition.entries(1, visible=False)
        play.partition.log_start_offset = 2
        play.partition.show_all()
        await play.settled()
        assert consumer.offsets == [2, 3]


async def test_what_nobody_can_take_is_not_read(kind):
    partition = AskedPartition()
    partition.asked = []
    async with stage(kind, partition=partition) as play:
        consumer = play.join(permits=1)
        await play.settled()
        for _ in range(3):
            partition.entries(1)
            await play.settled()
        assert consumer.offsets == [0]
        assert len(partition.asked) == 1


async def test_consumer_whose_connection_is_full_is_sent_nothing_until_it_has_room(kind):
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


async def test_what_was_read_ahead_and_dropped_is_read_again(kind):
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


async def test_subscription_takes_so_many_consumers_and_no_more(monkeypatch):
    monkeypatch.setattr(dispatch, "CONSUMERS_MAX", 2)
    async with stage(SharedDispatcher) as play:
        first = play.join()
        play.join()
        with pytest.raises(SubscriptionBusy):
            play.join()
        play.leave(first)
        play.join()
