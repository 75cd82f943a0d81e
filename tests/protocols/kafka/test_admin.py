"""Admin calls through the wire."""

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.metadata import TOPICS_MADE_MAX
from braidlog.protocols.kafka.wire import alter_configs, incremental_alter_configs
from braidlog.protocols.kafka.wire.alter_configs import AlterConfigsRequest
from braidlog.protocols.kafka.wire.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from braidlog.protocols.kafka.wire.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from braidlog.protocols.kafka.wire.delete_topics import DeleteTopicsRequest
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from braidlog.protocols.kafka.wire.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from braidlog.protocols.kafka.wire.incremental_alter_configs import IncrementalAlterConfigsRequest
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import Client, delete_records, message_set
from tests.protocols.kafka.talk import FOO, FOO_NAME, fetch_one, produce_one, values

BAR = TopicName("public", "default", "bar")


async def create(client: Client, *topics: CreatableTopic, validate_only: bool = False) -> list[int]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return [one.error_code for one in (await client.call_with_table(request, 4)).topics]


def configs(**given: str) -> list[CreatableTopicConfig]:
    return [
        CreatableTopicConfig(name=name.replace("_", ".").encode(), value=value.encode())
        for name, value in given.items()
    ]


async def test_topics_are_created_with_partitions_and_settings(
    broker: Broker, client: Client
) -> None:
    wanted = CreatableTopic(
        name=b"bar",
        num_partitions=3,
        replication_factor=1,
        assignments=(),
        configs=configs(retention_ms="60000", cleanup_policy="delete"),
    )
    assert await create(client, wanted, validate_only=True) == [Code.NONE]
    assert broker.topics.find(BAR) is None
    assert await create(client, wanted) == [Code.NONE]
    topic = broker.topics.get(BAR)
    assert len(topic.partitions) == 3
    assert topic.meta.settings == {"retention_ms": 60000, "cleanup_policy": "delete"}
    assert await create(client, wanted) == [Code.TOPIC_ALREADY_EXISTS]
    assert await create(client, wanted, validate_only=True) == [Code.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (
            CreatableTopic(name=b"bar", num_partitions=0, replication_factor=1),
            Code.INVALID_PARTITIONS,
        ),
        (
            CreatableTopic(name=b"bar", num_partitions=1, replication_factor=3),
            Code.INVALID_REPLICATION_FACTOR,
        ),
        (CreatableTopic(name=b"b r", num_partitions=1, replication_factor=1), Code.INVALID_TOPIC),
        (
            CreatableTopic(
                name=b"bar",
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=configs(cleanup_policy="compact"),
            ),
            Code.NONE,
        ),
        (
            CreatableTopic(
                name=b"bar",
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=configs(cleanup_policy="delete, compact"),
            ),
            Code.NONE,
        ),
        (
            CreatableTopic(
                name=b"bar",
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=configs(cleanup_policy="shred"),
            ),
            Code.INVALID_CONFIG,
        ),
        (
            CreatableTopic(
                name=b"bar",
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=configs(min_cleanable_dirty_ratio="1.5"),
            ),
            Code.INVALID_CONFIG,
        ),
        (
            CreatableTopic(
                name=b"bar",
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=configs(max_compaction_lag_ms="0"),
            ),
            Code.INVALID_CONFIG,
        ),
        (
            CreatableTopic(
                name=b"bar",
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=configs(retention_ms="soon"),
            ),
            Code.INVALID_CONFIG,
        ),
        (
            CreatableTopic(
                name=b"bar",
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=configs(no_such="1"),
            ),
            Code.INVALID_CONFIG,
        ),
        (
            CreatableTopic(
                name=b"bar",
                num_partitions=-1,
                replication_factor=-1,
                assignments=(),
                configs=configs(min_insync_replicas="1"),
            ),
            Code.NONE,
        ),
    ],
)
async def test_invalid_new_topics_are_refused(
    client: Client, topic: CreatableTopic, code: Code
) -> None:
    assert await create(client, topic) == [code]


