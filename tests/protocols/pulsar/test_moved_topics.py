"""Clients whose topic another broker has: what they are told depends on what they make of it."""

import pytest

from broker.cluster.placement import Owner, Placement, elsewhere
from protocols.pulsar.machine import Type
from storage.codecs.pb.PulsarApi_pb2 import ServerError
from tests.protocols.pulsar.talk import NAME, TOPIC, talking

FIELDS = {"topic": TOPIC, "subscription": "s", "subType": 0, "consumer_id": 7}


class Elsewhere(Placement):
    """Another broker has everything."""

    def check(self, name):
        raise elsewhere(str(name), Owner(2))


@pytest.fixture
async def moved(broker):
    topic = await broker.topics.create(NAME, 1)
    topic.placement = Elsewhere()
    return topic


@pytest.mark.parametrize("version", ["Pulsar-CPP-v4.2.0", "Pulsar-Node-v1.15.0"])
async def test_a_client_that_takes_itself_for_connected_is_told_to_look_again(
    moved, open_client, version
):
    async with talking(open_client, client=version) as client:
        code, _ = await client.refused(Type.SUBSCRIBE, **FIELDS)
        assert code == ServerError.ServiceNotReady
        assert (await client.next(Type.CLOSE_CONSUMER)).consumer_id == 7
        await client.silent()


@pytest.mark.parametrize("version", ["Pulsar-Java-v4.2.4", "Pulsar-Go-0.15.0"])
async def test_a_client_that_looks_again_by_itself_is_told_no_more(moved, open_client, version):
    async with talking(open_client, client=version) as client:
        code, _ = await client.refused(Type.SUBSCRIBE, **FIELDS)
        assert code == ServerError.ServiceNotReady
        await client.silent()
