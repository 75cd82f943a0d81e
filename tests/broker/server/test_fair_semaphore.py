"""A gate admits waiters in order, as far as there is room."""

import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.server.fair_semaphore import FairSemaphore


async def test_no_request_overtakes_a_waiting_request():
    gate, inside = FairSemaphore(10), []

    async def enter(size: int) -> None:
        await gate.enter(size)
        inside.append(size)

    assert gate.enter_now(6)
    assert not gate.enter_now(5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(enter, 10)
        await wait_all_tasks_blocked()
        nursery.start_soon(enter, 1)
        await wait_all_tasks_blocked()
        assert not gate.enter_now(1)
        assert (inside, gate.missing) == ([], 6)
        gate.leave(6)
        await wait_all_tasks_blocked()
        assert (inside, gate.missing) == ([10], 1)
        gate.leave(10)
    assert inside == [10, 1]
    assert (gate.held, gate.missing) == (1, 0)


async def test_a_cancelled_wait_delays_no_other():
    gate = FairSemaphore(10)
    assert gate.enter_now(10)
    with trio.move_on_after(0):
        await gate.enter(5)
    gate.leave(10)
    assert (gate.held, gate.missing) == (0, 0)
    assert gate.enter_now(10)


async def test_room_is_made_once_for_each_request_without_room():
    calls = []
    gate = FairSemaphore(10, lambda: calls.append(gate.missing))
    await gate.enter(8)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.enter, 7)
        await wait_all_tasks_blocked()
        assert calls == [5]
        gate.leave(8)
    assert gate.held == 7
