"""One queue: members of share groups take records, other consumers get entries sent."""

import random
from dataclasses import dataclass, field

import pytest

from braidlog.broker.delivery.limits import DeliveryLimits
from braidlog.broker.delivery.pulling import AckType, PullingConsumer, ShareLimits
from braidlog.broker.delivery.share_queue import QueueDispatcher
from braidlog.broker.positions.cursor_moves import CursorEvent
from tests.broker.delivery.dispatch_fakes import FakeConsumer, stage

ACCEPT, RELEASE, REJECT, RENEW = (
    AckType.ACCEPT,
    AckType.RELEASE,
    AckType.REJECT,
    AckType.RENEW,
)


class QueueMember(PullingConsumer):
    """A member of a share group that counts its turns."""

    def __init__(self, name="m"):
        super().__init__(name)
        self.turns = 0
        self.was_disconnected = False

    def offered(self):
        self.turns += 1

    def takes_more(self):
        return True

    def disconnect(self):
        self.was_disconnected = True

    async def is_alive(self):
        return True


def member(play, name="m"):
    joined = QueueMember(name)
    play.dispatcher.attach(joined)
    return joined


@dataclass(slots=True, eq=False, kw_only=True)
class HoldingConsumer(FakeConsumer):
    """A consumer that remembers the entries that it holds."""

    has: set = field(default_factory=set)


def sending(play):
    consumer = HoldingConsumer("c")
    play.dispatcher.attach(consumer)
    play.dispatcher.flow(consumer, 5)
    return consumer


def take(play, joined, count=100, batches=None, *, is_exact=True):
    """Take records as a fetch does; return the locks' ranges with their counts."""
    start = play.dispatcher.first_offered()
    if start is None:
        return []
    batches = batches or [(start, play.partition.high_watermark)]
    locks = play.dispatcher.acquire(joined, start, batches, count, is_exact=is_exact)
    return [(lock.first, lock.end, lock.count) for lock in locks]


def acknowledge_ranges(play, joined, start, end, how):
    settled = [(start, end, how)]
    assert play.dispatcher.holds(joined, settled)
    play.dispatcher.acknowledge_ranges(joined, settled)


async def test_records_go_to_one_member_and_come_back_by_a_release():
    async with stage(QueueDispatcher) as play:
        play.partition.entries(*[1] * 10)
        a, b = member(play, "a"), member(play, "b")
        assert take(play, a, 6) == [(0, 6, 1)]
        assert take(play, b) == [(6, 10, 1)]
        assert take(play, b) == []
        acknowledge_ranges(play, a, 0, 2, ACCEPT)
        acknowledge_ranges(play, a, 2, 4, RELEASE)
        assert play.cursor.position == 2
        assert take(play, b) == [(2, 4, 2)]
        assert not play.dispatcher.holds(a, [(2, 3, ACCEPT)])
        assert play.dispatcher.holds(a, [(0, 2, ACCEPT)])  # Below the position: as in Kafka.


async def test_records_acknowledged_during_a_read_go_to_nobody():
    async with stage(QueueDispatcher) as play:
        play.partition.entries(*[1] * 10)
        a, b = member(play, "a"), member(play, "b")
        start = play.dispatcher.first_offered()
        assert take(play, a, 6) == [(0, 6, 1)]
        acknowledge_ranges(play, a, 0, 6, ACCEPT)
        assert play.cursor.position == 6
        locks = play.dispatcher.acquire(b, start, [(0, 8), (8, 10)], 100, is_exact=True)
        assert [(lock.first, lock.end, lock.count) for lock in locks] == [(6, 8, 1), (8, 10, 1)]
        acknowledge_ranges(play, b, 6, 10, ACCEPT)
        play.dispatcher.pass_hidden(0, 10)
        assert play.cursor.position == 10


async def test_whole_batches_go_to_a_member_unless_the_count_is_exact():
    async with stage(QueueDispatcher) as play:
        play.partition.entries(*[1] * 30)
        a = member(play)
        batches = [(0, 10), (10, 20), (20, 30)]
        assert take(play, a, 12, batches, is_exact=False) == [(0, 10, 1), (10, 20, 1)]
        assert take(play, a, 3, batches) == [(20, 23, 1)]


