"""A topic of another broker is refused before any change."""

import pytest

from braidlog.broker.cluster.placement import ClusterPlacement, Owner, Placement
from braidlog.broker.errors import NotOwner
from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import House

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
    house = House(placement=elsewhere())
    await house.topics.create(ORDERS, 1)
    assert house.topics.find(ORDERS) is not None
    with pytest.raises(NotOwner, match="broker 2") as raised:
        house.topics.partition(ORDERS, 0)
    assert raised.value.node_id == 2
    with pytest.raises(NotOwner):
        house.topics.pulsar_partition(ORDERS, 0)
