"""Waiting for records of one or several partitions."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.commit.waiters import Waiters


class Target:
    """What a wait sees of a partition."""

    def __init__(self, high_watermark=0):
        self.high_watermark = high_watermark
        self.removed = False
        self.waits = {}


@pytest.fixture
def waiters():
    return Waiters()


async def start(nursery, waiters, targets):
    """A task in `wait_any`; its event is set once the wait has returned."""
    returned = trio.Event()

    async def wait():
        await waiters.wait_any(targets)
        returned.set()

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    return returned


async def test_wait_returns_at_once_where_records_are_there(waiters):
    with trio.fail_after(1):
        await waiters.wait_any([(Target(0), 0), (Target(5), 4)])
    assert not len(waiters)


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_any_of_several_partitions_wakes_the_wait_and_leaves_no_trace(
    waiters, nursery, which
):
    targets = [Target(3), Target(5), Target(7)]
    returned = await start(
        nursery, waiters, [(target, target.high_watermark) for target in targets]
    )
    assert not returned.is_set()
    targets[which].high_watermark += 1
    waiters.wake(targets[which])
    await returned.wait()
    assert not any(target.waits for target in targets)
    assert len(waiters) == 0


async def test_a_watermark_still_below_the_offset_wakes_nobody(waiters, nursery):
    target = Target(3)
    returned = await start(nursery, waiters, [(target, 10)])
    target.high_watermark = 10
    waiters.wake(target)
    await wait_all_tasks_blocked()
    assert not returned.is_set()
    target.high_watermark = 11
    waiters.wake(target)
    await returned.wait()


async def test_one_partition_named_twice_counts_with_the_lower_offset(waiters, nursery):
    target = Target(0)
    returned = await start(nursery, waiters, [(target, 0), (target, 100)])
    target.high_watermark = 1
    waiters.wake(target)
    await returned.wait()
    assert not target.waits


async def test_woken_twice_and_cancelled_waits_do_no_harm(waiters, nursery):
    first, second = Target(), Target()
    returned = await start(nursery, waiters, [(first, 0), (second, 0)])
    first.high_watermark = second.high_watermark = 1
    waiters.wake(first)
    waiters.wake(second)
    waiters.stop()
    await returned.wait()

    waiters = Waiters()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:
            await start(inner, waiters, [(Target(), 0), (second, 1)])
            scope.cancel()
            second.high_watermark = 2
            waiters.wake(second)
    assert len(waiters) == 0
    assert not second.waits


async def test_removal_of_a_partition_wakes_its_waits(waiters, nursery):
    target = Target()
    returned = await start(nursery, waiters, [(target, 0)])
    target.removed = True
    waiters.wake(target)
    await returned.wait()


async def test_stopping_wakes_everybody_and_nobody_waits_again(waiters, nursery):
    returned = await start(nursery, waiters, [(Target(), 0)])
    waiters.stop()
    await returned.wait()
    await waiters.wait_any([(Target(), 0)])