async def test_a_lock_ends_by_time_and_a_renewed_lock_later(autojump_clock):
    async with stage(QueueDispatcher) as play:
        play.partition.entries(*[1] * 2)
        a = member(play)
        assert take(play, a) == [(0, 2, 1)]
        await play.passed(20)
        acknowledge_ranges(play, a, 1, 2, RENEW)
        await play.passed(11)
        assert take(play, a) == [(0, 1, 2)]
        await play.passed(20)
        assert take(play, a) == [(1, 2, 2)]


async def test_a_record_is_archived_at_the_limit_of_deliveries():
    async with stage(QueueDispatcher) as play:
        play.partition.entries(1, 1)
        a = member(play)
        play.dispatcher.share_limits = ShareLimits(deliveries_max=3)
        for count in (1, 2, 3):
            assert take(play, a, 1) == [(0, 1, count)]
            acknowledge_ranges(play, a, 0, 1, RELEASE)
        assert take(play, a) == [(1, 2, 1)]
        assert (play.cursor.position, play.dispatcher.archived) == (1, 1)


async def test_members_hold_no_more_records_than_the_limit():
    async with stage(QueueDispatcher) as play:
        play.partition.entries(*[1] * 20)
        a = member(play)
        play.dispatcher.share_limits = ShareLimits(locked_max=8)
        assert take(play, a, 5) == [(0, 5, 1)]
        assert take(play, a, 5) == [(5, 8, 1)]
        assert take(play, a) == []
        acknowledge_ranges(play, a, 0, 1, ACCEPT)
        assert take(play, a) == [(8, 9, 1)]


async def test_a_leaving_member_hands_its_records_back_and_keeps_their_counts():
    async with stage(QueueDispatcher) as play:
        play.partition.entries(*[1] * 3)
        a = member(play)
        assert take(play, a, 2) == [(0, 2, 1)]
        play.leave(a)
        b = member(play)
        assert take(play, b) == [(0, 2, 2), (2, 3, 1)]
        play.cursor.subscription.seek(0, 0)
        play.dispatcher.cursor_moved(CursorEvent.SOUGHT, False)  # By another client.
        assert b.was_disconnected and not play.dispatcher.holds(b, [(0, 1, ACCEPT)])
        assert take(play, member(play)) == [(0, 3, 1)]


async def test_a_consumer_gets_no_entry_with_a_held_record():
    async with stage(QueueDispatcher) as play:
        play.partition.entries(3, 3)
        a = member(play)
        assert take(play, a, 2) == [(0, 2, 1)]
        sender = play.join(permits=100)
        await play.settled()
        assert sender.offsets == [3]
        acknowledge_ranges(play, a, 0, 1, ACCEPT)
        acknowledge_ranges(play, a, 1, 2, RELEASE)
        await play.settled()
        assert sender.offsets == [3, 0]
        assert sender.inbox[-1].redelivery_count == 1
        assert sender.inbox[-1].wanted == 2  # The accepted record is cleared.


async def test_a_returned_entry_counts_as_delivered_for_members():
    async with stage(QueueDispatcher) as play:
        member(play)
        sender = play.join(permits=2)
        play.partition.entries(1, 1)
        await play.settled()
        assert sender.offsets == [0, 1]
        assert play.dispatcher.first_offered() is None
        play.leave(sender)
        assert take(play, member(play, "b")) == [(0, 2, 2)]


async def test_hidden_records_are_settled_with_the_record_behind_them():
    async with stage(QueueDispatcher) as play:
        play.partition.entries(*[1] * 6)
        a = member(play)
        assert take(play, a, 9, [(2, 4), (5, 6)]) == [(2, 4, 1), (5, 6, 1)]
        acknowledge_ranges(play, a, 2, 3, ACCEPT)
        assert play.cursor.position == 3
        acknowledge_ranges(play, a, 5, 6, RELEASE)
        assert take(play, a) == [(4, 6, 2)]


async def test_a_waiting_member_has_its_turn_between_consumers():
    async with stage(QueueDispatcher, limits=DeliveryLimits(turn_entries_shared=2)) as play:
        a = member(play)
        sender = play.join(permits=100)
        play.dispatcher.await_records(a)
        await play.settled()
        play.partition.entries(*[1] * 8)
        await play.settled()
        assert a.turns == 1 and play.dispatcher.first_offered() is not None
        spans = take(play, a, 3)
        play.dispatcher.end_turn(a)
        await play.settled()
        held = [offset for start, end, _ in spans for offset in range(start, end)]
        assert sorted([*held, *sender.offsets]) == list(range(8))


