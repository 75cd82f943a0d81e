"""Admin requests that name a thing twice, choose replicas, or name topics by their ids. The codes
are those of Kafka 4.3.1.
"""

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.protocols.kafka.wire.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from braidlog.protocols.kafka.wire.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from braidlog.protocols.kafka.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from braidlog.protocols.kafka.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME


def new_topic(name: bytes, partitions: int = 1, *assigned: tuple[int, list[int]]) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in assigned
    ]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1, assignments=assignments
    )


async def test_a_topic_named_twice_is_not_made(broker: Broker, client: RawKafka) -> None:
    request = CreateTopicsRequest(topics=[new_topic(b"a"), new_topic(b"b"), new_topic(b"a", 2)])
    reply = await client.call_whole(request, 7)
    assert {topic.name: topic.error_code for topic in reply.topics} == {b"a": 42, b"b": 0}
    assert len(reply.topics) == 2
    assert broker.topics.find(TopicName("public", "default", "a")) is None


async def test_a_made_topic_is_described(broker: Broker, client: RawKafka) -> None:
    topic = new_topic(b"bar", 3)
    topic.configs = [CreatableTopicConfig(name=b"retention.ms", value=b"1000")]
    (created,) = (await client.call_whole(CreateTopicsRequest(topics=[topic]), 7)).topics
    assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 3, 1)
    assert created.topic_id == id_of(broker.topics.get(TopicName("public", "default", "bar")))
    configs = {config.name: (config.value, config.config_source) for config in created.configs}
    assert configs[b"retention.ms"] == (b"1000", 1)
    assert configs[b"cleanup.policy"] == (b"delete", 5)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new_topic(b"x", -1, (0, [1])), 0),
        (new_topic(b"x", -1, (0, [7])), 39),
        (new_topic(b"x", -1, (0, [])), 39),
        (new_topic(b"x", -1, (1, [1])), 39),
        (new_topic(b"x", -1, (0, [1]), (0, [1])), 39),
        (new_topic(b"x", 1, (0, [1])), 42),
    ],
)
async def test_chosen_replicas_are_checked(
    client: RawKafka, topic: CreatableTopic, code: int
) -> None:
    (created,) = (await client.call_whole(CreateTopicsRequest(topics=[topic]), 5)).topics
    assert created.error_code == code


async def test_partitions_for_a_topic_named_twice_are_not_made(
    broker: Broker, client: RawKafka
) -> None:
    twice = [CreatePartitionsTopic(name=FOO, count=count, assignments=None) for count in (2, 3)]
    reply = await client.call_whole(CreatePartitionsRequest(topics=twice), 3)
    assert [(topic.name, topic.error_code) for topic in reply.results] == [(FOO, 42)]
    assert len(broker.topics.get(FOO_NAME).partitions) == 1
    for brokers, code in (([7], 39), ([1], 0)):
        chosen = CreatePartitionsTopic(
            name=FOO, count=2, assignments=[CreatePartitionsAssignment(broker_ids=brokers)]
        )
        reply = await client.call_whole(CreatePartitionsRequest(topics=[chosen]), 3)
        assert reply.results[0].error_code == code


async def test_a_topic_named_twice_is_not_deleted(broker: Broker, client: RawKafka) -> None:
    request = DeleteTopicsRequest(topic_names=[FOO, FOO, b"none"])
    reply = await client.call_whole(request, 5)
    codes = {topic.name: topic.error_code for topic in reply.responses}
    assert codes == {FOO: 42, b"none": 3}
    topic_id = id_of(broker.topics.get(FOO_NAME))
    states = [
        DeleteTopicState(name=FOO, topic_id=topic_id),
        DeleteTopicState(name=None, topic_id=b"?" * 16),
        DeleteTopicState(name=None),
        DeleteTopicState(name=None, topic_id=topic_id),
    ]
    reply = await client.call_whole(DeleteTopicsRequest(topics=states), 6)
    assert [topic.error_code for topic in reply.responses] == [42, 100, 42, 0]
    assert (reply.responses[3].name, reply.responses[3].topic_id) == (FOO, topic_id)
    assert broker.topics.find(FOO_NAME) is None


async def test_settings_given_twice_change_nothing(broker: Broker, client: RawKafka) -> None:
    config = AlterableConfig(name=b"retention.ms", value=b"5")
    twice = AlterConfigsResource(resource_type=2, resource_name=FOO, configs=[config, config])
    once = AlterConfigsResource(resource_type=2, resource_name=FOO, configs=[config])
    for resources in ([twice], [once, once]):
        reply = await client.call_whole(AlterConfigsRequest(resources=resources), 2)
        assert {response.error_code for response in reply.responses} == {42}
    assert not broker.topics.get(FOO_NAME).meta.settings
