"""ConnectionDeadlines of many connections, kept by one task, on a virtual clock."""

import math
import random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.server.connection_deadlines import DUE_TOGETHER, STALE_MIN, ConnectionDeadlines


class CalledConnection:
    """A connection that notes the times of its calls."""

    def __init__(self, number, every=math.inf):
        self.id = number
        self.every = every
        self.called = []

    def keep_time(self, now):
        self.called.append(now)
        return now + self.every


@pytest.fixture
async def deadlines(autojump_clock, nursery):
    deadlines = ConnectionDeadlines()
    nursery.start_soon(deadlines.run)
    await wait_all_tasks_blocked()
    return deadlines


async def test_each_connection_is_called_at_each_of_its_deadlines(autojump_clock, deadlines):
    start = trio.current_time()
    quick, slow, never = (
        CalledConnection(1, every=2),
        CalledConnection(2, every=7),
        CalledConnection(3),
    )
    deadlines.watch(slow, start + 7)
    deadlines.watch(quick, start + 2)
    deadlines.watch(never, math.inf)
    await trio.sleep(8.5)
    assert quick.called == pytest.approx([start + 2, start + 4, start + 6, start + 8])
    assert slow.called == pytest.approx([start + 7])
    assert never.called == []


async def test_an_earlier_deadline_than_all_others_is_not_missed(autojump_clock, deadlines):
    start = trio.current_time()
    late, early = CalledConnection(1), CalledConnection(2)
    deadlines.watch(late, start + 100)
    await trio.sleep(1)
    deadlines.watch(early, start + 3)
    await trio.sleep(5)
    assert early.called == pytest.approx([start + 3]) and late.called == []


async def test_deadlines_set_before_the_task_runs_are_kept(autojump_clock, nursery):
    deadlines, timed, start = ConnectionDeadlines(), CalledConnection(1), trio.current_time()
    deadlines.watch(timed, start + 1)
    nursery.start_soon(deadlines.run)
    await trio.sleep(2)
    assert timed.called == pytest.approx([start + 1])


async def test_a_removed_connection_is_not_called(autojump_clock, deadlines):
    timed, start = CalledConnection(1), trio.current_time()
    deadlines.watch(timed, start + 1)
    deadlines.unwatch(timed)
    deadlines.unwatch(timed)
    await trio.sleep(2)
    assert timed.called == []


async def test_a_connection_may_remove_itself_while_it_is_called(autojump_clock, deadlines):
    class Ending(CalledConnection):
        def keep_time(self, now):
            deadlines.unwatch(self)
            return super().keep_time(now)

    ending, start = Ending(1, every=1), trio.current_time()
    deadlines.watch(ending, start + 1)
    await trio.sleep(5)
    assert ending.called == pytest.approx([start + 1])


async def test_removed_connections_leave_no_lasting_entries(autojump_clock, deadlines):
    start = trio.current_time()
    staying = CalledConnection(0)
    deadlines.watch(staying, start + 600)
    for number in range(1, 5000):
        timed = CalledConnection(number)
        deadlines.watch(timed, start + 600 + number)
        deadlines.unwatch(timed)
    assert len(deadlines._heap) <= 2 + STALE_MIN
    await trio.sleep(700)
    assert len(staying.called) == 1


async def test_many_due_together_leave_turns_to_others(autojump_clock, deadlines, nursery):
    start = trio.current_time()
    all_timed = [CalledConnection(number) for number in range(5 * DUE_TOGETHER)]
    for timed in all_timed:
        deadlines.watch(timed, start + 1)
    seen = []

    async def look():
        await trio.sleep_until(start + 1)
        while len(seen) < 20:
            seen.append(sum(map(len, (timed.called for timed in all_timed))))
            await trio.lowlevel.checkpoint()

    nursery.start_soon(look)
    await trio.sleep(2)
    assert seen[-1] == len(all_timed) and any(0 < count < len(all_timed) for count in seen)
    steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert max(steps) <= 2 * DUE_TOGETHER


async def test_random_deadlines_are_kept_as_a_plain_list_says(autojump_clock, deadlines):
    chance, start = random.Random(5), trio.current_time()
    expected, watched = {}, {}
    for number in range(300):
        timed = watched[number] = CalledConnection(number)
        due = start + chance.randrange(1, 50)
        deadlines.watch(timed, due)
        expected[number] = [due]
    for number in chance.sample(range(300), 120):
        deadlines.unwatch(watched[number])
        expected[number] = []
    await trio.sleep(60)
    for number, timed in watched.items():
        assert timed.called == pytest.approx(expected[number]), number
