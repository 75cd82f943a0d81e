"""A shared call for many askers: no answer is older than its question."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.cluster.gathered import Gathered


class Asked:
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
def asked():
    return Asked()


@pytest.fixture
def ask(asked, nursery):
    """Return a function that asks `times` times at the same time and collects the answers in a
    list.
    """
    gathered = Gathered(asked)

    def ask(times=1, nursery=nursery):
        found = []

        async def one():
            found.append(await gathered())

        for _ in range(times):
            nursery.start_soon(one)
        return found

    return ask


async def test_questions_during_a_call_share_the_next_call(asked, ask):
    first = ask()
    await wait_all_tasks_blocked()
    later = ask(50)
    await wait_all_tasks_blocked()
    assert asked.begun == 1
    asked.room.release()
    await wait_all_tasks_blocked()
    assert (first, later, asked.begun) == ([1], [], 2)
    last = ask(3)
    asked.room.release()
    asked.room.release()
    await wait_all_tasks_blocked()
    assert (later, last, asked.begun) == ([2] * 50, [3] * 3, 3)


async def test_other_askers_are_answered_if_the_caller_is_cancelled(asked, ask, nursery):
    async with trio.open_nursery() as leaving:
        gone = ask(nursery=leaving)
        await wait_all_tasks_blocked()
        leaving.cancel_scope.cancel()
    found = ask(2)
    await wait_all_tasks_blocked()
    asked.room.release()
    await wait_all_tasks_blocked()
    assert (gone, found) == ([], [2, 2])
