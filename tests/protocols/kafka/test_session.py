"""Connections of the Kafka listener: their endings."""

from dataclasses import dataclass

import pytest

from braidlog.broker.broker import Broker
from braidlog.broker.runtime.endings import EndConnection
from braidlog.protocols.kafka.adapter import ADAPTER
from braidlog.protocols.kafka.options import KafkaOptions
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, message_set, produce
from tests.protocols.kafka.talk import (
    FOO,
    OpenClient,
    second_client,
)


@dataclass
class FakeConnection:
    """The connection's interface for a session without output."""

    heard_at: float
    advertised: tuple[str, int] = ("127.0.0.1", 9092)
    outbox: None = None


async def test_invalid_bytes_close_at_once(broker: Broker, open_client: OpenClient) -> None:
    for data in (bytes(4), b"\x00\x00\x00\x0d\x7f\xff\x00\x00", b"\x00\x00\x00\x0a" + bytes(10)):
        client = await second_client(open_client)
        await client.stream.send_all(data)
        assert await client.frame() is None


async def test_answers_before_a_bad_request_are_still_sent(client: RawKafka) -> None:
    await client.send(produce(FOO, {0: message_set(b"a")}))
    await client.stream.send_all(bytes.fromhex("0000000d 7fff 0000 00000001 0003636964"))
    assert await client.frame() is not None
    assert await client.frame() is None


async def test_an_idle_connection_is_closed_after_the_timeout(
    broker: Broker, open_client: OpenClient
) -> None:
    connection = FakeConnection(heard_at=100.0)
    session = ADAPTER.open_session(broker, connection, KafkaOptions(idle_timeout_s=60))
    assert session.on_deadline(100.0) == 160.0
    connection.heard_at = 150.0
    assert session.on_deadline(160.0) == 210.0
    with pytest.raises(EndConnection, match="idle"):
        session.on_deadline(210.0)


async def test_clients_receive_the_advertised_address(
    broker: Broker, open_client: OpenClient
) -> None:
    first = await second_client(open_client)
    listener = broker.listeners["kafka"]
    listener.advertised = ("kafka.example.org", 19092)
    client = await second_client(open_client)
    reply = await client.call(m.MetadataRequest([]))
    assert isinstance(reply, m.MetadataReply)
    assert reply.brokers == [m.BrokerAddress(1, b"kafka.example.org", 19092)]
    coordinator = await client.call(m.ConsumerMetadataRequest(b"g"))
    assert coordinator == m.ConsumerMetadataReply(0, reply.brokers[0])
    await first.stream.aclose()


async def test_listener_serves_its_own_namespace(broker: Broker, open_client: OpenClient) -> None:
    await broker.namespaces.create("public", "sales")
    client = RawKafka(await open_client("kafka", namespace="public/sales"))
    await client.call(m.MetadataRequest([b"orders"]))
    assert broker.topics.find(TopicName("public", "sales", "orders")) is not None
    assert broker.topics.find(TopicName("public", "default", "orders")) is None


async def test_requests_and_refusals_are_counted(broker: Broker, client: RawKafka) -> None:
    await client.call(m.ConsumerMetadataRequest(b"g"))
    await client.call(produce(b"nowhere", {0: message_set(b"a")}))
    number = broker.metrics.number
    assert number("braidlog_requests", "kafka", "consumer_metadata").value == 1
    assert number("braidlog_errors", "kafka", "3").value == 1
