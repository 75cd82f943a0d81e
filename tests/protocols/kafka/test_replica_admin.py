"""Requests about replicas and leaders. Codes as of Kafka 4.3.1 with a single broker."""

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from braidlog.protocols.kafka.wire.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from braidlog.protocols.kafka.wire.describe_quorum import DescribeQuorumRequest
from braidlog.protocols.kafka.wire.elect_leaders import ElectLeadersRequest, TopicPartitions
from braidlog.protocols.kafka.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from braidlog.protocols.kafka.wire.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO

NOT_NEEDED, UNKNOWN_TOPIC, INVALID_REQUEST = 84, 3, 42


@pytest.mark.parametrize("version", range(3))
async def test_no_election_is_needed(client: RawKafka, version: int) -> None:
    wanted = [
        TopicPartitions(topic=FOO, partitions=[0, 4]),
        TopicPartitions(topic=b"none", partitions=[0]),
    ]
    reply = await client.call_whole(ElectLeadersRequest(topic_partitions=wanted), version)
    codes = [
        (result.topic, result_part.partition_id, result_part.error_code)
        for result in reply.replica_election_results
        for result_part in result.partition_result
    ]
    assert codes == [(FOO, 0, NOT_NEEDED), (FOO, 4, UNKNOWN_TOPIC), (b"none", 0, UNKNOWN_TOPIC)]
    everywhere = await client.call_whole(ElectLeadersRequest(topic_partitions=None), version)
    assert everywhere.replica_election_results == []
    if version:
        strange = ElectLeadersRequest(election_type=9, topic_partitions=wanted)
        assert (await client.call_whole(strange, version)).error_code == INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "index", "replicas", "code"),
    [
        (FOO, 0, [1], 0),
        (FOO, 0, [2], 39),
        (FOO, 0, [], 39),
        (FOO, 0, [1, 2], 39),
        (FOO, 0, None, 85),
        (FOO, 3, [1], UNKNOWN_TOPIC),
        (b"none", 0, [1], UNKNOWN_TOPIC),
        (b"n ne", 0, [1], 17),
    ],
)
async def test_only_the_present_replica_is_accepted(
    client: RawKafka, name: bytes, index: int, replicas: list[int] | None, code: int
) -> None:
    partition = ReassignablePartition(partition_index=index, replicas=replicas)
    topics = [ReassignableTopic(name=name, partitions=[partition])]
    reply = await client.call_whole(AlterPartitionReassignmentsRequest(topics=topics), 1)
    (topic,) = reply.responses
    assert (topic.name, [result_part.error_code for result_part in topic.partitions]) == (
        name,
        [code],
    )
    listed = await client.call_whole(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (listed.error_code, listed.topics) == (0, [])


async def test_partitions_stay_in_the_data_directory(broker: Broker, client: RawKafka) -> None:
    async def codes(path: bytes) -> list[tuple[bytes, int]]:
        topics = [AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in (FOO, b"none")]
        dirs = [AlterReplicaLogDir(path=path, topics=topics)]
        reply = await client.call_whole(AlterReplicaLogDirsRequest(dirs=dirs), 2)
        return [
            (result_part.topic_name, result_part.partitions[0].error_code)
            for result_part in reply.results
        ]

    assert await codes(str(broker.data_dir).encode()) == [(FOO, 0), (b"none", UNKNOWN_TOPIC)]
    assert await codes(b"/elsewhere") == [(FOO, 57), (b"none", 57)]


async def test_controllers_are_refused_with_a_text(client: RawKafka) -> None:
    reply = await client.call_whole(DescribeQuorumRequest(), 2)
    assert reply.error_code == 35 and b"quorum" in reply.error_message
    present = FeatureUpdateKey(feature=b"group.version", max_version_level=1)
    for update, code, results in (
        (present, 0, [(b"group.version", 0)]),
        (FeatureUpdateKey(feature=b"group.version", max_version_level=0), 95, []),
        (FeatureUpdateKey(feature=b"none", max_version_level=1), 95, []),
    ):
        for version in range(3):
            request = UpdateFeaturesRequest(feature_updates=[update])
            reply = await client.call_whole(request, version)
            assert reply.error_code == code
            if version < 2:
                assert [(item.feature, item.error_code) for item in reply.results] == results