async def test_a_forward_move_ends_locks():
    async with stage(QueueDispatcher) as play:
        play.partition.entries(*[1] * 4)
        a = member(play)
        take(play, a, 3)
        play.cursor.subscription.commit(0, 2)
        play.dispatcher.cursor_moved(CursorEvent.ACKED, False)
        assert [(lock.first, lock.end) for lock in play.dispatcher.locks] == [(2, 3)]
        assert a.unacked == 1


@pytest.mark.parametrize("seed", range(30))
async def test_each_record_has_one_holder_and_none_is_lost(seed, autojump_clock):
    rng = random.Random(seed)
    limits = DeliveryLimits(turn_entries_shared=rng.randint(1, 5), turn_entries=10)
    async with stage(QueueDispatcher, limits=limits) as play:
        play.dispatcher.share_limits = ShareLimits(deliveries_max=10_000, locked_max=12)
        members = [member(play, f"m{number}") for number in range(2)]
        senders = [sending(play) for _ in range(2)]
        acked: set[int] = set()
        for _ in range(120):
            _step(rng, play, members, senders)
            await play.settled()
            await _ack_some(rng, play, senders, acked)
            for joined in members:
                _settle_some(rng, play, joined, acked)
            _check(play, senders, acked)
        for sender in senders:
            play.leave(sender)
        for joined in members:
            play.leave(joined)
        last, end = member(play), play.partition.high_watermark
        play.dispatcher.share_limits = ShareLimits(deliveries_max=10_000)
        left = {o for first, stop, _ in take(play, last, 10_000) for o in range(first, stop)}
        assert left == set(range(end)) - acked


def _step(rng, play, members, senders):
    match rng.randrange(6):
        case 0 | 1:
            play.partition.entries(*[rng.choice((1, 1, 3)) for _ in range(rng.randint(1, 6))])
        case 2 | 3:
            take(play, rng.choice(members), rng.randint(1, 8), is_exact=rng.random() < 0.7)
        case 4:
            play.dispatcher.flow(rng.choice(senders), rng.randint(1, 6))
        case _:
            number = rng.randrange(2)
            if rng.random() < 0.5:
                play.leave(senders[number])
                senders[number] = sending(play)
            else:
                play.leave(members[number])
                members[number] = member(play, f"m{number}")


async def _ack_some(rng, play, senders, acked):
    for sender in senders:
        # No entry is sent to a consumer that holds the entry.
        new, sender.inbox = [entry.offset for entry in sender.inbox], []
        assert not sender.has & set(new) and len(new) == len(set(new)), (sender.has, new)
        sender.has.update(new)
        held = sorted(sender.pending)
        if held and rng.random() < 0.5:
            entry = rng.choice(held)
            end = entry + sender.pending[entry].record_count
            sender.has.discard(entry)
            if rng.random() < 0.3:
                play.nack(sender, entry)
            else:
                await play.ack(sender, entry)
                acked.update(range(entry, end))


def _settle_some(rng, play, joined, acked):
    for lock in [lock for lock in play.dispatcher.locks if lock.holder is joined]:
        if lock.is_hidden or rng.random() < 0.5:
            continue
        start = rng.randrange(lock.first, lock.end)
        how = rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT, RENEW))
        acknowledge_ranges(play, joined, start, lock.end, how)
        if how in (ACCEPT, REJECT):
            acked.update(range(start, lock.end))


def _check(play, senders, acked):
    state, held = play.cursor.state(), {}
    for offset in range(play.partition.high_watermark):
        assert state.covers(offset, offset + 1) == (offset in acked), offset
    holders = [(lock.first, lock.end, lock.holder) for lock in play.dispatcher.locks]
    for sender in senders:
        spans = sender.pending.items()
        holders += [(first, first + pending.record_count, sender) for first, pending in spans]
    for first, end, holder in holders:
        for offset in range(first, end):
            assert held.setdefault(offset, holder) is holder, offset
