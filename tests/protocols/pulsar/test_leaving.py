"""A connection's objects end, and continue, in pieces."""

import weakref

import pytest
import trio
import trio.testing

from braidlog.broker.access.access import Access
from braidlog.broker.closing import STEPS_TOGETHER
from braidlog.protocols.pulsar.client import LEAVING_TOGETHER, WOKEN_TOGETHER
from braidlog.protocols.pulsar.machine import Type
from tests.broker.access.rules import Nothing
from tests.protocols.pulsar.talk import EARLIEST, NAME, TOPIC, entry, talking
from tests.waiting import until

COUNT = 2 * LEAVING_TOGETHER + 1


class Falling(trio.abc.Instrument):
    """The largest fall of a number in a single turn of the loop; a context manager."""

    def __init__(self, look):
        self.most, self._look, self._before = 0, look, look()

    def after_task_step(self, task):
        now = self._look()
        self.most, self._before = max(self.most, self._before - now), now

    def __enter__(self):
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_):
        trio.lowlevel.remove_instrument(self)


async def open_all(client):
    for number in range(COUNT):
        await client.produce(producer_id=number)
        await client.subscribe(number, subscription=f"s{number}")


def living(broker):
    """Return a function that counts the present dispatchers that are not freed yet."""
    (partition,) = broker.topics.get(NAME).partitions
    dispatchers = [broker.dispatchers.find(partition, b"s%d" % number) for number in range(COUNT)]
    references = [weakref.ref(dispatcher) for dispatcher in dispatchers]
    return lambda: sum(reference() is not None for reference in references)


@pytest.mark.slow
async def test_hundreds_of_producers_and_consumers_all_leave(broker, open_client):
    async with talking(open_client) as client:
        await open_all(client)
    topic = broker.topics.get(NAME)
    assert topic.name.full in TOPIC
    await until(lambda: not topic.layout_users and not len(broker.dispatchers))


@pytest.mark.slow
async def test_closed_consumers_are_freed_in_pieces(broker, open_client):
    """The last holder of ten thousand consumers would free them and their deliveries in a single
    turn.
    """
    async with talking(open_client) as client:
        await open_all(client)
        left = living(broker)
        assert left() == COUNT
        with Falling(left) as freed:
            await client.stream.aclose()
            await until(lambda: not left())
        assert 0 < freed.most <= LEAVING_TOGETHER


@pytest.mark.slow
async def test_consumers_of_a_deleted_topic_are_freed_in_pieces(broker, open_client):
    async with talking(open_client) as client:
        await open_all(client)
        left = living(broker)
        with Falling(left) as freed:
            await broker.topics.delete(NAME)
            await until(lambda: not left())
        assert 0 < freed.most <= STEPS_TOGETHER


@pytest.mark.slow
async def test_producers_and_consumers_without_permission_are_closed_in_pieces(broker, open_client):
    async with talking(open_client) as client:
        await open_all(client)
        topic = broker.topics.get(NAME)
        assert topic.layout_users == 2 * COUNT
        broker.access = Access(Nothing())
        with Falling(lambda: topic.layout_users) as closed:
            for connection in tuple(broker.connections):
                connection.access_changed()
            await until(lambda: not topic.layout_users)
        assert 0 < closed.most <= STEPS_TOGETHER
        kinds = [Type.CLOSE_PRODUCER] * COUNT + [Type.CLOSE_CONSUMER] * COUNT
        for kind in kinds:
            await client.next(kind)


@pytest.mark.slow
async def test_all_consumers_continue_once_the_client_reads(broker, open_client):
    async with talking(open_client) as client:
        await client.produce()
        await client.put(entry(bytes(100_000)))
        count = WOKEN_TOGETHER + 50  # More than a connection's share of output, and than a piece.
        for number in range(count):
            await client.subscribe(number, subscription=f"s{number}", **EARLIEST)
        for number in range(count):
            await client.flow(1, number)
        await trio.testing.wait_all_tasks_blocked()
        receivers = {(await client.next(Type.MESSAGE))[0].consumer_id for _ in range(count)}
        assert receivers == set(range(count))
