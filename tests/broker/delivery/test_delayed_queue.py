"""Delivery times in one queue: members of share groups and other consumers wait for them."""

import random
from dataclasses import dataclass, field

import pytest

from braidlog.broker.delivery.delivery_times import HEADER
from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.failover import FailoverDispatcher
from braidlog.broker.delivery.key_shared import KeySharedDispatcher
from braidlog.broker.delivery.key_slots import KeyRing
from braidlog.broker.delivery.limits import DeliveryLimits
from braidlog.broker.delivery.pulling import AckType, ShareLimits
from braidlog.broker.delivery.share_queue import QueueDispatcher
from braidlog.broker.positions.cursor_moves import CursorEvent
from braidlog.broker.runtime.steps import run
from braidlog.storage.formats.api import BodyFormat
from tests.broker.delivery.dispatch_fakes import FakeConsumer, stage
from tests.broker.delivery.test_share_queue import acknowledge_ranges, member
from tests.storage.formats.entries_of import body, entry, metadata, single

pytestmark = pytest.mark.usefixtures("is_warm")


def delayed(play, seconds, *counts):
    """Add entries with a delivery time so many seconds from now; return the time in ms."""
    due_ms = play.clock.now // 1000 + int(1000 * seconds)
    play.partition.entries(*counts or (1,), metadata={"deliver_at_time": due_ms})
    return due_ms


async def passed(play, seconds):
    play.clock.now += int(seconds * 1_000_000)
    await play.passed(seconds)
    await play.settled()


async def take_due(play, joined, count=100, *, is_exact=True):
    """Take records as a fetch does; return the first offsets and ends of the locks."""
    start, end = play.dispatcher.first_offered(), play.partition.high_watermark
    if start is None:
        return []
    await run(play.dispatcher.hold_early(start, end))
    locks = play.dispatcher.acquire(joined, start, [(start, end)], count, is_exact=is_exact)
    return [(lock.first, lock.end) for lock in locks]


async def test_a_member_waits_for_the_delivery_time_and_is_woken(autojump_clock):
    async with stage(QueueDispatcher) as play:
        delayed(play, 2)
        play.partition.entries(1)
        a = member(play)
        assert await take_due(play, a) == [(1, 2)]
        assert play.dispatcher.delayed == 1
        play.dispatcher.await_records(a)
        await passed(play, 1)
        assert (a.turns, play.dispatcher.first_offered()) == (0, None)
        await passed(play, 2)
        assert (a.turns, play.dispatcher.delayed) == (1, 0)
        assert await take_due(play, a) == [(0, 1)]


async def test_a_batch_of_a_pulsar_producer_waits_with_all_its_records(autojump_clock):
    async with stage(QueueDispatcher) as play:
        delayed(play, 2, 3, 1)
        a = member(play)
        assert await take_due(play, a) == []
        assert play.dispatcher.delayed == 4
        await passed(play, 3)
        assert await take_due(play, a) == [(0, 4)]


async def test_a_member_that_joins_later_waits_for_held_entries(autojump_clock):
    async with stage(QueueDispatcher) as play:
        delayed(play, 2, 3)
        sender = play.join(permits=0)
        play.partition.entries(1)
        play.dispatcher.flow(sender, 100)
        await play.settled()
        assert (sender.offsets, play.dispatcher.delayed) == ([3], 3)
        a = member(play)
        assert await take_due(play, a) == []
        play.leave(sender)
        await passed(play, 3)
        assert await take_due(play, a) == [(0, 3), (3, 4)]  # For the first, the second time.


async def test_a_consumer_that_joins_members_waits_too(autojump_clock):
    async with stage(QueueDispatcher) as play:
        delayed(play, 2, 2)
        play.partition.entries(1)
        a = member(play)
        assert await take_due(play, a) == [(2, 3)]
        sender = play.join(permits=100)
        await play.settled()
        assert sender.offsets == []
        await passed(play, 3)
        assert sender.offsets == [0]
        assert await take_due(play, a) == []


async def test_a_member_does_not_wait_where_the_topic_has_no_delays(autojump_clock):
    async with stage(QueueDispatcher) as play:
        delayed(play, 2)
        a = member(play)
        play.limit(delays=False)
        assert not play.dispatcher.is_slowed
        assert await take_due(play, a) == [(0, 1)]


async def test_with_the_limit_of_delayed_records_members_get_known_records_only(autojump_clock):
    async with stage(QueueDispatcher, limits=DeliveryLimits(delayed_max=2)) as play:
        play.partition.entries(1)
        delayed(play, 2)
        delayed(play, 2)
        a = member(play)
        assert await take_due(play, a) == [(0, 1)]
        play.partition.entries(1)
        assert play.dispatcher.first_offered() is None
        acknowledge_ranges(play, a, 0, 1, AckType.RELEASE)
        assert await take_due(play, a) == [(0, 1)]
        await passed(play, 3)
        assert await take_due(play, a) == [(1, 4)]


