"""Admin calls through the wire."""

from typing import Any

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
from tests.protocols.kafka.frames import RawKafka, delete_records, message_set
from tests.protocols.kafka.talk import FOO, FOO_NAME, fetch_one, produce_one, values

BAR = TopicName("public", "default", "bar")


async def create(
    client: RawKafka, *topics: CreatableTopic, validate_only: bool = False
) -> list[int]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return [topic.error_code for topic in (await client.call_with_table(request, 4)).topics]


def configs(**settings: str) -> list[CreatableTopicConfig]:
    return [
        CreatableTopicConfig(name=name.replace("_", ".").encode(), value=value.encode())
        for name, value in settings.items()
    ]


async def test_topics_are_created_with_partitions_and_settings(
    broker: Broker, client: RawKafka
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
    client: RawKafka, topic: CreatableTopic, code: Code
) -> None:
    assert await create(client, topic) == [code]


async def test_topics_grow_and_are_deleted(broker: Broker, client: RawKafka) -> None:
    async def grow(name: bytes, count: int) -> int:
        wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted])
        return (await client.call_with_table(request, 1)).results[0].error_code

    assert await grow(FOO, 4) == Code.NONE
    assert len(broker.topics.get(FOO_NAME).partitions) == 4
    assert await grow(FOO, 4) == Code.INVALID_PARTITIONS
    assert await grow(b"none", 4) == Code.UNKNOWN_TOPIC_OR_PARTITION
    reply = await client.call_with_table(DeleteTopicsRequest(topic_names=[FOO, b"none"]), 3)
    assert [response.error_code for response in reply.responses] == [
        0,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert broker.topics.find(FOO_NAME) is None


@pytest.mark.parametrize("version", range(4))
async def test_settings_are_described(client: RawKafka, version: int) -> None:
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
    results = (await client.call_with_table(request, version)).results
    assert [result.error_code for result in results] == [0, Code.UNKNOWN_TOPIC_OR_PARTITION, 0, 0]
    values = {config.name: config.value for config in results[0].configs}
    assert values[b"retention.ms"] == b"60000"
    assert values[b"cleanup.policy"] == b"delete"
    assert [config.name for config in results[2].configs] == [b"retention.bytes"]


async def described(client: RawKafka, kind: int, name: bytes, **fields: bool) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], **fields)
    (result,) = (await client.call_with_table(request, 4)).results
    return result


async def test_a_setting_shows_its_type_origins_and_documentation(
    broker: Broker, client: RawKafka
) -> None:
    await broker.topics.alter_settings(FOO_NAME, {"segment_bytes": 1 << 20})
    plain = {config.name: config for config in (await described(client, 2, FOO)).configs}
    assert plain[b"segment.bytes"].synonyms == []
    assert plain[b"segment.bytes"].documentation is None
    full = await described(client, 2, FOO, include_synonyms=True, include_documentation=True)
    shown = {config.name: config for config in full.configs}
    segment = shown[b"segment.bytes"]
    assert (segment.value, segment.config_source, segment.config_type) == (b"1048576", 1, 3)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in segment.synonyms] == [
        (b"segment.bytes", b"1048576", 1),
        (b"log.segment.bytes", b"1073741824", 5),
    ]
    assert shown[b"max.message.bytes"].value == b"1048588"
    assert {
        name: config.config_type for name, config in shown.items() if config.config_type != 5
    } == {
        b"braidlog.deliver_at.header.enable": 1,
        b"errors.deadletterqueue.topic.name": 2,
        b"cleanup.policy": 7,
        b"compression.type": 2,
        b"index.interval.bytes": 3,
        b"max.message.bytes": 3,
        b"message.downconversion.enable": 1,
        b"message.timestamp.type": 2,
        b"min.cleanable.dirty.ratio": 6,
        b"min.insync.replicas": 3,
        b"preallocate": 1,
        b"segment.bytes": 3,
        b"segment.index.bytes": 3,
        b"share.delivery.count.limit": 3,
        b"unclean.leader.election.enable": 1,
    }
    assert all(config.documentation and config.synonyms for config in shown.values())


async def test_a_setting_of_the_namespace_is_shown_as_in_force(
    broker: Broker, client: RawKafka
) -> None:
    await broker.topics.alter_namespace("public", "default", {"retention_ms": 77})
    (setting,) = [
        config
        for config in (await described(client, 2, FOO, include_synonyms=True)).configs
        if config.name == b"retention.ms"
    ]
    assert (setting.value, setting.config_source, len(setting.synonyms)) == (b"77", 3, 2)


async def test_settings_of_the_broker_are_described(client: RawKafka) -> None:
    shown = {config.name: config for config in (await described(client, 4, b"1")).configs}
    assert shown[b"log.segment.bytes"].value == b"1073741824"
    assert shown[b"message.max.bytes"].value == b"1048588"
    assert shown[b"delete.topic.enable"].value == b"true"
    assert shown[b"group.initial.rebalance.delay.ms"].config_source == 4
    assert all(config.read_only and config.config_type for config in shown.values())
    assert (await described(client, 4, b"")).configs == []
    for name in (b"2", b"one"):
        assert (await described(client, 4, name)).error_code == Code.INVALID_REQUEST
    assert (await described(client, 16, b"1")).error_code == Code.INVALID_REQUEST


Change = tuple[bytes, bytes, int]  # name, value, operation


def change(value: str, operation: int = 0, name: str = "retention.ms") -> Change:
    return name.encode(), value.encode(), operation


