"""Key_Shared delivery: a key is at a single consumer at a time and in order, over
joins and leaves.
"""

import random

import pytest
import trio

from braidlog.broker.delivery.key_shared import KeySharedDispatcher
from braidlog.broker.delivery.key_slots import KeyRanges, KeyRing
from braidlog.broker.delivery.limits import DeliveryLimits
from braidlog.broker.positions.cursor_moves import CursorEvent
from tests.broker.delivery.dispatch_fakes import stage

pytestmark = pytest.mark.usefixtures("is_warm")


def keyed(policy=KeyRing, **settings):
    return stage(KeySharedDispatcher, policy=policy(), **settings)


def put(play, *keys):
    """Add an entry of each key; return their offsets."""
    return [play.partition.entries(1, metadata={"partition_key": key})[0] for key in keys]


async def test_a_key_goes_to_a_single_consumer():
    async with keyed() as play:
        consumers = [play.join(permits=100, name=name) for name in "ab"]
        keys = [b"key%d" % (number % 8) for number in range(40)]
        offsets = put(play, *keys)
        await play.settled()
        owners = {}
        for consumer in consumers:
            assert consumer.offsets == sorted(consumer.offsets)
            for offset in consumer.offsets:
                assert owners.setdefault(keys[offsets.index(offset)], consumer) is consumer
        assert sum(len(consumer.offsets) for consumer in consumers) == 40
        assert len(set(owners.values())) == 2


async def test_the_ordering_key_precedes_the_key_and_no_key_is_a_key():
    async with keyed() as play:
        consumers = [play.join(permits=100, name=name) for name in "ab"]
        for number in range(20):
            fields = {"partition_key": b"%d" % number, "ordering_key": b"one"}
            play.partition.entries(1, metadata=fields)
        await play.settled()
        assert sorted(len(consumer.inbox) for consumer in consumers) == [0, 20]


async def test_ranges_decide_and_unowned_entries_wait():
    async with keyed(KeyRanges) as play:
        low = play.join(permits=10, name="low", key_ranges=[(0, 30_000)])
        put(play, b"a", b"hello world", b"k1")  # Slots 27058, 36623, 24618.
        await play.settled()
        assert low.offsets == [0, 2]
        high = play.join(permits=10, name="high", key_ranges=[(30_001, 65_535)])
        await play.settled()
        assert high.offsets == [1]


async def test_a_consumer_without_permits_delays_only_its_own_keys():
    async with keyed(KeyRanges) as play:
        low = play.join(permits=1, name="low", key_ranges=[(0, 30_000)])
        high = play.join(permits=100, name="high", key_ranges=[(30_001, 65_535)])
        put(play, *[b"a", b"hello world"] * 10)
        await play.settled()
        assert (low.offsets, len(high.offsets)) == ([0], 10)
        play.dispatcher.flow(low, 100)
        await play.settled()
        assert low.offsets == list(range(0, 20, 2))


async def test_a_key_stays_until_its_consumer_holds_no_entry():
    async with keyed(KeyRanges) as play:
        old = play.join(permits=100, name="old", key_ranges=[(0, 65_535)])
        put(play, b"a", b"a", b"k1")
        await play.settled()
        play.dispatcher.policy.remove(old)
        old.key_ranges = [(60_000, 65_535)]
        play.dispatcher.policy.add(old)
        new = play.join(permits=100, name="new", key_ranges=[(0, 59_999)])
        put(play, b"a", b"hello world", b"k1")
        await play.settled()
        assert new.offsets == [4]  # A key of which the other consumer holds no entry.
        await play.ack(old, 0)
        await play.settled()
        assert new.offsets == [4]
        await play.ack(old, 1, 2)
        await play.settled()
        assert sorted(new.offsets) == [3, 4, 5]


async def test_out_of_order_delivery_does_not_wait():
    async with keyed(in_order=False) as play:
        old = play.join(permits=100, name="old")
        put(play, *[b"key%d" % number for number in range(30)])
        await play.settled()
        new = play.join(permits=100, name="new")
        put(play, *[b"key%d" % number for number in range(30)])
        await play.settled()
        assert len(old.inbox) + len(new.inbox) == 60
        assert new.inbox