async def test_a_seek_looks_at_delivery_times_again(autojump_clock):
    async with stage(QueueDispatcher) as play:
        play.partition.entries(1)
        delayed(play, 2)
        a = member(play)
        assert await take_due(play, a) == [(0, 1)]
        play.cursor.subscription.seek(0, 0)
        play.dispatcher.cursor_moved(CursorEvent.SOUGHT, False)  # By another client.
        assert play.dispatcher.delayed == 0
        assert await take_due(play, member(play)) == [(0, 1)]
        assert play.dispatcher.delayed == 1


async def test_delayed_records_that_others_acknowledge_or_retention_removes_are_not_missed(
    autojump_clock,
):
    async with stage(QueueDispatcher) as play:
        for _ in range(4):
            delayed(play, 2)
        a = member(play)
        assert await take_due(play, a) == []
        play.cursor.subscription.commit(0, 1)
        play.dispatcher.cursor_moved(CursorEvent.ACKED, False)
        play.partition.log_start_offset = 2
        sender = play.join(permits=100)
        await passed(play, 3)
        assert (sender.offsets, play.cursor.position) == ([2, 3], 2)


@pytest.mark.parametrize("pulls", [False, True])
async def test_delayed_records_that_are_gone_take_no_place_of_others(pulls, autojump_clock):
    async with stage(QueueDispatcher, limits=DeliveryLimits(delayed_max=2)) as play:
        for _ in range(2):
            delayed(play, 1_000_000)
        play.partition.entries(1)
        if pulls:
            a = member(play)
            assert await take_due(play, a) == [(2, 3)]
            acknowledge_ranges(play, a, 2, 3, AckType.RELEASE)
            play.partition.entries(1)
        sender = play.join(permits=100)
        await play.settled()
        assert 3 not in sender.offsets and play.dispatcher.delayed == 2
        play.partition.log_start_offset = 2  # By retention.
        await passed(play, 200)
        assert play.dispatcher.delayed == 0
        assert sender.offsets == ([2, 3] if pulls else [2])


async def test_the_first_record_to_offer_is_found_behind_many_delayed_records():
    async with stage(QueueDispatcher) as play:
        a, count = member(play), 5000
        for _ in range(count):
            delayed(play, 1000)
            play.partition.entries(1)
        play.dispatcher.share_limits = ShareLimits(locked_max=count)
        for start, end in await take_due(play, a, count):
            acknowledge_ranges(play, a, start, end, AckType.ACCEPT)
        assert (play.cursor.position, play.dispatcher.delayed) == (0, count)
        assert len(play.cursor.state().acked) == count
        assert len(play.dispatcher._out) == 1  # A search looks at each range.
        assert play.dispatcher.first_offered() is None


@dataclass(slots=True, eq=False, kw_only=True)
class PunctualConsumer(FakeConsumer):
    """A consumer that gets no record before its time, and no record that it holds."""

    has: dict = field(default_factory=dict)
    play: object
    due: dict

    def send(self, entries, size):
        for sent in entries:
            assert sent.offset not in self.has, sent
            self.has[sent.offset] = sent.end
            for offset in range(sent.offset, sent.end):
                assert self.due[offset] <= self.play.clock.now // 1000, sent


@pytest.mark.parametrize("seed", range(30))
async def test_no_record_is_early_and_each_comes_in_time(seed, autojump_clock):
    rng = random.Random(seed)
    limits = DeliveryLimits(turn_entries_shared=rng.randint(1, 5), due_max=rng.choice((2, 1000)))
    async with stage(QueueDispatcher, limits=limits) as play:
        game = _Game(rng, play)
        for _ in range(120):
            await game.step()
            await play.settled()
        await passed(play, 10)
        for consumer in game.members + game.senders:
            play.leave(consumer)
        last = member(play)
        play.dispatcher.share_limits = ShareLimits(deliveries_max=10_000)
        spans = await take_due(play, last, 10_000)
        left = {offset for start, end in spans for offset in range(start, end)}
        assert left == set(range(play.partition.high_watermark)) - game.acked


