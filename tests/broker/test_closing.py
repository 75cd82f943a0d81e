"""Deferred cleanup of changes: in order, in pieces, with turns for other tasks."""

import pytest
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.closing import STEPS_TOGETHER, Closing
from tests.broker.pieces import counting


@pytest.fixture
def closing(nursery):
    closing = Closing()
    nursery.start_soon(closing.run)
    return closing


def steps(done, count, name="a"):
    for number in range(count):
        done.append((name, number))
        yield


async def test_cleanup_runs_in_order_and_in_pieces(closing):
    done = []
    closing.add(steps(done, 10 * STEPS_TOGETHER))
    closing.add(steps(done, 5, "b"))
    with counting(lambda: len(done)) as pieces:
        await wait_all_tasks_blocked()
    assert pieces.largest == STEPS_TOGETHER
    wanted = [("a", number) for number in range(10 * STEPS_TOGETHER)]
    assert done == wanted + [("b", number) for number in range(5)]


async def test_work_added_during_a_wait_is_done_too(closing):
    done = []
    await wait_all_tasks_blocked()
    closing.add(steps(done, 1))
    await wait_all_tasks_blocked()
    closing.add(steps(done, 1))
    await wait_all_tasks_blocked()
    assert len(done) == 2


async def test_a_bug_is_logged_and_stops_no_other_work(closing):
    def broken():
        yield
        raise ValueError

    done = []
    closing.add(broken())
    closing.add(steps(done, 3))
    with capture_logs() as lines:
        await wait_all_tasks_blocked()
    assert len(done) == 3
    assert [line["event"] for line in lines] == ["closing_failed"]
