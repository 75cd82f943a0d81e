"""Clients whose topic has moved to another broker: the notification depends on the client."""

import pytest

from braidlog.broker.cluster.alone import Alone
from braidlog.broker.cluster.placement import NOBODY, Owner, Placement, Tries, elsewhere
from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.protocols.pulsar.talk import NAME, TOPIC, talking

FIELDS = {"topic": TOPIC, "subscription": "s", "subType": 0, "consumer_id": 7}


class OwnedByOthers(Placement):
    """A placement in which another broker owns everything."""

    is_alone = False

    def check(self, name):
        raise elsewhere(str(name), Owner(2))


class LateOwner(Placement):
    """A placement without owners at the first queries, and then with the given owner."""

    def __init__(self, owner):
        super().__init__()
        self.looks = 3
        self.next_owner = owner

    def owner(self, name):
        self.looks -= 1
        self.wake()  # The next look finds another owner.
        return NOBODY if self.looks >= 0 else self.next_owner


class Several(Alone):
    """Other brokers exist."""

    is_alone = False

    def __init__(self, broker):
        self.broker = broker

    def tries(self, seconds):
        return Tries(self.broker.placement, seconds)


@pytest.fixture
async def moved(broker):
    broker.catalogue.placement = OwnedByOthers()
    return await broker.topics.create(NAME, 1)


@pytest.mark.parametrize("version", ["Pulsar-CPP-v4.2.0", "Pulsar-Node-v1.15.0"])
async def test_a_client_that_stays_connected_is_asked_to_look_up_again(moved, open_client, version):
    async with talking(open_client, client=version) as client:
        code, _ = await client.refused(Type.SUBSCRIBE, **FIELDS)
        assert code == ServerError.ServiceNotReady
        assert (await client.next(Type.CLOSE_CONSUMER)).consumer_id == 7
        await client.silent()


@pytest.mark.parametrize("version", ["Pulsar-Java-v4.2.4", "Pulsar-Go-0.15.0"])
async def test_a_client_that_looks_up_again_itself_is_not_notified(moved, open_client, version):
    async with talking(open_client, client=version) as client:
        code, _ = await client.refused(Type.SUBSCRIBE, **FIELDS)
        assert code == ServerError.ServiceNotReady
        await client.silent()


async def test_a_client_during_a_move_waits_for_the_owner(broker, open_client, monkeypatch):
    broker.peers = Several(broker)
    await broker.topics.create(NAME, 1)
    async with talking(open_client) as client:
        broker.placement = LateOwner(Owner(2, {"pulsar": ("other", 6650)}))
        lookup = await client.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=TOPIC)
        assert lookup.brokerServiceUrl == "pulsar://other:6650"
        broker.placement = LateOwner(None)
        await client.produce()
        broker.placement = LateOwner(None)
        await client.subscribe()


@pytest.mark.pulsar_limits(find_s=0.0)
async def test_a_wait_without_owner_ends_with_a_retry_error(broker, with_limits, open_client):
    broker.peers = Several(broker)
    async with talking(open_client) as client:
        broker.placement = LateOwner(None)
        broker.placement.looks = 1000
        lookup = await client.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=TOPIC)
        assert lookup.error == ServerError.ServiceNotReady
