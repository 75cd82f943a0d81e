"""Large answers share a budget: a large share while most is free, a small share for each at half
use, and never more than all.
"""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.limits import MIB, OUTBOX_BYTES_MAX, OUTPUT_LAST_BYTES, OUTPUT_SHARE_BYTES_MIN
from braidlog.broker.runtime.output_budget import PART_OF_FREE, OutputBudget

BYTES_MAX = 64 * MIB


@pytest.fixture
def budget():
    return OutputBudget(BYTES_MAX)


async def test_a_small_answer_gets_its_whole_request(budget):
    with await budget.reserve(1000) as room:
        assert (room.size, budget.used) == (1000, 1000)
    assert budget.used == 0


async def test_a_large_answer_gets_a_part_of_the_free_budget(budget):
    with await budget.reserve(10 * BYTES_MAX) as room:
        assert room.size == BYTES_MAX // PART_OF_FREE


async def test_at_half_use_every_answer_gets_a_small_share(budget):
    assert budget.share == OUTBOX_BYTES_MAX
    budget.charge(BYTES_MAX // 2 + 1)
    assert budget.share == OUTPUT_SHARE_BYTES_MIN
    with await budget.reserve(MIB) as room:
        assert room.size == OUTPUT_SHARE_BYTES_MIN


async def test_no_number_of_answers_exceeds_the_budget(budget, nursery):
    rooms = []

    async def answer():
        rooms.append(await budget.reserve(16 * MIB))

    for _ in range(2000):
        nursery.start_soon(answer)
    await wait_all_tasks_blocked()
    assert budget.used <= BYTES_MAX
    assert 400 < len(rooms) < 2000
    served = len(rooms)
    for room in rooms[: served // 2]:
        room.keep(0)
    await wait_all_tasks_blocked()
    assert len(rooms) > served
    assert budget.used <= BYTES_MAX
    nursery.cancel_scope.cancel()


async def test_an_answer_returns_its_unneeded_share(budget):
    with await budget.reserve(MIB) as room:
        room.keep(10)
        assert budget.used == 10
    assert budget.used == 0


async def test_a_cancelled_wait_holds_nothing(budget):
    budget.charge(BYTES_MAX)
    with trio.move_on_after(0):
        await budget.reserve(1)
    assert budget.used == BYTES_MAX


def test_read_ahead_is_given_up_first(budget):
    class AheadEntries:
        dropped = False

        def drop(self):
            self.dropped = True
            budget.read_ahead.discard(self)

    ahead = AheadEntries()
    budget.read_ahead.add(ahead)
    budget.drop_read_ahead()
    assert ahead.dropped


async def test_the_last_quarter_is_for_connections_without_unsent_bytes(budget, nursery):
    budget.charge(BYTES_MAX * 3 // 4)
    assert budget.is_spent(1) and not budget.is_spent()
    with await budget.reserve(MIB) as room:
        assert room.size == OUTPUT_LAST_BYTES
    unsent, passed = [5], []

    async def slow():
        await budget.wait_for_room(lambda: unsent[0])
        passed.append(budget.used)

    nursery.start_soon(slow)
    await wait_all_tasks_blocked()
    assert not passed
    unsent[0] = 0
    budget.sent()
    await wait_all_tasks_blocked()
    assert passed == [BYTES_MAX * 3 // 4]


async def test_slow_connections_wait_in_order_and_wake_only_with_room(budget, nursery):
    budget.charge(BYTES_MAX)
    passed = []

    async def slow(number):
        await budget.wait_for_room(lambda: 1)
        passed.append(number)
        budget.charge(OUTPUT_SHARE_BYTES_MIN)

    for number in range(6):
        nursery.start_soon(slow, number)
        await wait_all_tasks_blocked()
    budget.charge(-BYTES_MAX // 4 - 3 * OUTPUT_SHARE_BYTES_MIN)
    await wait_all_tasks_blocked()
    assert sorted(passed) == [0, 1, 2]
    nursery.cancel_scope.cancel()


async def test_a_large_record_waits_without_memory_while_other_shares_shrink(budget, nursery):
    room = await budget.reserve(MIB)
    budget.charge(BYTES_MAX * 3 // 8)
    assert not budget.is_short and not room.grow_now(BYTES_MAX * 5 // 8)
    nursery.start_soon(room.grow, BYTES_MAX * 5 // 8 + 1)
    await wait_all_tasks_blocked()
    assert (room.size, budget.used) == (0, BYTES_MAX * 3 // 8)
    with await budget.reserve(MIB) as other:
        assert other.size == OUTPUT_SHARE_BYTES_MIN
    await wait_all_tasks_blocked()
    assert room.size == 0
    budget.charge(-1)
    await wait_all_tasks_blocked()
    assert (room.size, budget.used) == (BYTES_MAX * 5 // 8 + 1, BYTES_MAX)
    room.keep(0)


async def test_large_records_are_served_in_order_even_after_a_cancelled_wait(budget, nursery):
    budget.charge(BYTES_MAX)
    rooms = [budget.reserve_now(0) for _ in range(3)]
    with trio.CancelScope() as scope:
        scope.cancel()
        await rooms[0].grow(BYTES_MAX)
    for room in rooms[1:]:
        nursery.start_soon(room.grow, BYTES_MAX // 2)
        await wait_all_tasks_blocked()
    budget.charge(-BYTES_MAX // 2)
    await wait_all_tasks_blocked()
    assert [room.size for room in rooms] == [0, BYTES_MAX // 2, 0]
    rooms[1].keep(0)
    await wait_all_tasks_blocked()
    assert [room.size for room in rooms] == [0, 0, BYTES_MAX // 2]
    assert budget.used == BYTES_MAX


async def test_a_record_larger_than_the_budget_gets_all_that_can_be_freed(budget):
    with budget.reserve_now(0, copies=4) as room:
        assert room.grow_now(BYTES_MAX)
        assert room.size == BYTES_MAX * 3 // 4


async def test_memory_for_an_expected_record_is_lowered_to_the_size_that_the_record_has(budget):
    with budget.reserve_now(1000, copies=2) as room:
        await room.expect(10 * MIB)
        await room.expect(5 * MIB)  # The same record, asked for again.
        assert room.size == 1000 + 20 * MIB
        assert room.hold_built(3 * MIB)
        assert room.size == budget.used == 1000 + 6 * MIB
        assert room.hold_built(MIB)  # Another record.
        assert room.size == 1000 + 8 * MIB
        budget.charge(BYTES_MAX - budget.used)
        assert room.hold_built(0) and not room.hold_built(MIB)


async def test_a_whole_answer_leaves_the_last_quarter_free(budget, nursery):
    served = []

    async def answer():
        await budget.room(30 * MIB)
        budget.charge(30 * MIB)
        served.append(budget.used)

    nursery.start_soon(answer)
    nursery.start_soon(answer)
    await wait_all_tasks_blocked()
    assert served == [30 * MIB]
    assert not budget.is_spent()  # Small answers of peers that read are served.
    budget.charge(-30 * MIB)
    await wait_all_tasks_blocked()
    assert served == [30 * MIB, 30 * MIB]
    assert budget.has_room(BYTES_MAX) is False
    budget.charge(-30 * MIB)
    assert budget.has_room(2 * BYTES_MAX)  # Of an unused budget.
