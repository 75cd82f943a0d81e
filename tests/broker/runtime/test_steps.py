"""Work in steps: plain until the first wait, and like a coroutine function from there."""

import gc
import weakref

import pytest
import trio

from braidlog.broker.runtime.steps import begin, run, step_into


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