class _Game:
    """Random steps of producers and consumers of a queue."""

    def __init__(self, rng, play):
        self.rng, self.play = rng, play
        play.dispatcher.share_limits = ShareLimits(deliveries_max=10_000, locked_max=12)
        self.due = {}
        self.acked = set()
        self.members = []
        self.senders = []

    async def step(self):
        rng, play = self.rng, self.play
        match rng.randrange(7):
            case 0 | 1:
                self.produce()
            case 2:
                await passed(play, rng.choice((0.2, 1, 2)))
            case 3:
                self.come_or_go(self.members, self.new_member)
            case 4:
                self.come_or_go(self.senders, self.new_sender)
            case 5 if self.members:
                joined = rng.choice(self.members)
                for start, end in await take_due(play, joined, rng.randint(1, 8)):
                    for offset in range(start, end):
                        assert self.due[offset] <= play.clock.now // 1000, offset
                        assert not any(offset in _held(sender) for sender in self.senders)
            case _:
                await self.settle()

    def produce(self):
        base, now_ms = self.play.partition.next_offset, self.play.clock.now // 1000
        counts = [self.rng.choice((1, 1, 3)) for _ in range(self.rng.randint(1, 4))]
        seconds = self.rng.choice((0, 0, 1, 3))
        self.due.update(
            (offset, now_ms + 1000 * seconds) for offset in range(base, base + sum(counts))
        )
        if seconds:
            delayed(self.play, seconds, *counts)
        else:
            self.play.partition.entries(*counts)

    def come_or_go(self, consumers, new):
        if len(consumers) < 2:
            consumers.append(new())
        else:
            self.play.leave(consumers.pop(self.rng.randrange(2)))

    def new_member(self):
        return member(self.play)

    def new_sender(self):
        consumer = PunctualConsumer("c", play=self.play, due=self.due)
        self.play.dispatcher.attach(consumer)
        self.play.dispatcher.flow(consumer, 20)
        return consumer

    async def settle(self):
        rng, play = self.rng, self.play
        for sender in self.senders:
            if sender.has and rng.random() < 0.5:
                entry = rng.choice(sorted(sender.has))
                end = sender.has.pop(entry)
                if rng.random() < 0.3:
                    play.nack(sender, entry)
                else:
                    await play.ack(sender, entry)
                    self.acked.update(range(entry, end))
                play.dispatcher.flow(sender, end - entry)
        for lock in list(play.dispatcher.locks):
            if rng.random() < 0.6:
                how = rng.choice((AckType.ACCEPT, AckType.RELEASE))
                acknowledge_ranges(play, lock.holder, lock.first, lock.end, how)
                if how is AckType.ACCEPT:
                    self.acked.update(range(lock.first, lock.end))


def _held(sender):
    return {o for start, end in sender.has.items() for o in range(start, end)}


# The header `braidlog.deliver_at`.


def key_shared(source):
    return KeySharedDispatcher(source, policy=KeyRing())


def add_headed(play, *delays_s):
    """Add a batch of a Pulsar producer with a message for each delay; 0: no header."""
    now_ms = play.clock.now // 1000
    payload = b"".join(
        single(b"x", properties=[{"key": HEADER.decode(), "value": str(now_ms + 1000 * delay)}])
        if delay
        else single(b"x")
        for delay in delays_s
    )
    count = len(delays_s)
    stored = body((entry(metadata(num_messages_in_batch=count), payload), count))
    play.partition._add(stored, BodyFormat.PULSAR, count, count, 0, 0, True)


async def test_members_get_records_of_a_batch_in_time_and_others_the_batch_at_the_end(
    autojump_clock,
):
    async with stage(QueueDispatcher) as play:
        play.limit(reads_header=True)
        add_headed(play, 2, 0, 4)
        a, sender = member(play), play.join(permits=100)
        await play.settled()
        assert (sender.offsets, play.dispatcher.delayed) == ([], 2)
        assert await take_due(play, a) == [(1, 2)]
        acknowledge_ranges(play, a, 1, 2, AckType.ACCEPT)
        await passed(play, 3)
        assert await take_due(play, a) == [(0, 1)]
        acknowledge_ranges(play, a, 0, 1, AckType.RELEASE)
        await play.settled()
        assert sender.offsets == []
        await passed(play, 2)
        assert sender.offsets == [0]
        assert sender.inbox[0].wanted == 2


@pytest.mark.parametrize("kind", [QueueDispatcher, key_shared])
async def test_a_batch_waits_for_the_latest_time_of_its_messages(kind, autojump_clock):
    async with stage(kind) as play:
        play.limit(reads_header=True)
        add_headed(play, 2, 0, 4)
        add_headed(play, 0, 0)
        sender = play.join(permits=100)
        await passed(play, 3)
        assert (sender.offsets, play.dispatcher.delayed) == ([3], 3)
        await passed(play, 2)
        assert sender.offsets == [3, 0]


async def test_without_the_setting_the_header_has_no_effect(autojump_clock):
    async with stage(QueueDispatcher) as play:
        add_headed(play, 2, 4)
        assert await take_due(play, member(play)) == [(0, 2)]


async def test_readers_in_order_ignore_delivery_times(autojump_clock):
    for kind in (ExclusiveDispatcher, FailoverDispatcher):
        async with stage(kind) as play:
            play.limit(reads_header=True)
            add_headed(play, 2, 4)
            delayed(play, 2)
            sender = play.join(permits=100)
            await play.settled()
            assert sender.offsets == [0, 2]


@pytest.mark.parametrize("kind", [QueueDispatcher, key_shared])
async def test_records_are_delivered_once_their_topic_has_delays_no_more(kind, autojump_clock):
    async with stage(kind) as play:
        play.limit(reads_header=True)
        add_headed(play, 1000)
        delayed(play, 1000)
        sender = play.join(permits=100)
        await play.settled()
        assert (sender.offsets, play.dispatcher.delayed) == ([], 2)
        play.limit()
        await play.settled()
        assert sender.was_disconnected
        again = play.join(permits=100)
        await play.settled()
        assert (again.offsets, play.dispatcher.delayed) == ([0], 1)
        play.limit(delays=False)
        await play.settled()
        assert again.was_disconnected
        last = play.join(permits=100)
        await play.settled()
        assert last.offsets == [0, 1]
        play.limit(delays=False, unacked_consumer=5)
        await play.settled()
        assert not last.was_disconnected
