"""Waits for records of one or several partitions."""

import itertools
import math
from types import SimpleNamespace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.commit import waiters as waiters_module
from braidlog.broker.commit.waiters import Waiters, common_deadline


class Target:
    """A wait's view of a partition."""

    def __init__(self, high_watermark=0):
        self.high_watermark = high_watermark
        self.removed = False
        self.waits = {}


@pytest.fixture
def waiters():
    return Waiters()


async def start(nursery, waiters, targets):
    """Start a task in `wait_any`; return an event that is set once the wait has returned."""
    returned = trio.Event()

    async def wait():
        await waiters.wait_any(targets)
        returned.set()

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    return returned


async def test_wait_returns_at_once_if_there_are_records(waiters):
    with trio.fail_after(1):
        await waiters.wait_any([(Target(0), 0), (Target(5), 4)])
    assert not len(waiters)


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_any_of_several_partitions_wakes_the_wait(waiters, nursery, which):
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


async def test_a_watermark_below_the_offset_wakes_no_wait(waiters, nursery):
    target = Target(3)
    returned = await start(nursery, waiters, [(target, 10)])
    target.high_watermark = 10
    waiters.wake(target)
    await wait_all_tasks_blocked()
    assert not returned.is_set()
    target.high_watermark = 11
    waiters.wake(target)
    await returned.wait()


async def test_a_partition_named_twice_counts_with_the_lower_offset(waiters, nursery):
    target = Target(0)
    returned = await start(nursery, waiters, [(target, 0), (target, 100)])
    target.high_watermark = 1
    waiters.wake(target)
    await returned.wait()
    assert not target.waits


async def test_double_wakes_and_cancelled_waits_do_no_harm(waiters, nursery):
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


async def test_stopping_wakes_all_waits_and_ends_later_waits(waiters, nursery):
    returned = await start(nursery, waiters, [(Target(), 0)])
    waiters.stop()
    await returned.wait()
    await waiters.wait_any([(Target(), 0)])


# Functions that tasks leave behind.


class Passes:
    """A poller within a pass, which ends with `end`."""

    def __init__(self):
        self.in_pass = True
        self.calls = []

    def call_soon(self, call):
        self.calls.append(call)

    def end(self):
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def passes():
    return Passes()


class WaitingTask:
    """A task that waits with a callback; `answers` are the callback's results or errors."""

    def __init__(self, waiters, nursery, target, answers):
        self.waiters, self.target, self.answers = waiters, target, answers
        self.asked_at = []  # watermarks
        self.resumed, self.error = trio.Event(), None
        nursery.start_soon(self.run)

    async def run(self):
        try:
            target = self.target
            await self.waiters.wait_any([(target, target.high_watermark)], self.at_once)
        except ValueError as error:
            self.error = error
        self.resumed.set()

    def at_once(self):
        self.asked_at.append(self.target.high_watermark)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def come(waiters, passes, target, high_watermark):
    target.high_watermark = high_watermark
    waiters.wake(target)
    passes.end()
    await wait_all_tasks_blocked()


async def test_records_of_a_pass_are_served_at_its_end_without_the_task(passes, nursery):
    waiters, target = Waiters(passes), Target()
    reader = WaitingTask(waiters, nursery, target, [3, 5, None])
    await wait_all_tasks_blocked()
    target.high_watermark = 3
    waiters.wake(target)
    assert reader.asked_at == []
    passes.end()
    await come(waiters, passes, target, 3)  # The task now waits for records above 3.
    await come(waiters, passes, target, 5)
    await wait_all_tasks_blocked()
    assert reader.asked_at == [3, 5] and not reader.resumed.is_set()
    await come(waiters, passes, target, 6)
    assert reader.asked_at == [3, 5, 6] and reader.resumed.is_set()
    assert not target.waits and not len(waiters)


async def test_a_task_resumes_if_more_records_came_than_were_served(passes, nursery):
    waiters, target = Waiters(passes), Target()
    reader = WaitingTask(waiters, nursery, target, [3])
    await wait_all_tasks_blocked()
    await come(waiters, passes, target, 4)
    assert reader.asked_at == [4] and reader.resumed.is_set()


@pytest.mark.parametrize("why", ["no pass", "removed", "stopped"])
async def test_a_task_resumes_without_the_callback_outside_a_pass(passes, nursery, why):
    waiters, target = Waiters(passes), Target()
    reader = WaitingTask(waiters, nursery, target, [])
    await wait_all_tasks_blocked()
    passes.in_pass = why != "no pass"
    target.removed = why == "removed"
    target.high_watermark = 1
    waiters.wake(target)
    if why == "stopped":
        waiters.stop()
    passes.end()
    await reader.resumed.wait()
    assert reader.asked_at == []


async def test_a_task_cancelled_before_the_end_of_the_pass_is_not_called(passes, nursery):
    waiters, target = Waiters(passes), Target()
    async with trio.open_nursery() as inner:
        reader = WaitingTask(waiters, inner, target, [])
        await wait_all_tasks_blocked()
        target.high_watermark = 1
        waiters.wake(target)
        inner.cancel_scope.cancel()
    passes.end()
    assert reader.asked_at == [] and not target.waits


async def test_an_error_reaches_its_task_and_others_are_served(passes, nursery):
    waiters, target = Waiters(passes), Target()
    readers = [
        WaitingTask(waiters, nursery, target, [answer]) for answer in (ValueError("a bug"), 1)
    ]
    await wait_all_tasks_blocked()
    await come(waiters, passes, target, 1)
    assert [str(reader.error) for reader in readers] == ["a bug", "None"]
    assert readers[1].asked_at == [1] and not readers[1].resumed.is_set()


async def test_after_some_time_tasks_get_their_turns(passes, nursery, monkeypatch):
    waiters, target = Waiters(passes), Target()
    readers = [WaitingTask(waiters, nursery, target, [1]) for _ in range(5)]
    await wait_all_tasks_blocked()
    looks = itertools.count(0.0, waiters_module.AT_ONCE_S / 2.5)
    clock = SimpleNamespace(perf_counter=lambda: next(looks))
    monkeypatch.setattr(waiters_module, "time", clock)
    await come(waiters, passes, target, 1)
    assert [len(reader.asked_at) for reader in readers].count(1) == 2
    assert [reader.resumed.is_set() for reader in readers].count(True) == 3


@given(now=st.floats(0, 1e7), seconds=st.floats(1e-3, 1e5))
def test_a_common_deadline_is_up_to_a_64th_of_the_wait_early(now, seconds):
    assert now + seconds * (1 - 1 / 64) <= common_deadline(now, seconds) <= now + seconds


def test_waits_of_like_lengths_share_their_deadlines():
    ends = {common_deadline(1000 + n / 200, 5.0) for n in range(1000)}
    assert len(ends) == 5 * 16
    assert ends <= {n / 16 for n in range(1000 * 16, 1011 * 16)}


@pytest.mark.parametrize("seconds", [0, -1.0, math.inf])
def test_a_wait_without_a_length_ends_as_asked(seconds):
    assert common_deadline(7.3, seconds) == 7.3 + seconds
