"""Lanes of a connection: the work of each in order, with a limit of waiting work."""

import gc
import weakref
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.pulsar.lanes import Lanes
from braidlog.protocols.pulsar.limits import LANE_MAX, LANES_MAX


class LanesConnection:
    """The connection's interface for lanes."""

    def __init__(self, nursery):
        self.nursery = nursery


class Work:
    """Waits for the test, and records its end."""

    def __init__(self):
        self.let = trio.Event()
        self.done = []

    def of(self, name):
        async def work():
            await self.let.wait()
            self.done.append(name)

        return work


@pytest.fixture
def work():
    return Work()


@pytest.fixture
def lanes(nursery):
    return Lanes(LanesConnection(nursery))


async def test_work_of_a_lane_runs_in_order_even_without_waits(lanes, work):
    lane = ("producer", 1)
    lanes.in_order(lane, work.of("a"))
    lanes.promptly(lane, lambda: work.done.append("b"))
    lanes.promptly(("producer", 2), lambda: work.done.append("at once"))
    lanes.in_order(lane, work.of("c"))
    work.let.set()
    await wait_all_tasks_blocked()
    assert work.done == ["at once", "a", "b", "c"]


async def test_work_above_a_lanes_limit_ends_the_connection(lanes, work):
    lanes.in_order(("consumer", 1), work.of("first"))
    for _ in range(LANE_MAX - 1):
        lanes.in_order(("consumer", 1), work.of("next"))
    with pytest.raises(ProtocolError, match="consumer"):
        lanes.in_order(("consumer", 1), work.of("last"))


async def test_reading_stops_while_all_lanes_have_work(lanes, work, nursery):
    for number in range(LANES_MAX):
        assert not lanes.is_full
        lanes.in_order(("request", number), work.of(number))
    assert lanes.is_full
    read = []

    async def read_on():
        await lanes.room()
        read.append(True)

    nursery.start_soon(read_on)
    await wait_all_tasks_blocked()
    assert not read
    work.let.set()
    await wait_all_tasks_blocked()
    assert read and not lanes.is_full


async def test_an_ended_connections_work_is_freed(work):
    class LanesHolder:
        """Holds the lanes, like the work of its commands."""

    client = LanesHolder()
    gone = weakref.ref(client)

    async def of(client):
        await work.let.wait()

    async with trio.open_nursery() as nursery:
        client.lanes = Lanes(LanesConnection(nursery))
        for number in range(2):
            client.lanes.in_order(("consumer", 1), partial(of, client))
            client.lanes.in_order(("consumer", 2 + number), partial(of, client))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    # A collection would find the cycle; objects excluded from collections would stay for ever.
    gc.disable()
    try:
        del client
        assert gone() is None
    finally:
        gc.enable()
