"""Topics by their ids: Metadata from version 10 on, Fetch and Produce from 13 on."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.topic_ids import NO_ID, find_topic, id_of
from braidlog.protocols.kafka.wire.metadata import MetadataRequest, MetadataRequestTopic
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import Nothing
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME
from tests.protocols.kafka.test_later_versions import batch_of, records_of

UNKNOWN_ID, UNKNOWN_EPOCH = 100, 75
Described = tuple[int, bytes | None, bytes]


async def ids(
    client: RawKafka, *topics: MetadataRequestTopic, version: int = 13
) -> list[Described]:
    """Return the error, name and id of each topic of a Metadata answer."""
    body = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    reply = await client.call_whole(body, version)
    return [(topic.error_code, topic.name, topic.topic_id) for topic in reply.topics]


async def test_an_id_names_a_single_life_of_a_topic(broker: Broker, client: RawKafka) -> None:
    topic_id = id_of(broker.topics.get(FOO_NAME))
    assert len(topic_id) == 16 and topic_id[0] < 0x80
    topic = find_topic(broker.topics, topic_id)
    assert topic is not None and topic.name == FOO_NAME
    assert find_topic(broker.topics, bytes([topic_id[0] ^ 1]) + topic_id[1:]) is None
    assert find_topic(broker.topics, NO_ID) is None


async def test_a_topic_made_again_has_another_id(broker: Broker, client: RawKafka) -> None:
    ((error, name, before),) = await ids(client, MetadataRequestTopic(name=FOO))
    assert (error, name) == (0, FOO) and before != NO_ID
    await broker.topics.delete(FOO_NAME)
    assert await ids(client, MetadataRequestTopic(name=None, topic_id=before)) == [
        (UNKNOWN_ID, None, before)
    ]
    await broker.topics.create(FOO_NAME, 1)
    ((_, _, after),) = await ids(client, MetadataRequestTopic(name=FOO))
    assert after != before
    assert await ids(client, MetadataRequestTopic(name=None, topic_id=after)) == [(0, FOO, after)]


async def test_a_topic_of_another_namespace_is_unknown(broker: Broker, client: RawKafka) -> None:
    await broker.namespaces.create("public", "other")
    topic = await broker.topics.create(TopicName("public", "other", "foo"), 1)
    topic_id = id_of(topic)
    wanted = MetadataRequestTopic(name=None, topic_id=topic_id)
    assert await ids(client, wanted, version=12) == [(UNKNOWN_ID, None, topic_id)]


@pytest.mark.parametrize("version", [13, 15, 18])
async def test_records_are_produced_and_fetched_by_id(
    broker: Broker, client: RawKafka, version: int
) -> None:
    topic_id = id_of(broker.topics.get(FOO_NAME))
    other_id = b"?" * 16
    sets = {name: {0: memoryview(batch_of(b"a"))} for name in (topic_id, other_id)}
    produced = await client.call_with_table(m.ProduceRequest(-1, 1000, sets), 13)
    assert [produced.topics[name][0].error for name in sets] == [0, UNKNOWN_ID]
    targets = {name: {0: m.FetchTarget(0, 1000)} for name in sets}
    fetched = await client.call_with_table(m.FetchRequest(-1, 0, 1, targets), version)
    assert [fetched.topics[name][0].error for name in sets] == [0, UNKNOWN_ID]
    assert records_of(fetched.topics[topic_id][0]) == [(0, b"a", 5000)]


async def test_ids_are_checked_as_names_are(broker: Broker, client: RawKafka) -> None:
    topic_id = id_of(broker.topics.get(FOO_NAME))
    broker.access = Access(Nothing(Action.DESCRIBE))
    sets = {topic_id: {0: memoryview(batch_of(b"a"))}}
    produced = await client.call_with_table(m.ProduceRequest(-1, 1000, sets), 13)
    assert produced.topics[topic_id][0].error == 29
    fetched = await client.call_with_table(
        m.FetchRequest(-1, 0, 1, {topic_id: {0: m.FetchTarget(0, 1000)}}), 17
    )
    assert fetched.topics[topic_id][0].error == 29


async def test_a_fetch_that_knows_a_later_leader_is_refused(client: RawKafka) -> None:
    for epoch, code in ((-1, 0), (0, 0), (1, UNKNOWN_EPOCH)):
        target = m.FetchTarget(0, 1000, epoch)
        fetched = await client.call_with_table(m.FetchRequest(-1, 0, 1, {FOO: {0: target}}), 12)
        assert fetched.topics[FOO][0].error == code


async def test_a_client_is_told_what_it_may_do(broker: Broker, client: RawKafka) -> None:
    body = MetadataRequest(
        topics=[MetadataRequestTopic(name=FOO)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    reply = await client.call_whole(body, 9)
    allowed = [3, 4, 5, 6, 7, 8, 10, 11]  # As Kafka without an authorizer.
    assert reply.topics[0].topic_authorized_operations == sum(1 << bit for bit in allowed)
    broker.access = Access(Nothing(Action.DESCRIBE))
    reply = await client.call_whole(body, 9)
    assert reply.topics[0].topic_authorized_operations == (1 << 8) | (1 << 10)
    assert reply.cluster_authorized_operations == (1 << 8) | (1 << 10)
    body.include_topic_authorized_operations = False
    reply = await client.call_whole(body, 9)
    assert reply.topics[0].topic_authorized_operations == -(2**31)
