"""The limits of waiting polls."""

import pytest
import trio

from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.waiting_polls import (
    PLACES_MAX,
    PLACES_MIN,
    POLLS_MAX,
    POLLS_MIN,
    DeferredPolls,
    PollCount,
    PollSize,
)

FEW_PLACES = 5


def fill(polls, start=0, places=1):
    """Add polls up to the limit; return their number."""
    for number in range(start, start + POLLS_MAX + 1):
        try:
            polls.add(number, places)
        except Refusal as error:
            assert error.code is ErrorCode.DEFERRED_POLLS_LIMIT_REACHED
            return number - start
    raise AssertionError("no limit")


def test_a_connection_has_a_limit():
    assert fill(DeferredPolls(PollCount())) == POLLS_MAX


def test_beyond_the_limit_of_all_each_connection_may_have_a_few():
    in_all = PollCount(PollSize(POLLS_MAX, PLACES_MAX))
    assert fill(DeferredPolls(in_all)) == POLLS_MAX
    assert [fill(DeferredPolls(in_all)) for _ in range(3)] == [POLLS_MIN] * 3


def test_the_partitions_of_a_connection_have_a_limit():
    assert fill(DeferredPolls(PollCount()), places=PLACES_MAX // 2) == 2
    assert fill(DeferredPolls(PollCount()), places=PLACES_MAX // 2 + 1) == 1


def test_beyond_the_partitions_of_all_each_connection_may_have_a_few():
    in_all = PollCount(PollSize(POLLS_MAX, 2 * PLACES_MIN))
    assert fill(DeferredPolls(in_all), places=PLACES_MIN) == 2
    assert fill(DeferredPolls(in_all), places=PLACES_MIN + 1) == 0
    few = DeferredPolls(in_all)
    assert fill(few, places=PLACES_MIN // FEW_PLACES) == FEW_PLACES


async def test_an_answered_poll_makes_room():
    in_all = PollCount(PollSize(1, PLACES_MAX))
    polls = DeferredPolls(in_all)
    assert fill(polls) == POLLS_MIN
    with polls.waiting(0):
        await trio.lowlevel.checkpoint()
    assert in_all.count == POLLS_MIN - 1
    polls.add(0)
    with pytest.raises(Refusal):
        polls.add(POLLS_MIN)


async def test_an_answered_poll_makes_room_for_its_partitions():
    in_all = PollCount()
    polls = DeferredPolls(in_all)
    polls.add(1, PLACES_MAX)
    with pytest.raises(Refusal):
        polls.add(2)
    with polls.waiting(1):
        await trio.lowlevel.checkpoint()
    polls.add(2, PLACES_MAX)


async def test_a_cancelled_poll_makes_room():
    in_all = PollCount()
    polls = DeferredPolls(in_all)
    polls.add(7)
    with polls.waiting(7):
        polls.cancel(7)
        await trio.sleep_forever()
    assert in_all.count == 0
    polls.cancel(7)
