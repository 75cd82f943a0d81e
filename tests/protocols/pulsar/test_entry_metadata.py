"""Broker metadata of an entry, for clients that accept it, if enabled."""

import struct

import pytest

from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import BrokerEntryMetadata
from tests.protocols.pulsar.talk import EARLIEST, RawPulsar, entry

FLAG = {"supports_broker_entry_metadata": True}


@pytest.fixture
def connect(open_client):
    """Return `connect`: `await connect(...)` returns a client of a listener with that setting."""

    async def connect(*, enabled=True, version=18, flags=FLAG):
        client = RawPulsar(await open_client("pulsar", broker_entry_metadata=enabled))
        await client.send(
            Type.CONNECT, client_version="c", protocol_version=version, feature_flags=flags
        )
        await client.next(Type.CONNECTED)
        return client

    return connect


async def test_time_and_last_offset_precede_each_entry(broker, connect):
    consumer = client = await connect()
    bodies = [entry(b"a"), entry(b"b", count=3)]
    await client.produce()
    before_ms = broker.now_us() // 1000
    await client.put(*bodies)
    await consumer.subscribe(permits=10, **EARLIEST)
    for body, last_offset in zip(bodies, (0, 3), strict=True):
        _, received = await consumer.next(Type.MESSAGE)
        assert received[:2] == b"\x0e\x02"
        (size,) = struct.unpack_from(">I", received, 2)
        metadata = BrokerEntryMetadata.FromString(bytes(received[6 : 6 + size]))
        assert metadata.index == last_offset
        assert before_ms <= metadata.broker_timestamp <= broker.now_us() // 1000
        assert received[6 + size :] == body
    await consumer.stream.aclose()


@pytest.mark.parametrize(
    "settings", [{"enabled": False}, {"version": 17}, {"flags": {"supports_auth_refresh": True}}]
)
async def test_other_clients_receive_no_broker_metadata(connect, settings):
    consumer = client = await connect(**settings)
    await client.produce()
    await client.put(entry(b"a"))
    await consumer.subscribe(permits=10, **EARLIEST)
    _, received = await consumer.next(Type.MESSAGE)
    assert received == entry(b"a")
    await consumer.stream.aclose()


async def test_a_non_persistent_topic_has_no_broker_metadata(connect):
    non_persistent = "non-persistent://public/default/t"
    consumer = client = await connect()
    await consumer.subscribe(topic=non_persistent, permits=10)
    await consumer.silent()
    await client.produce(non_persistent)
    await client.put(entry(b"a"))
    _, received = await consumer.next(Type.MESSAGE)
    assert received == entry(b"a")
    await client.stream.aclose()