async def test_topics_grow_and_are_deleted(broker: Broker, client: Client) -> None:
    async def grow(name: bytes, count: int) -> int:
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count)])
        return (await client.call_with_table(request, 1)).results[0].error_code

    assert await grow(FOO, 4) == Code.NONE
    assert len(broker.topics.get(FOO_NAME).partitions) == 4
    assert await grow(FOO, 4) == Code.INVALID_PARTITIONS
    assert await grow(b"none", 4) == Code.UNKNOWN_TOPIC_OR_PARTITION
    reply = await client.call_with_table(DeleteTopicsRequest(topic_names=[FOO, b"none"]), 3)
    assert [one.error_code for one in reply.responses] == [0, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.topics.find(FOO_NAME) is None


@pytest.mark.parametrize("version", range(4))
async def test_settings_are_described(client: Client, version: int) -> None:
    topic = CreatableTopic(
        name=b"bar",
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=configs(retention_ms="60000"),
    )
    await create(client, topic)
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=b"bar", configuration_keys=None),
        DescribeConfigsResource(resource_type=2, resource_name=b"none", configuration_keys=[]),
    ]
    resources.append(
        DescribeConfigsResource(
            resource_type=2, resource_name=b"bar", configuration_keys=[b"retention.bytes"]
        )
    )
    resources.append(DescribeConfigsResource(resource_type=4, resource_name=b"1"))
    request = DescribeConfigsRequest(resources=resources)
    found = (await client.call_with_table(request, version)).results
    assert [one.error_code for one in found] == [0, Code.UNKNOWN_TOPIC_OR_PARTITION, 0, 0]
    told = {one.name: one.value for one in found[0].configs}
    assert told[b"retention.ms"] == b"60000"
    assert told[b"cleanup.policy"] == b"delete"
    assert [one.name for one in found[2].configs] == [b"retention.bytes"]


Change = tuple[bytes, bytes, int]  # name, value, operation


def change(value: str, operation: int = 0, name: str = "retention.ms") -> Change:
    return name.encode(), value.encode(), operation


async def alter(client: Client, *changes: Change, **fields: object) -> int:
    about = {"kind": 2, "name": FOO, "validate_only": False, "whole": False} | fields
    module = alter_configs if about["whole"] else incremental_alter_configs
    configs = [module.AlterableConfig(name=name, value=value) for name, value, _ in changes]
    if not about["whole"]:
        for one, (_, _, operation) in zip(configs, changes, strict=True):
            one.config_operation = operation
    altered = module.AlterConfigsResource(
        resource_type=about["kind"], resource_name=about["name"], configs=configs
    )
    kind = AlterConfigsRequest if about["whole"] else IncrementalAlterConfigsRequest
    request = kind(resources=[altered], validate_only=about["validate_only"])
    (done,) = (await client.call_with_table(request, 1 if about["whole"] else 0)).responses
    assert bool(done.error_code) == bool(done.error_message)
    return done.error_code


async def test_settings_are_changed_individually(broker: Broker, client: Client) -> None:
    assert await alter(client, change("60000")) == Code.NONE
    assert await alter(client, change("-1", name="retention.bytes")) == Code.NONE
    settings = broker.topics.get(FOO_NAME).meta.settings
    assert settings == {"retention_ms": 60000, "retention_bytes": -1}
    assert await alter(client, change("5"), validate_only=True) == Code.NONE
    assert await alter(client, change("", operation=1)) == Code.NONE  # Reset.
    assert broker.topics.get(FOO_NAME).meta.settings == {"retention_bytes": -1}


async def test_settings_are_replaced_as_a_whole(broker: Broker, client: Client) -> None:
    await broker.topics.alter_settings(FOO_NAME, {"keep_unacknowledged": True, "segment_ms": 9000})
    assert await alter(client, change("60000"), whole=True) == Code.NONE
    settings = broker.topics.get(FOO_NAME).meta.settings
    assert settings == {"keep_unacknowledged": True, "retention_ms": 60000}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("changes", "fields", "code"),
    [
        ([change("soon")], {}, Code.INVALID_CONFIG),
        ([change("-7")], {}, Code.INVALID_CONFIG),
        ([change("-7")], {"validate_only": True}, Code.INVALID_CONFIG),
        ([change("1", name="no.such")], {}, Code.INVALID_CONFIG),
        ([], {"kind": 4, "name": b"1"}, Code.INVALID_REQUEST),
        ([], {"name": b"none"}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ([], {"name": b"n ne"}, Code.INVALID_TOPIC),
    ],
)
async def test_invalid_settings_are_refused(
    client: Client, changes: list[Change], fields: dict, code: Code, whole: bool
) -> None:
    assert await alter(client, *changes, whole=whole, **fields) == code


