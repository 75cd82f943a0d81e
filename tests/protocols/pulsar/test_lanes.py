"""Lanes of one connection: work of each in order, and only so much of it waits."""

import gc
import weakref
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.server.endings import ProtocolError
from braidlog.protocols.pulsar.lanes import Lanes
from braidlog.protocols.pulsar.limits import LANE_MAX, LANES_MAX


class Connection:
    """What lanes need of one."""

    def __init__(self, nursery):
        self.nursery = nursery


class Work:
    """Waits to be let, and notes who ended."""

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
    return Lanes(Connection(nursery))


async def test_work_of_one_lane_is_done_in_order_what_needs_no_wait_too(lanes, work):
    lane = ("producer", 1)
    lanes.in_order(lane, work.of("a"))
    lanes.promptly(lane, lambda: work.done.append("b"))
    lanes.promptly(("producer", 2), lambda: work.done.append("at once"))
    lanes.in_order(lane, work.of("c"))
    work.let.set()
    await wait_all_tasks_blocked()
    assert work.done == ["at once", "a", "b", "c"]


async def test_more_than_a_lane_takes_ends_the_connection(lanes, work):
    lanes.in_order(("consumer", 1), work.of("first"))
    for _ in range(LANE_MAX - 1):
        lanes.in_order(("consumer", 1), work.of("next"))
    with pytest.raises(ProtocolError, match="consumer"):
        lanes.in_order(("consumer", 1), work.of("last"))


async def test_nothing_more_is_read_while_all_lanes_have_work(lanes, work, nursery):
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


async def test_work_that_an_ended_connection_leaves_is_held_by_nobody(work):
    class Client:
        """Holds the lanes, as the work of its commands holds it."""

    client = Client()
    gone = weakref.ref(client)

    async def of(client):
        await work.let.wait()

    async with trio.open_nursery() as nursery:
        client.lanes = Lanes(Connection(nursery))
        for number in range(2):
            client.lanes.in_order(("consumer", 1), partial(of, client))
            client.lanes.in_order(("consumer", 2 + number), partial(of, client))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    gc.disable()  # A search would find the circle; what is kept out of searches stays for ever.
    try:
        del client
        assert gone() is None
    finally:
        gc.enable()
