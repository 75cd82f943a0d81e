"""Entries waiting for another read, by lane; delays; the budget of entries read ahead."""

import random

from trio.testing import wait_all_tasks_blocked

from braidlog.broker.delivery.delays import LOOK_MS, LOOKED_AT_MAX, Delays
from braidlog.broker.delivery.limits import DELAYED_MAX
from braidlog.broker.delivery.read_ahead import (
    BUSY_S,
    IDLE_S,
    READ_AHEAD_BYTES_MIN,
    ReadAheadBudget,
)
from braidlog.broker.delivery.waiting_offsets import ANYBODY, WaitingOffsets
from braidlog.broker.limits import MIB
from braidlog.broker.runtime.output_budget import OutputBudget


def test_against_a_plain_dict():
    rng = random.Random(11)
    again, plain = WaitingOffsets(), {}
    for _ in range(3000):
        offset = rng.randrange(60)
        if rng.random() < 0.5:
            lane = rng.choice([ANYBODY, b"u", 1, 2])
            offsets = [offset] if rng.random() < 0.5 else [offset, *rng.sample(range(60), 3)]
            again.add(list(dict.fromkeys(offsets)), lane)
            for again_offset in offsets:
                plain.setdefault(again_offset, lane)
        else:
            again.discard(offset)
            plain.pop(offset, None)
        assert len(again) == len(plain)
        assert set(again.lanes) == set(plain.values())
        for lane in (ANYBODY, b"u", 1, 2):
            mine = [offset for offset, its in plain.items() if its == lane]
            assert again.first(lane) == min(mine, default=None)
        assert again.lowest([1, 2]) == min(
            (offset for offset, lane in plain.items() if lane in (1, 2)), default=None
        )
    again.clear()
    assert (len(again), list(again.lanes)) == (0, [])


def test_delays_come_in_order_of_time_then_offset():
    delays = Delays(DELAYED_MAX)
    for due_ms, offset, slot in [(30, 1, 7), (10, 2**62, 65535), (10, 5, 0), (2**63, 9, 1)]:
        delays.add(due_ms, offset, offset + 3 if slot == 7 else offset + 1, slot)
    assert delays.first_ms == 10
    assert delays.pop_due(9, 10) == []
    assert (len(delays), delays.messages) == (4, 6)
    assert delays.pop_due(10, 1) == [(5, 6, 0)]
    assert delays.pop_due(40, 10) == [(2**62, 2**62 + 1, 65535), (1, 4, 7)]
    assert (len(delays), delays.messages, delays.first_ms) == (1, 1, 2**63)
    delays.clear()
    assert (delays.messages, delays.first_ms) == (0, None)


def test_delays_below_a_position_are_forgotten_at_the_limit_a_piece_at_a_time():
    count = 2 * LOOKED_AT_MAX
    delays = Delays(count)
    for offset in range(count - 1):
        delays.add(10**9 - offset, 2 * offset, 2 * offset + 2)
    delays.forget_below(count, LOOK_MS)
    assert len(delays) == count - 1  # Below the limit nobody looks.
    delays.add(5, 2 * count, 2 * count + 1)
    delays.forget_below(count, LOOK_MS)
    assert (delays.first_ms, len(delays) > count // 2) == (0, True)
    assert delays.is_full is False
    delays.forget_below(count, LOOK_MS)
    assert (len(delays), delays.first_ms) == (count // 2, 5)
    assert delays.messages == count - 1
    assert delays.pop_due(5, 9) == [(2 * count, 2 * count + 1, 0)]
    assert delays.pop_due(10**9, 2) == [(2 * count - 4, 2 * count - 2, 0)]


def test_delays_are_looked_at_once_in_a_while():
    delays = Delays(2)
    for offset in (3, 4):
        delays.add(10**9, offset, offset + 1)
    delays.forget_below(3, LOOK_MS)
    delays.forget_below(9, 2 * LOOK_MS - 1)
    assert (len(delays), delays.first_ms) == (2, 10**9)
    delays.forget_below(9, 2 * LOOK_MS)
    assert (len(delays), delays.messages) == (0, 0)


class FakeHolder:
    def __init__(self):
        self.dropped = 0

    def drop_ahead(self):
        self.dropped += 1


def test_the_budget_takes_from_consumers_that_cannot_use_it():
    budget = ReadAheadBudget(100_000)
    old, busy = FakeHolder(), FakeHolder()
    budget.hold(old, 60_000, 0.0)
    budget.hold(busy, 40_000, 10.0)
    assert budget.may_read(50_000, 10.0 + BUSY_S / 2) == 50_000
    assert (old.dropped, busy.dropped, budget.bytes_held) == (1, 0, 40_000)


def test_no_consumer_waits_for_the_budget_and_busy_consumers_keep_their_share():
    budget = ReadAheadBudget(100_000)
    holders = [FakeHolder() for _ in range(10)]
    for holder in holders:
        budget.hold(holder, 10_000, 5.0)
    assert budget.may_read(50_000, 5.0) == READ_AHEAD_BYTES_MIN
    assert not any(holder.dropped for holder in holders)


def test_a_sweep_drops_unused_entries():
    budget = ReadAheadBudget()
    first, second = FakeHolder(), FakeHolder()
    budget.hold(first, 1000, 0.0)
    budget.hold(second, 1000, IDLE_S)
    budget.sweep(IDLE_S)
    assert (first.dropped, second.dropped, budget.bytes_held) == (1, 0, 1000)
    budget.hold(second, 0, 2 * IDLE_S)
    budget.sweep(9 * IDLE_S)
    assert (second.dropped, budget.bytes_held) == (0, 0)


def test_entries_read_ahead_count_as_output_and_are_dropped_if_memory_is_short():
    output = OutputBudget(10 * MIB)
    budget = ReadAheadBudget(output=output)
    holder = FakeHolder()
    budget.hold(holder, 100_000, 1.0)
    assert output.used == 100_000
    output.charge(6 * MIB)
    assert budget.may_read(1_000_000, 1.0) == READ_AHEAD_BYTES_MIN
    output.drop_read_ahead()
    assert holder.dropped
    assert output.used == 6 * MIB


async def test_a_read_ahead_reserves_memory_and_waits_for_it(nursery):
    output = OutputBudget(MIB)
    budget, reserved = ReadAheadBudget(output=output), []

    async def read(wanted):
        with await budget.reserve(wanted) as room:
            reserved.append((room.size, output.used))

    await read(100_000)
    assert reserved == [(100_000, 100_000)]
    output.charge(MIB * 3 // 4)
    nursery.start_soon(read, 100_000)
    await wait_all_tasks_blocked()
    assert len(reserved) == 1, "a large read waits before the last quarter"
    await read(READ_AHEAD_BYTES_MIN)
    assert reserved[1:] == [(READ_AHEAD_BYTES_MIN, output.used + READ_AHEAD_BYTES_MIN)]
    output.charge(MIB // 4)
    assert budget.is_spent()
    output.charge(-MIB)
    await wait_all_tasks_blocked()
    assert reserved[2:] == [(100_000, 100_000)]