async def test_no_setting_is_a_list(client: Client) -> None:
    assert await alter(client, change("1", operation=2)) == Code.INVALID_CONFIG


async def delete_below(client: Client, offset: int, partition: int = 0) -> tuple[int, int]:
    (topic,) = (await client.call_with_table(delete_records(FOO, partition, offset), 1)).topics
    (done,) = topic.partitions
    assert (topic.name, done.partition_index) == (FOO, partition)
    return done.error_code, done.low_watermark


async def test_records_are_deleted_up_to_any_offset(broker: Broker, client: Client) -> None:
    await produce_one(client, message_set(b"a", b"b", b"c"))
    await produce_one(client, message_set(b"d"))
    assert await delete_below(client, 2) == (0, 2)
    assert await delete_below(client, 1) == (0, 2)
    assert (await fetch_one(client, 1)).error == Code.OFFSET_OUT_OF_RANGE
    assert [value for at, value in values(await fetch_one(client, 2)) if at >= 2] == [b"c", b"d"]
    for offset in (-2, 5):
        assert await delete_below(client, offset) == (Code.OFFSET_OUT_OF_RANGE, -1)
    assert await delete_below(client, 0, 7) == (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete_below(client, -1) == (0, 4)
    assert await produce_one(client, message_set(b"e")) == m.Produced(0, 4)
    assert values(await fetch_one(client, 4)) == [(4, b"e")]
    partition = broker.topics.get(FOO_NAME).partitions[0]
    assert [base for base, _, _ in partition.segments()] == [4]


async def test_sizes_on_the_disk_are_described(broker: Broker, client: Client) -> None:
    await produce_one(client, message_set(b"a"))
    size = broker.topics.get(FOO_NAME).partitions[0].size_bytes
    for topics in (
        None,
        [
            DescribableLogDirTopic(topic=FOO, partitions=[0, 7]),
            DescribableLogDirTopic(topic=b"none", partitions=[0]),
        ],
    ):
        reply = await client.call_with_table(DescribeLogDirsRequest(topics=topics), 1)
        (found,) = reply.results
        assert (found.error_code, found.log_dir) == (0, broker.data_dir.encode())
        (topic,) = found.topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index) == (FOO, 0)
        assert partition.partition_size == size


async def test_list_settings_are_appended_and_subtracted(broker: Broker, client: Client) -> None:
    async def added(operation: int, value: str, name: str = "cleanup.policy") -> int:
        return await alter(client, change(value, operation, name))

    def policy() -> set[str]:
        return set(str(broker.topics.get(FOO_NAME).meta.settings["cleanup_policy"]).split(","))

    append, subtract = 2, 3
    assert await added(append, "compact") == Code.NONE
    assert policy() == {"compact", "delete"}
    assert await added(subtract, "delete") == Code.NONE
    assert policy() == {"compact"}
    assert await added(append, "1", "retention.ms") == Code.INVALID_CONFIG
    assert await added(append, "shred") == Code.INVALID_CONFIG
    assert policy() == {"compact"}


async def test_settings_of_unsupported_resources_are_refused(client: Client) -> None:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=8, resource_name=b"x")]
    )
    (found,) = (await client.call_with_table(request, 1)).results
    assert (found.error_code, found.error_message) == (
        Code.INVALID_REQUEST,
        b"topics and brokers have settings",
    )


async def test_validate_only_does_not_grow_a_topic(broker: Broker, client: Client) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=FOO, count=4)], validate_only=True
    )
    assert (await client.call_with_table(request, 1)).results[0].error_code == Code.NONE
    assert len(broker.topics.get(FOO_NAME).partitions) == 1


async def test_topics_created_at_once_have_a_limit(broker: Broker, client: Client) -> None:
    wanted = [
        CreatableTopic(name=b"t%d" % n, num_partitions=1, replication_factor=1)
        for n in range(TOPICS_MADE_MAX + 2)
    ]
    codes = await create(client, *wanted, validate_only=True)
    assert codes == [Code.NONE] * TOPICS_MADE_MAX + [Code.POLICY_VIOLATION] * 2