async def test_a_consumers_entries_go_to_the_next_owner_in_order():
    async with keyed() as play:
        first, second = (play.join(permits=100, name=name) for name in "ab")
        put(play, *[b"key%d" % (number % 4) for number in range(20)])
        await play.settled()
        moved = list(first.offsets)
        assert moved
        before = len(second.offsets)
        play.leave(first)
        put(play, b"key0", b"key1", b"key2", b"key3")
        await play.settled()
        assert sorted(second.offsets[before:]) == sorted([*moved, 20, 21, 22, 23])
        assert_in_order(play, second.offsets[before:], 4)


def assert_in_order(play, offsets, keys):
    for key in range(keys):
        mine = [offset for offset in offsets if offset % keys == key]
        assert mine == sorted(mine)


async def test_reading_ahead_ends_at_the_limit_of_waiting_entries():
    async with keyed(KeyRanges, limits=DeliveryLimits(look_ahead_max=5)) as play:
        low = play.join(permits=1, name="low", key_ranges=[(0, 30_000)])
        high = play.join(permits=100, name="high", key_ranges=[(30_001, 65_535)])
        put(play, *[b"a"] * 10, b"hello world")
        await play.settled()
        assert (low.offsets, high.offsets) == ([0], [])
        play.dispatcher.flow(low, 6)
        await play.settled()
        assert (low.offsets, high.offsets) == (list(range(7)), [10])


async def test_an_acknowledged_key_reaches_its_new_owner_at_the_limit_of_waiting_entries():
    async with keyed(limits=DeliveryLimits(look_ahead_max=1)) as play:
        keys = [b"k%d" % number for number in range(10)]
        first = play.join(permits=10, name="first")
        put(play, *keys)
        await play.settled()
        second = play.join(permits=10, name="second")
        policy = play.dispatcher.policy
        owners = [policy.owner(policy.slot(key)) for key in keys]
        stays, moves = owners.index(first), owners.index(second)
        _, wanted = put(play, keys[stays], keys[moves])  # The first consumer has no more permits.
        await play.settled()
        assert second.offsets == []
        await play.ack(first, moves)
        await play.settled()
        assert second.offsets == [wanted]


async def test_a_delayed_entry_reaches_its_keys_owner_when_due(autojump_clock):
    async with keyed(KeyRanges) as play:
        low = play.join(permits=10, name="low", key_ranges=[(0, 30_000)])
        high = play.join(permits=10, name="high", key_ranges=[(30_001, 65_535)])
        due_ms = play.clock.now // 1000 + 5000
        fields = {"partition_key": b"hello world", "deliver_at_time": due_ms}
        play.partition.entries(1, metadata=fields)
        put(play, b"hello world", b"a")
        await play.settled()
        assert (low.offsets, high.offsets) == ([2], [1])
        play.clock.now += 5_000_000
        await play.ack(high, 1)
        await play.passed(61)
        assert high.offsets == [1, 0]


@pytest.mark.parametrize("seed", range(40))
async def test_against_a_model(seed):
    """No key is at two consumers, no entry is out of order or lost, no acknowledged entry is
    redelivered.
    """
    rng = random.Random(seed)
    async with keyed(limits=DeliveryLimits(look_ahead_max=rng.choice([3, 20, 20_000]))) as play:
        game = KeySharedGame(rng, play)
        for _ in range(120):
            await game.step()
            await play.settled()
            game.look()
        while game.consumers:
            game.leave()
        game.join(permits=1 << 30)
        for _ in range(3):
            await play.settled()
            game.look()
        assert set(game.held) == set(game.keys) - game.acked, "all that is left is with the last"


