"""A shared call for many askers: no answer is older than its question."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.cluster.gathered import Gathered


class HeldCalls:
    """Calls that end on the test's request, numbered."""

    def __init__(self):
        self.begun = 0
        self.room = trio.Semaphore(0)

    async def __call__(self):
        self.begun += 1
        number = self.begun
        await self.room.acquire()
        return number


@pytest.fixture
def calls():
    return HeldCalls()


@pytest.fixture
def ask(calls, nursery):
    """Return a function that asks `times` times at the same time and collects the answers in a
    list.
    """
    gathered = Gathered(calls)

    def ask(times=1, nursery=nursery):
        answers = []

        async def ask_once():
            answers.append(await gathered())

        for _ in range(times):
            nursery.start_soon(ask_once)
        return answers

    return ask


async def test_questions_during_a_call_share_the_next_call(calls, ask):
    first = ask()
    await wait_all_tasks_blocked()
    later = ask(50)
    await wait_all_tasks_blocked()
    assert calls.begun == 1
    calls.room.release()
    await wait_all_tasks_blocked()
    assert (first, later, calls.begun) == ([1], [], 2)
    last = ask(3)
    calls.room.release()
    calls.room.release()
    await wait_all_tasks_blocked()
    assert (later, last, calls.begun) == ([2] * 50, [3] * 3, 3)


async def test_other_askers_are_answered_if_the_caller_is_cancelled(calls, ask, nursery):
    async with trio.open_nursery() as leaving:
        gone = ask(nursery=leaving)
        await wait_all_tasks_blocked()
        leaving.cancel_scope.cancel()
    answers = ask(2)
    await wait_all_tasks_blocked()
    calls.room.release()
    await wait_all_tasks_blocked()
    assert (gone, answers) == ([], [2, 2])
