"""Metadata over the wire: a single broker leads everything, and requested topics are created."""

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.metadata import TOPICS_MADE_MAX
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, fetch, message_set, produce
from tests.protocols.kafka.talk import (
    FOO,
    FOO_NAME,
    OpenClient,
    second_client,
)


async def test_brokers_are_listed_without_topics(broker: Broker, open_client: OpenClient) -> None:
    client = await second_client(open_client)
    reply = await client.call(m.MetadataRequest([]))
    assert isinstance(reply, m.MetadataReply)
    (address,) = reply.brokers
    assert (address.node_id, address.host) == (1, b"127.0.0.1")
    assert address.port == client.stream.socket.getpeername()[1]
    assert reply.topics == []


async def test_an_unknown_topic_is_created_and_answered_at_once(client: RawKafka) -> None:
    reply = await client.call(m.MetadataRequest([b"new", b"new"]))
    assert isinstance(reply, m.MetadataReply)
    partition = m.PartitionMetadata(0, 0, 1, [1], [1])
    assert reply.topics == [m.TopicMetadata(0, b"new", [partition])]


async def test_only_the_illegal_name_is_refused(client: RawKafka) -> None:
    names = [FOO, b"bad!", None, b"", b"x-partition-1", b"y" * 250]
    reply = await client.call(m.MetadataRequest(names))
    assert isinstance(reply, m.MetadataReply)
    assert [(topic.name, topic.error) for topic in reply.topics] == [
        (FOO, 0),
        *((name, 17) for name in names[1:]),
    ]


async def test_the_topic_of_kafkas_positions_is_not_created(
    broker: Broker, client: RawKafka
) -> None:
    reply = await client.call(m.MetadataRequest([FOO, b"__consumer_offsets"]))
    assert isinstance(reply, m.MetadataReply)
    assert [(topic.name, topic.error) for topic in reply.topics] == [
        (FOO, 0),
        (b"__consumer_offsets", 3),
    ]
    assert len(broker.topics) == 1


async def test_topics_that_kafka_cannot_name_or_of_other_namespaces_are_not_listed(
    broker: Broker, client: RawKafka
) -> None:
    await broker.namespaces.create("public", "other")
    await broker.topics.create(TopicName("public", "default", "ünlawful"), 1)
    await broker.topics.create(TopicName("public", "other", "elsewhere"), 1)
    await broker.topics.create(TopicName("public", "default", "bar"), 3)
    reply = await client.call(m.MetadataRequest([]))
    assert isinstance(reply, m.MetadataReply)
    assert {topic.name: len(topic.partitions) for topic in reply.topics} == {b"bar": 3, FOO: 1}


@pytest.mark.parametrize("call", ["produce", "fetch", "offsets"])
async def test_only_metadata_creates_a_topic(broker: Broker, client: RawKafka, call: str) -> None:
    bodies: dict[str, m.RequestBody] = {
        "produce": produce(b"new", {0: message_set(b"a")}),
        "fetch": fetch(b"new", {0: (0, 100)}),
        "offsets": m.OffsetsRequest(-1, {b"new": {0: m.OffsetsTarget(-1, 1)}}),
    }
    reply = await client.call(bodies[call])
    assert isinstance(reply, m.ProduceReply | m.FetchReply | m.OffsetsReply)
    assert reply.topics[b"new"][0].error == 3
    assert broker.topics.find(TopicName("public", "default", "new")) is None


@pytest.mark.parametrize("auto_create", [True, False])
async def test_a_listener_may_create_no_topics(
    broker: Broker, open_client: OpenClient, auto_create: bool
) -> None:
    client = RawKafka(await open_client("kafka", auto_create=auto_create))
    reply = await client.call(m.MetadataRequest([b"new"]))
    assert isinstance(reply, m.MetadataReply)
    assert [topic.error for topic in reply.topics] == [0 if auto_create else 3]
    assert len(broker.topics) == int(auto_create)


async def test_an_answered_topic_is_on_disk(broker: Broker, client: RawKafka) -> None:
    topic = broker.topics.get(FOO_NAME)
    assert topic.ticket <= broker.durability.durable_ticket


async def test_topics_created_by_a_request_have_a_limit(broker: Broker, client: RawKafka) -> None:
    names = [b"t%d" % number for number in range(TOPICS_MADE_MAX + 5)]
    for created in (TOPICS_MADE_MAX, len(names)):
        reply = await client.call(m.MetadataRequest(names))
        assert isinstance(reply, m.MetadataReply)
        assert [topic.error for topic in reply.topics] == [0] * created + [5] * (
            len(names) - created
        )


@pytest.mark.slow
async def test_ten_thousand_partitions_are_described_in_pieces(
    broker: Broker, client: RawKafka
) -> None:
    await broker.topics.create(TopicName("public", "default", "wide"), 5000)
    reply = await client.call(m.MetadataRequest([]))
    assert isinstance(reply, m.MetadataReply)
    assert sum(len(topic.partitions) for topic in reply.topics) == 5001
    names = [b"no such topic %d" % number for number in range(10_000)]
    reply = await client.call(m.MetadataRequest(names))
    assert isinstance(reply, m.MetadataReply)
    assert [topic.error for topic in reply.topics] == [17] * 10_000