@pytest.mark.parametrize("seed", range(40))
async def test_against_a_model_between_the_turns_of_a_read(seed):
    """As above, while the entries of a read are shared out and sent in many turns."""
    rng = random.Random(seed)
    limits = DeliveryLimits(
        turn_entries=rng.choice([1, 3, 200]),
        turn_bytes=rng.choice([1, 200, 1 << 20]),
        shared_out_max=rng.choice([3, 20, 8000]),
        look_ahead_max=rng.choice([3, 20, 20_000]),
        returned_together=rng.choice([1, 3, 2000]),
    )
    async with keyed(limits=limits, in_order=True) as play:
        game = KeySharedGame(rng, play, permits_max=60)
        for _ in range(200):
            await game.step()
            if rng.random() < 0.2:
                play.budget.drop()
            for _ in range(rng.choice([0, 0, 1, 1, 2, 5, 50])):
                await trio.lowlevel.checkpoint()
            game.look()
        while game.consumers:
            game.leave()
        game.join(permits=1 << 30)
        await play.settled()
        game.look()
        assert set(game.held) == set(game.keys) - game.acked, "all that is left is with the last"


def small_turns():
    """Return limits with which a read takes many turns."""
    return DeliveryLimits(turn_entries=20)


async def test_a_consumer_gets_the_entries_of_a_read_in_few_sends():
    async with keyed(limits=small_turns()) as play:
        play.partition.gate = trio.Event()
        consumers = [play.join(permits=1000, name=f"c{number}") for number in range(20)]
        put(play, *(b"key%d" % (number % 100) for number in range(300)))
        play.partition.gate.set()
        await play.settled()
        assert sum(len(consumer.offsets) for consumer in consumers) == 300
        # Without sharing out first, nearly each entry has a send of its own.
        assert sum(consumer.sends for consumer in consumers) <= 2 * len(consumers)
        assert all(consumer.offsets == sorted(consumer.offsets) for consumer in consumers)


async def in_the_midst(play, count):
    """Join 20 consumers, publish entries, and return the consumers when some entries are shared
    out and none is sent.
    """
    consumers = [play.join(permits=1000, name=f"c{number}") for number in range(20)]
    await play.settled()
    play.partition.gate = trio.Event()
    put(play, *(b"key%d" % (number % 100) for number in range(count)))
    await play.settled()
    play.partition.gate.set()
    while not play.dispatcher._shares:
        await trio.lowlevel.checkpoint()
    assert not any(consumer.sends for consumer in consumers)
    return consumers


async def test_an_entry_acknowledged_before_its_send_is_not_sent():
    async with keyed(limits=small_turns()) as play:
        consumers = await in_the_midst(play, 300)
        play.cursor.ack([(3, 6)], lazy=True)  # By a client of another protocol.
        await play.settled()
        received = sorted(offset for consumer in consumers for offset in consumer.offsets)
        assert received == [0, 1, 2, *range(6, 300)]
        for consumer in consumers:
            await play.ack(consumer, *consumer.offsets)
        assert not play.dispatcher._holders, "nobody holds a key any more"


async def test_the_unsent_entries_of_a_consumer_that_leaves_go_to_others():
    async with keyed(limits=small_turns()) as play:
        consumers = await in_the_midst(play, 300)
        gone = next(iter(play.dispatcher._shares))
        play.leave(gone)
        await play.settled()
        assert not gone.offsets
        received = sorted(offset for consumer in consumers for offset in consumer.offsets)
        assert received == list(range(300))


async def test_a_share_that_a_turn_has_no_room_for_is_sent_in_the_next():
    async with keyed(KeyRanges, limits=DeliveryLimits(turn_bytes=1000)) as play:
        low = play.join(permits=10, name="low", key_ranges=[(0, 30_000)])
        high = play.join(permits=10, name="high", key_ranges=[(30_001, 65_535)])
        await play.settled()
        for key, padding in ((b"a", 1), (b"hello world", 1), (b"a", 2000)):
            metadata = {"ordering_key": key, "partition_key": b"p" * padding}
            play.partition.entries(1, metadata=metadata, visible=False)
        play.partition.show_all()
        await play.settled()
        assert (low.offsets, high.offsets) == ([0, 2], [1])