async def alter(client: RawKafka, *changes: Change, **fields: object) -> int:
    about = {"kind": 2, "name": FOO, "validate_only": False, "whole": False} | fields
    module = alter_configs if about["whole"] else incremental_alter_configs
    configs = [module.AlterableConfig(name=name, value=value) for name, value, _ in changes]
    if not about["whole"]:
        for config, (_, _, operation) in zip(configs, changes, strict=True):
            config.config_operation = operation
    altered = module.AlterConfigsResource(
        resource_type=about["kind"], resource_name=about["name"], configs=configs
    )
    kind = AlterConfigsRequest if about["whole"] else IncrementalAlterConfigsRequest
    request = kind(resources=[altered], validate_only=about["validate_only"])
    (done,) = (await client.call_with_table(request, 1 if about["whole"] else 0)).responses
    assert bool(done.error_code) == bool(done.error_message)
    return done.error_code


async def test_settings_are_changed_individually(broker: Broker, client: RawKafka) -> None:
    assert await alter(client, change("60000")) == Code.NONE
    assert await alter(client, change("-1", name="retention.bytes")) == Code.NONE
    settings = broker.topics.get(FOO_NAME).meta.settings
    assert settings == {"retention_ms": 60000, "retention_bytes": -1}
    assert await alter(client, change("5"), validate_only=True) == Code.NONE
    assert await alter(client, change("", operation=1)) == Code.NONE  # Reset.
    assert broker.topics.get(FOO_NAME).meta.settings == {"retention_bytes": -1}


async def test_settings_are_replaced_as_a_whole(broker: Broker, client: RawKafka) -> None:
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
        ([change("1")], {"kind": 4, "name": b"1"}, Code.INVALID_REQUEST),
        ([], {"name": b"none"}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ([], {"name": b"n ne"}, Code.INVALID_TOPIC),
    ],
)
async def test_invalid_settings_are_refused(
    client: RawKafka, changes: list[Change], fields: dict, code: Code, whole: bool
) -> None:
    assert await alter(client, *changes, whole=whole, **fields) == code


async def test_no_setting_is_a_list(client: RawKafka) -> None:
    assert await alter(client, change("1", operation=2)) == Code.INVALID_CONFIG


async def delete_below(client: RawKafka, offset: int, partition: int = 0) -> tuple[int, int]:
    (topic,) = (await client.call_with_table(delete_records(FOO, partition, offset), 1)).topics
    (done,) = topic.partitions
    assert (topic.name, done.partition_index) == (FOO, partition)
    return done.error_code, done.low_watermark


async def test_records_are_deleted_up_to_any_offset(broker: Broker, client: RawKafka) -> None:
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


async def test_records_of_a_compacted_topic_are_not_deleted(
    broker: Broker, client: RawKafka
) -> None:
    await produce_one(client, message_set(b"a", b"b"))
    assert await alter(client, change("compact", name="cleanup.policy")) == Code.NONE
    for offset in (1, -1, 99):
        assert await delete_below(client, offset) == (Code.POLICY_VIOLATION, -1)
    assert broker.topics.get(FOO_NAME).partitions[0].log_start_offset == 0
    assert await alter(client, change("compact,delete", name="cleanup.policy")) == Code.NONE
    assert await delete_below(client, 1) == (0, 1)


async def test_sizes_on_the_disk_are_described(broker: Broker, client: RawKafka) -> None:
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
        (directory,) = reply.results
        assert (directory.error_code, directory.log_dir) == (0, broker.data_dir.encode())
        (topic,) = directory.topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index) == (FOO, 0)
        assert partition.partition_size == size


async def test_list_settings_are_appended_and_subtracted(broker: Broker, client: RawKafka) -> None:
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


async def test_settings_of_a_broker_can_only_be_unset(client: RawKafka) -> None:
    """kafka-reassign-partitions unsets throttles of brokers, which none has."""
    throttle = change("", operation=1, name="leader.replication.throttled.rate")
    for name in (b"1", b""):
        assert await alter(client, throttle, kind=4, name=name) == Code.NONE
    assert await alter(client, throttle, kind=4, name=b"7") == Code.INVALID_REQUEST
    threads = change("1", name="log.cleaner.threads")
    assert await alter(client, throttle, threads, kind=4, name=b"1") == Code.INVALID_REQUEST
    assert await alter(client, threads, kind=4, name=b"1", whole=True) == Code.INVALID_REQUEST


async def test_settings_of_unsupported_resources_are_refused(client: RawKafka) -> None:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=8, resource_name=b"x")]
    )
    (result,) = (await client.call_with_table(request, 1)).results
    assert (result.error_code, result.error_message) == (
        Code.INVALID_REQUEST,
        b"resource type 8 has no settings, expected topic (2), broker (4) or group (32)",
    )


async def test_validate_only_does_not_grow_a_topic(broker: Broker, client: RawKafka) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=FOO, count=4, assignments=None)], validate_only=True
    )
    assert (await client.call_with_table(request, 1)).results[0].error_code == Code.NONE
    assert len(broker.topics.get(FOO_NAME).partitions) == 1


async def test_topics_created_at_once_have_a_limit(broker: Broker, client: RawKafka) -> None:
    wanted = [
        CreatableTopic(name=b"t%d" % n, num_partitions=1, replication_factor=1)
        for n in range(TOPICS_MADE_MAX + 2)
    ]
    codes = await create(client, *wanted, validate_only=True)
    assert codes == [Code.NONE] * TOPICS_MADE_MAX + [Code.POLICY_VIOLATION] * 2
