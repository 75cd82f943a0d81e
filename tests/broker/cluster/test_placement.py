"""A topic of another broker is refused before any change."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.cluster.placement import (
    RETRY_S,
    ClusterPlacement,
    Owner,
    Placement,
    Tries,
)
from braidlog.broker.errors import NotOwner
from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import MetadataParts

ORDERS = TopicName("public", "default", "orders")


def elsewhere():
    """Return a placement in which broker 2 owns every topic."""
    placement = ClusterPlacement(1, lambda name: 0, lambda shard: True)
    placement.show({0: Owner(2, {"kafka": ("other", 9092)})}, [])
    return placement


def test_a_single_broker_owns_every_topic():
    placement = Placement()
    assert placement.is_here(ORDERS)
    placement.check(ORDERS)


async def test_partitions_of_other_brokers_are_not_returned():
    house = MetadataParts(placement=elsewhere())
    await house.topics.create(ORDERS, 1)
    assert house.topics.find(ORDERS) is not None
    with pytest.raises(NotOwner, match="broker 2") as raised:
        house.topics.partition(ORDERS, 0)
    assert raised.value.node_id == 2
    with pytest.raises(NotOwner):
        house.topics.pulsar_partition(ORDERS, 0)


async def test_news_of_owners_wake_a_request_that_waits_for_an_owner(autojump_clock):
    placement = elsewhere()
    placement.show({}, [])
    tries = Tries(placement, 10.0)
    with pytest.raises(NotOwner) as raised:
        placement.check(ORDERS)
    async with trio.open_nursery() as nursery:

        async def wait():
            assert await tries.again(raised.value)
            placement.check(ORDERS)
            done.append(trio.current_time())

        done, begun = [], trio.current_time()
        nursery.start_soon(wait)
        await trio.sleep(7.0)
        placement.show({}, [])  # No news.
        await wait_all_tasks_blocked()
        assert not done
        placement.hold(0)
    assert done == [begun + 7.0]


async def test_news_that_came_during_a_try_are_not_missed(autojump_clock):
    placement = elsewhere()
    placement.show({}, [])
    tries, begun = Tries(placement, 10.0), trio.current_time()
    with pytest.raises(NotOwner) as raised:
        placement.check(ORDERS)
    placement.hold(0)
    assert await tries.again(raised.value)
    assert trio.current_time() == begun


async def test_an_owner_that_refused_is_asked_again_after_a_pause(autojump_clock):
    tries, begun = Tries(elsewhere(), 10.0), trio.current_time()
    assert await tries.again(NotOwner("broker 2 has no such shard", 2))
    assert trio.current_time() == begun + RETRY_S


async def test_a_request_waits_for_an_owner_no_longer_than_its_time(autojump_clock):
    placement = elsewhere()
    placement.show({}, [])
    tries, begun = Tries(placement, 10.0), trio.current_time()
    assert await tries.again(NotOwner("no broker owns it", is_unowned=True))
    assert trio.current_time() == begun + 10.0
    assert not await tries.again(NotOwner("no broker owns it", is_unowned=True))


def test_the_epoch_of_a_topic_rises_with_each_owner():
    placement = elsewhere()
    assert (Placement().epoch(ORDERS), placement.epoch(ORDERS)) == (0, 0)
    for shown, known in ((3, 3), (5, 5), (4, 5)):
        placement.show({}, [], {0: shown, 1: 9})
        assert placement.epoch(ORDERS) == known
    placement.hold(0, 6)
    placement.show({}, [], {0: 5, 1: 9})  # A view from before this broker took the shard.
    placement.let_go(0)
    assert placement.epoch(ORDERS) == 6