async def test_memory_counts_until_the_last_send_and_no_longer():
    async with keyed(limits=DeliveryLimits(turn_entries=5)) as play:
        await in_the_midst(play, 300)
        while play.dispatcher._ahead or play.dispatcher._shares:
            assert play.budget.bytes_held
            await trio.lowlevel.checkpoint()
        await play.settled()
        assert play.budget.bytes_held == 0


async def test_no_entry_is_sent_after_a_seek_that_came_before_its_send():
    async with keyed(limits=small_turns()) as play:
        consumers = await in_the_midst(play, 300)
        play.cursor.seek(300)
        play.dispatcher.cursor_moved(CursorEvent.SOUGHT, is_own=False)
        await play.settled()
        assert not any(consumer.sends for consumer in consumers)
        last = play.join(permits=10)
        (offset,) = put(play, b"key1")
        await play.settled()
        assert last.offsets == [offset]


class KeySharedGame:
    """The entries that consumers hold, by the rules."""

    def __init__(self, rng, play, permits_max=9):
        self.rng, self.play, self.permits_max = rng, play, permits_max
        self.consumers, self.seen = [], {}
        self.keys, self.held, self.acked = {}, {}, set()

    async def step(self):
        moves = [self.append, self.append, self.flow, self.flow, self.ack, self.ack, self.nack]
        move = self.rng.choice([*moves, self.join, self.leave])
        if move in (self.append, self.join) or self.consumers:
            done = move()
            if done is not None:
                await done

    def append(self):
        for _ in range(self.rng.randint(1, 6)):
            key = b"k%d" % self.rng.randrange(5)
            self.keys[put(self.play, key)[0]] = key

    def join(self, permits=0):
        consumer = self.play.join(permits, name=f"c{len(self.seen)}")
        self.consumers.append(consumer)
        self.seen[consumer] = 0

    def leave(self):
        consumer = self.consumers.pop(self.rng.randrange(len(self.consumers)))
        self.play.leave(consumer)
        self.held = {o: holder for o, holder in self.held.items() if holder is not consumer}

    def flow(self):
        self.play.dispatcher.flow(
            self.rng.choice(self.consumers), self.rng.randint(1, self.permits_max)
        )

    async def ack(self):
        consumer, mine = self.held_sample()
        await self.play.ack(consumer, *mine)
        for offset in mine:
            self.acked.add(offset)
            del self.held[offset]

    def nack(self):
        consumer, mine = self.held_sample()
        if mine:
            self.play.nack(consumer, *mine)
            for offset in mine:
                del self.held[offset]

    def held_sample(self):
        consumer = self.rng.choice(self.consumers)
        mine = [offset for offset, holder in self.held.items() if holder is consumer]
        return consumer, self.rng.sample(mine, self.rng.randint(0, len(mine)))

    def look(self):
        for consumer in self.consumers:
            for delivery in consumer.inbox[self.seen[consumer] :]:
                offset = delivery.offset
                key = self.keys[offset]
                assert offset not in self.acked
                assert offset not in self.held
                holders = {h for o, h in self.held.items() if self.keys[o] == key}
                assert holders <= {consumer}, f"{key} is at two"
                open_before = {
                    o
                    for o, its in self.keys.items()
                    if its == key and o < offset and o not in self.acked and o not in self.held
                }
                assert not open_before, f"{offset} overtook {open_before}"
                self.held[offset] = consumer
            self.seen[consumer] = len(consumer.inbox)


async def test_an_acknowledgement_may_outlive_its_consumer_and_the_rewind_after_it():
    async with (
        keyed(limits=DeliveryLimits(returned_together=1)) as play,
        trio.open_nursery() as nursery,
    ):
        first = play.join(permits=2)
        put(play, b"a", b"a", b"a")
        await play.settled()
        assert first.offsets == [0, 1]
        play.partition.gate = trio.Event()
        nursery.start_soon(play.ack_by_ids, first, 0, 2)  # The task waits: 2 has to be looked up.
        await play.settled()
        # The consumer's entries are returned in pieces, but no consumer is left for them.
        play.leave(first)
        second = play.join()
        play.partition.gate.set()
        await play.settled()
        play.dispatcher.flow(second, 10)
        await play.settled()
        assert second.offsets == [1]
