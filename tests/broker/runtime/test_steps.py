"""Work in steps: plain until the first wait, and like a coroutine function from there."""

import gc
import weakref

import pytest
import trio.testing

from braidlog.broker.runtime.steps import Suspended, begin, run, run_now, step_into
from tests.broker.server.echo import EchoWait


async def doubled(number):
    await trio.lowlevel.checkpoint()
    return 2 * number


async def failing():
    await trio.lowlevel.checkpoint()
    raise ValueError("in vain")


def noting(log, *waits):
    """Record the result of each wait, or its error."""
    log.append("begun")
    for wait in waits:
        try:
            log.append((yield wait))
        except ValueError as error:
            log.append(str(error))
    log.append("over")


async def test_work_without_a_wait_ends_at_once():
    log = []
    assert begin(noting(log)) is None
    assert log == ["begun", "over"]


async def test_awaited_work_continues_with_the_results():
    log = []
    rest = begin(noting(log, doubled(1), failing(), doubled(2)))
    assert log == ["begun"]
    await rest
    assert log == ["begun", 2, "in vain", 4, "over"]


async def test_run_returns_the_result_with_and_without_a_wait():
    def waits():
        return (yield doubled(4)) + 1

    def plain():
        return 7
        yield

    assert (await run(waits()), await run(plain())) == (9, 7)


async def test_an_unhandled_error_is_raised():
    def waits():
        yield failing()

    with pytest.raises(ValueError, match="in vain"):
        await run(waits())


async def test_a_cancelled_wait_closes_the_work():
    log = []

    def holding():
        try:
            yield trio.sleep_forever()
        finally:
            log.append("given back")

    with trio.CancelScope() as scope:
        scope.cancel()
        await begin(holding())
    assert scope.cancelled_caught
    assert log == ["given back"]


async def test_a_handler_may_have_three_forms():
    def steps():
        return (yield doubled(1))

    def all_of_them():
        plain = yield from step_into(5)
        return [plain, (yield from step_into(steps())), (yield from step_into(doubled(3)))]

    assert await run(all_of_them()) == [5, 2, 6]


class Large:
    """A result that takes memory."""


async def large():
    await trio.lowlevel.checkpoint()
    return Large()


async def test_a_result_is_not_held_during_the_next_wait():
    seen = []

    async def look(reference):
        await trio.lowlevel.checkpoint()
        gc.collect()
        seen.append(reference())

    def dropping():
        result = yield large()
        reference = weakref.ref(result)
        del result
        yield look(reference)

    await run(dropping())
    assert seen == [None]


async def test_work_behind_a_plain_wait_continues_in_plain_calls():
    log = []
    first, second = EchoWait(), EchoWait()
    rest = begin(noting(log, first, second, doubled(4)))
    assert isinstance(rest, Suspended) and log == ["begun"]
    rest.call_at_end(lambda: log.append("called"))
    first.end()
    rest = rest.go_on()
    assert isinstance(rest, Suspended) and log == ["begun", "called", None]
    rest = rest.go_on()
    await rest
    assert log == ["begun", "called", None, None, 8, "over"]


async def test_suspended_work_can_be_awaited():
    log = []
    wait = EchoWait()
    rest = begin(noting(log, wait, doubled(4)))
    rest.call_at_end(lambda: log.append("called"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: rest)
        await trio.testing.wait_all_tasks_blocked()
        assert wait.is_awaited
        wait.end()
    assert log == ["begun", None, 8, "over"]


async def test_work_that_runs_whole_awaits_a_plain_wait(nursery):
    log = []
    wait = EchoWait()
    nursery.start_soon(run, noting(log, wait))
    await trio.testing.wait_all_tasks_blocked()
    wait.end()
    await trio.testing.wait_all_tasks_blocked()
    assert log == ["begun", None, "over"]


@pytest.mark.parametrize("end", ["close", "throw", "now"])
async def test_suspended_work_that_is_given_up_releases_its_resources(end):
    released = []

    def working():
        try:
            yield wait
        finally:
            released.append(True)

    wait = EchoWait()
    if end == "now":
        assert run_now(working()) is None
        assert wait.is_closed
    else:
        rest = begin(working())
        if end == "close":
            rest.close()
        else:
            with pytest.raises(ValueError, match="in vain"):
                rest.throw(ValueError("in vain"))
    assert released == [True]
