"""Admin calls through the wire."""

import pytest

from broker.broker import Broker
from protocols.kafka import admin_messages as a
from protocols.kafka.errors import Code
from storage.metadata.names import TopicName
from tests.protocols.kafka.frames import Client
from tests.protocols.kafka.talk import FOO, FOO_NAME

BAR = TopicName("public", "default", "bar")


async def create(client: Client, *topics: a.NewTopic, validate_only: bool = False) -> list[int]:
    request = a.CreateTopicsRequest(topics, validate_only)
    return [one.error for one in (await client.call_with_table(request, 4)).topics]


def configs(**given: str) -> list[a.TopicConfig]:
    return [
        a.TopicConfig(name.replace("_", ".").encode(), value.encode())
        for name, value in given.items()
    ]


async def test_topics_are_made_with_partitions_and_settings(broker: Broker, client: Client) -> None:
    wanted = a.NewTopic(b"bar", 3, 1, (), configs(retention_ms="60000", cleanup_policy="delete"))
    assert await create(client, wanted, validate_only=True) == [Code.NONE]
    assert broker.topics.find(BAR) is None
    assert await create(client, wanted) == [Code.NONE]
    topic = broker.topics.get(BAR)
    assert len(topic.partitions) == 3
    assert topic.meta.settings == {"retention_ms": 60000}
    assert await create(client, wanted) == [Code.TOPIC_ALREADY_EXISTS]
    assert await create(client, wanted, validate_only=True) == [Code.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (a.NewTopic(b"bar", 0, 1), Code.INVALID_PARTITIONS),
        (a.NewTopic(b"bar", 1, 3), Code.INVALID_REPLICATION_FACTOR),
        (a.NewTopic(b"b r", 1, 1), Code.INVALID_TOPIC),
        (a.NewTopic(b"bar", 1, 1, (), configs(cleanup_policy="compact")), Code.INVALID_CONFIG),
        (a.NewTopic(b"bar", 1, 1, (), configs(retention_ms="soon")), Code.INVALID_CONFIG),
        (a.NewTopic(b"bar", 1, 1, (), configs(no_such="1")), Code.INVALID_CONFIG),
        (a.NewTopic(b"bar", -1, -1, (), configs(min_insync_replicas="1")), Code.NONE),
    ],
)
async def test_what_is_asked_of_a_new_topic(client: Client, topic: a.NewTopic, code: Code) -> None:
    assert await create(client, topic) == [code]


async def test_topics_grow_and_are_deleted(broker: Broker, client: Client) -> None:
    async def grow(name: bytes, count: int) -> int:
        request = a.CreatePartitionsRequest([a.GrowingTopic(name, count)])
        return (await client.call_with_table(request, 1)).topics[0].error

    assert await grow(FOO, 4) == Code.NONE
    assert len(broker.topics.get(FOO_NAME).partitions) == 4
    assert await grow(FOO, 4) == Code.INVALID_PARTITIONS
    assert await grow(b"none", 4) == Code.UNKNOWN_TOPIC_OR_PARTITION
    reply = await client.call_with_table(a.DeleteTopicsRequest([FOO, b"none"]), 3)
    assert [one.error for one in reply.topics] == [0, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.topics.find(FOO_NAME) is None


@pytest.mark.parametrize("version", range(4))
async def test_settings_are_told(client: Client, version: int) -> None:
    topic = a.NewTopic(b"bar", 1, 1, (), configs(retention_ms="60000"))
    await create(client, topic)
    resources = [a.ConfigResource(2, b"bar"), a.ConfigResource(2, b"none", [])]
    resources.append(a.ConfigResource(2, b"bar", [b"retention.bytes"]))
    resources.append(a.ConfigResource(4, b"1"))
    request = a.DescribeConfigsRequest(resources)
    found = (await client.call_with_table(request, version)).resources
    assert [one.error for one in found] == [0, Code.UNKNOWN_TOPIC_OR_PARTITION, 0, 0]
    told = {one.name: one.value for one in found[0].entries}
    assert told[b"retention.ms"] == b"60000"
    assert told[b"cleanup.policy"] == b"delete"
    assert [one.name for one in found[2].entries] == [b"retention.bytes"]
