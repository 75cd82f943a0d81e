"""Admin calls through the wire."""

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka import admin_messages as a
from braidlog.protocols.kafka import messages as m
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.metadata import TOPICS_MADE_MAX
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka.frames import Client, message_set
from tests.protocols.kafka.talk import FOO, FOO_NAME, fetch_one, produce_one, values

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
    assert topic.meta.settings == {"retention_ms": 60000, "cleanup_policy": "delete"}
    assert await create(client, wanted) == [Code.TOPIC_ALREADY_EXISTS]
    assert await create(client, wanted, validate_only=True) == [Code.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (a.NewTopic(b"bar", 0, 1), Code.INVALID_PARTITIONS),
        (a.NewTopic(b"bar", 1, 3), Code.INVALID_REPLICATION_FACTOR),
        (a.NewTopic(b"b r", 1, 1), Code.INVALID_TOPIC),
        (a.NewTopic(b"bar", 1, 1, (), configs(cleanup_policy="compact")), Code.NONE),
        (a.NewTopic(b"bar", 1, 1, (), configs(cleanup_policy="delete, compact")), Code.NONE),
        (a.NewTopic(b"bar", 1, 1, (), configs(cleanup_policy="shred")), Code.INVALID_CONFIG),
        (
            a.NewTopic(b"bar", 1, 1, (), configs(min_cleanable_dirty_ratio="1.5")),
            Code.INVALID_CONFIG,
        ),
        (a.NewTopic(b"bar", 1, 1, (), configs(max_compaction_lag_ms="5")), Code.INVALID_CONFIG),
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


def change(value: str, operation: int = 0, name: str = "retention.ms") -> a.ConfigChange:
    return a.ConfigChange(name.encode(), value.encode(), operation)


async def alter(client: Client, *changes: a.ConfigChange, **fields: object) -> int:
    about = {"kind": 2, "name": FOO, "validate_only": False, "whole": False} | fields
    kind = a.AlterConfigsRequest if about["whole"] else a.IncrementalAlterConfigsRequest
    altered = a.AlteredResource(about["kind"], about["name"], changes)
    request = kind([altered], about["validate_only"])
    (done,) = (await client.call_with_table(request, 1 if about["whole"] else 0)).resources
    assert bool(done.error) == bool(done.message)
    return done.error


async def test_settings_are_changed_one_by_one(broker: Broker, client: Client) -> None:
    assert await alter(client, change("60000")) == Code.NONE
    assert await alter(client, change("-1", name="retention.bytes")) == Code.NONE
    settings = broker.topics.get(FOO_NAME).meta.settings
    assert settings == {"retention_ms": 60000, "retention_bytes": -1}
    assert await alter(client, change("5"), validate_only=True) == Code.NONE
    assert await alter(client, change("", operation=1)) == Code.NONE  # Taken back.
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
async def test_settings_that_cannot_be_are_refused(
    client: Client, changes: list[a.ConfigChange], fields: dict, code: Code, whole: bool
) -> None:
    assert await alter(client, *changes, whole=whole, **fields) == code


async def test_no_setting_is_a_list(client: Client) -> None:
    assert await alter(client, change("1", operation=2)) == Code.INVALID_CONFIG


async def delete_below(client: Client, offset: int, partition: int = 0) -> tuple[int, int]:
    request = a.DeleteRecordsRequest({FOO: {partition: offset}})
    done = (await client.call_with_table(request, 1)).topics[FOO][partition]
    return done.error, done.log_start_offset


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


async def test_sizes_on_the_disk_are_told(broker: Broker, client: Client) -> None:
    await produce_one(client, message_set(b"a"))
    size = broker.topics.get(FOO_NAME).partitions[0].size_bytes
    for topics in (None, [a.LogDirsTopic(FOO, [0, 7]), a.LogDirsTopic(b"none", [0])]):
        reply = await client.call_with_table(a.DescribeLogDirsRequest(topics), 1)
        (found,) = reply.log_dirs
        assert (found.error, found.path) == (0, broker.data_dir.encode())
        assert found.topics == {FOO: {0: a.LogSize(size)}}


async def test_a_list_is_added_to_and_taken_from(broker: Broker, client: Client) -> None:
    async def change(operation: int, value: bytes, name: bytes = b"cleanup.policy") -> int:
        one = a.AlteredResource(2, FOO, [a.ConfigChange(name, value, operation)])
        reply = await client.call_with_table(a.IncrementalAlterConfigsRequest([one]), 0)
        return int(reply.resources[0].error)

    def policy() -> set[str]:
        return set(str(broker.topics.get(FOO_NAME).meta.settings["cleanup_policy"]).split(","))

    append, subtract = 2, 3
    assert await change(append, b"compact") == Code.NONE
    assert policy() == {"compact", "delete"}
    assert await change(subtract, b"delete") == Code.NONE
    assert policy() == {"compact"}
    assert await change(append, b"1", b"retention.ms") == Code.INVALID_CONFIG
    assert await change(append, b"shred") == Code.INVALID_CONFIG
    assert policy() == {"compact"}


async def test_settings_of_what_has_none_are_refused(client: Client) -> None:
    request = a.DescribeConfigsRequest([a.ConfigResource(8, b"x")])
    (found,) = (await client.call_with_table(request, 1)).resources
    assert (found.error, found.message) == (
        Code.INVALID_REQUEST,
        b"topics and brokers have settings",
    )


async def test_a_topic_grows_in_earnest_alone(broker: Broker, client: Client) -> None:
    request = a.CreatePartitionsRequest([a.GrowingTopic(FOO, 4)], validate_only=True)
    assert (await client.call_with_table(request, 1)).topics[0].error == Code.NONE
    assert len(broker.topics.get(FOO_NAME).partitions) == 1


async def test_topics_are_made_up_to_a_number_at_once(broker: Broker, client: Client) -> None:
    wanted = [a.NewTopic(b"t%d" % n, 1, 1) for n in range(TOPICS_MADE_MAX + 2)]
    codes = await create(client, *wanted, validate_only=True)
    assert codes == [Code.NONE] * TOPICS_MADE_MAX + [Code.POLICY_VIOLATION] * 2
