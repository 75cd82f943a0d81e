"""No request bypasses the access check: each is refused with its error, and has no effect."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.commands import COMMANDS
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    alter_client_quotas,
    alter_configs,
    describe_producers,
    describe_topic_partitions,
    incremental_alter_configs,
)
from braidlog.protocols.kafka.wire.alter_configs import AlterConfigsRequest
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
from braidlog.protocols.kafka.wire.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from braidlog.protocols.kafka.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest
from braidlog.protocols.kafka.wire.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.protocols.kafka.wire.create_acls import AclCreation, CreateAclsRequest
from braidlog.protocols.kafka.wire.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from braidlog.protocols.kafka.wire.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.protocols.kafka.wire.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.delete_records import DeleteRecordsRequest
from braidlog.protocols.kafka.wire.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from braidlog.protocols.kafka.wire.delete_topics import DeleteTopicsRequest
from braidlog.protocols.kafka.wire.describe_acls import DescribeAclsRequest
from braidlog.protocols.kafka.wire.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from braidlog.protocols.kafka.wire.describe_cluster import DescribeClusterRequest
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.describe_log_dirs import DescribeLogDirsRequest
from braidlog.protocols.kafka.wire.describe_quorum import DescribeQuorumRequest
from braidlog.protocols.kafka.wire.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from braidlog.protocols.kafka.wire.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from braidlog.protocols.kafka.wire.elect_leaders import ElectLeadersRequest, TopicPartitions
from braidlog.protocols.kafka.wire.find_coordinator import FindCoordinatorRequest
from braidlog.protocols.kafka.wire.heartbeat import HeartbeatRequest
from braidlog.protocols.kafka.wire.incremental_alter_configs import IncrementalAlterConfigsRequest
from braidlog.protocols.kafka.wire.init_producer_id import InitProducerIdRequest
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.protocols.kafka.wire.leave_group import LeaveGroupRequest
from braidlog.protocols.kafka.wire.list_config_resources import ListConfigResourcesRequest
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from braidlog.protocols.kafka.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from braidlog.protocols.kafka.wire.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from braidlog.protocols.kafka.wire.sasl_authenticate import SaslAuthenticateRequest
from braidlog.protocols.kafka.wire.sasl_handshake import SaslHandshakeRequest
from braidlog.protocols.kafka.wire.share_acknowledge import ShareAcknowledgeRequest
from braidlog.protocols.kafka.wire.share_fetch import ShareFetchRequest
from braidlog.protocols.kafka.wire.share_group_describe import ShareGroupDescribeRequest
from braidlog.protocols.kafka.wire.share_group_heartbeat import ShareGroupHeartbeatRequest
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest
from braidlog.protocols.kafka.wire.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.access.rules import Nothing
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, delete_records, fetch, message_set, produce
from tests.protocols.kafka.talk import FOO, FOO_NAME, OpenClient

DENIED = Code.TOPIC_AUTHORIZATION_FAILED
REFUSALS = {FindCoordinatorRequest: Code.GROUP_AUTHORIZATION_FAILED}
OF_OTHERS = (Code.GROUP_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED)
COMMIT = {FOO: {0: m.CommitTarget(0, b"", None)}}
SAMPLES: dict[type, m.RequestBody] = {
    type(m.handled(request)): request
    for request in (
        produce(FOO, {0: message_set(b"x")}),
        fetch(FOO, {0: (0, 1000)}),
        m.OffsetsRequest(-1, {FOO: {0: m.OffsetsTarget(-1, 1)}}),
        m.MetadataRequest([FOO]),
        m.OffsetCommitRequest(0, b"g", -1, b"", COMMIT),
        m.OffsetFetchRequest(1, b"g", {FOO: [0]}),
        m.ConsumerMetadataRequest(b"g"),
    )
}
# Requests of later versions: (request, version).
LATER: dict[type, tuple[m.RequestBody, int]] = {
    OffsetForLeaderEpochRequest: (
        m.OffsetForLeaderEpochRequest({FOO: {0: m.EpochTarget(0)}}),
        3,
    ),
    JoinGroupRequest: (
        JoinGroupRequest(
            group_id=b"g",
            session_timeout_ms=9999,
            member_id=b"",
            protocol_type=b"c",
            protocols=[JoinGroupRequestProtocol(name=b"p", metadata=b"")],
        ),
        3,
    ),
    SyncGroupRequest: (
        SyncGroupRequest(group_id=b"g", generation_id=1, member_id=b"m", assignments=[]),
        3,
    ),
    HeartbeatRequest: (HeartbeatRequest(group_id=b"g", generation_id=1, member_id=b"m"), 3),
    LeaveGroupRequest: (LeaveGroupRequest(group_id=b"g", member_id=b"m"), 1),
    DescribeGroupsRequest: (DescribeGroupsRequest(groups=[b"g"]), 4),
    DeleteGroupsRequest: (DeleteGroupsRequest(groups_names=[b"g"]), 1),
    CreateTopicsRequest: (
        CreateTopicsRequest(
            topics=[CreatableTopic(name=b"bar", num_partitions=1, replication_factor=1)]
        ),
        4,
    ),
    DeleteTopicsRequest: (DeleteTopicsRequest(topic_names=[FOO]), 3),
    CreatePartitionsRequest: (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=FOO, count=2)]),
        1,
    ),
    DescribeConfigsRequest: (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name=FOO)]
        ),
        3,
    ),
    AlterConfigsRequest: (
        AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name=FOO)]
        ),
        1,
    ),
    IncrementalAlterConfigsRequest: (
        IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=FOO)
            ]
        ),
        0,
    ),
    DeleteRecordsRequest: (delete_records(FOO, 0, 0), 1),
    DescribeLogDirsRequest: (DescribeLogDirsRequest(topics=None), 1),
    DescribeAclsRequest: (DescribeAclsRequest(), 3),
    CreateAclsRequest: (CreateAclsRequest(creations=[AclCreation()]), 3),
    DeleteAclsRequest: (DeleteAclsRequest(filters=[DeleteAclsFilter()]), 3),
    ConsumerGroupHeartbeatRequest: (
        ConsumerGroupHeartbeatRequest(
            group_id=b"g",
            member_id=b"m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[FOO],
            topic_partitions=[],
        ),
        1,
    ),
    ConsumerGroupDescribeRequest: (ConsumerGroupDescribeRequest(group_ids=[b"g"]), 1),
    OffsetDeleteRequest: (
        OffsetDeleteRequest(
            group_id=b"g",
            topics=[
                OffsetDeleteRequestTopic(name=FOO, partitions=[OffsetDeleteRequestPartition()])
            ],
        ),
        0,
    ),
    ElectLeadersRequest: (
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=FOO, partitions=[0])]),
        2,
    ),
    AlterPartitionReassignmentsRequest: (
        AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=FOO, partitions=[ReassignablePartition(replicas=[1])])]
        ),
        1,
    ),
    ListPartitionReassignmentsRequest: (ListPartitionReassignmentsRequest(topics=None), 0),
    AlterReplicaLogDirsRequest: (
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=b"/x", topics=[AlterReplicaLogDirTopic(name=FOO, partitions=[0])]
                )
            ]
        ),
        2,
    ),
    DescribeQuorumRequest: (DescribeQuorumRequest(), 2),
    UpdateFeaturesRequest: (
        UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature=b"f")]),
        2,
    ),
    DescribeClientQuotasRequest: (
        DescribeClientQuotasRequest(
            components=[ComponentData(entity_type=b"user", match_type=2, match=None)]
        ),
        1,
    ),
    alter_client_quotas.AlterClientQuotasRequest: (
        alter_client_quotas.AlterClientQuotasRequest(
            entries=[alter_client_quotas.AlterClientQuotasRequestEntryData()]
        ),
        1,
    ),
    DescribeUserScramCredentialsRequest: (
        DescribeUserScramCredentialsRequest(users=[UserName(name=b"u")]),
        0,
    ),
    AlterUserScramCredentialsRequest: (
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=b"u", mechanism=1)]
        ),
        0,
    ),
    describe_producers.DescribeProducersRequest: (
        describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name=FOO, partition_indexes=[0])]
        ),
        0,
    ),
    ListConfigResourcesRequest: (ListConfigResourcesRequest(), 1),
    describe_topic_partitions.DescribeTopicPartitionsRequest: (
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=FOO)], cursor=None
        ),
        0,
    ),
    ShareGroupHeartbeatRequest: (
        ShareGroupHeartbeatRequest(group_id=b"g", member_id=b"m", subscribed_topic_names=[FOO]),
        1,
    ),
    ShareGroupDescribeRequest: (ShareGroupDescribeRequest(group_ids=[b"g"]), 1),
    ShareFetchRequest: (ShareFetchRequest(group_id=b"g", member_id=b"m"), 1),
    ShareAcknowledgeRequest: (
        ShareAcknowledgeRequest(group_id=b"g", member_id=b"m", share_session_epoch=1),
        1,
    ),
    DescribeShareGroupOffsetsRequest: (
        DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=b"g")]
        ),
        0,
    ),
    AlterShareGroupOffsetsRequest: (AlterShareGroupOffsetsRequest(group_id=b"g"), 0),
    DeleteShareGroupOffsetsRequest: (DeleteShareGroupOffsetsRequest(group_id=b"g"), 0),
}
FOR_ANYBODY = {
    *(ApiVersionsRequest, InitProducerIdRequest),
    *(SaslHandshakeRequest, SaslAuthenticateRequest, DescribeClusterRequest),
}
CHECKED = [
    kind
    for kind, command in COMMANDS.items()
    if command.action is not None and kind not in LATER and kind is not ListGroupsRequest
]


def codes(reply: m.Reply) -> list[int]:
    if isinstance(reply, m.MetadataReply):
        return [topic.error for topic in reply.topics]
    if isinstance(reply, m.ConsumerMetadataReply):
        return [reply.error]
    answers = [
        partition for partitions in reply.topics.values() for partition in partitions.values()
    ]
    return [answer if isinstance(answer, int) else answer.error for answer in answers]


def test_only_these_requests_need_no_permission() -> None:
    assert {kind for kind, command in COMMANDS.items() if command.action is None} == FOR_ANYBODY


def test_each_request_has_a_sample() -> None:
    assert set(SAMPLES) == set(CHECKED)


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.__name__)
async def test_a_request_that_is_not_allowed_is_refused(
    broker: Broker, client: RawKafka, kind: type
) -> None:
    rules = Nothing()
    broker.access = Access(rules)
    assert codes(await client.call(SAMPLES[kind])) == [REFUSALS.get(kind, DENIED)]
    assert rules.actions == {COMMANDS[kind].action}
    topic = broker.topics.get(FOO_NAME)
    assert topic.partitions[0].next_offset == 0
    assert not broker.subscriptions.names(topic)


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.__name__)
async def test_a_request_needs_only_its_own_action(
    broker: Broker, client: RawKafka, kind: type
) -> None:
    broker.access = Access(Nothing(COMMANDS[kind].action))
    assert codes(await client.call(SAMPLES[kind])) == [Code.NONE]


def error_codes(reply: Struct) -> list[int]:
    """Return the codes in the lists of a response, or its own code."""
    fields = [getattr(reply, field.name) for field in reply.FIELDS]
    inner = [element for field in fields if isinstance(field, list) for element in field]
    codes = [
        code for element in inner if isinstance(element, Struct) for code in error_codes(element)
    ]
    return codes or ([reply.error_code] if hasattr(reply, "error_code") else [])


def later_codes(reply: object) -> list[int]:
    """Return the codes of a reply with its own code, or with a code per item of a list."""
    if isinstance(reply, Struct):
        return error_codes(reply)
    if hasattr(reply, "error"):
        return [reply.error]
    (answers,) = (getattr(reply, name) for name in reply.__slots__)  # type: ignore[attr-defined]
    if isinstance(reply, m.OffsetForLeaderEpochReply):
        answers = [partition for topic in answers for partition in topic.partitions]
    if isinstance(answers, dict):
        answers = [
            partition for partitions in answers.values() for partition in partitions.values()
        ]
    return [answer.error for answer in answers]


@pytest.mark.parametrize("kind", LATER, ids=lambda kind: kind.__name__)
async def test_a_later_request_that_is_not_allowed_is_refused(
    broker: Broker, client: RawKafka, kind: type
) -> None:
    rules = Nothing()
    broker.access = Access(rules)
    (code,) = later_codes(await client.call_with_table(*LATER[kind]))
    assert code in (DENIED, *OF_OTHERS)
    assert rules.actions == {COMMANDS[kind].action}
    assert [topic.name for topic in broker.topics.all()] == [FOO_NAME]


@pytest.mark.parametrize("kind", LATER, ids=lambda kind: kind.__name__)
async def test_a_later_request_needs_only_its_own_action(
    broker: Broker, client: RawKafka, kind: type
) -> None:
    broker.access = Access(Nothing(COMMANDS[kind].action))
    (code,) = later_codes(await client.call_with_table(*LATER[kind]))
    assert code not in (DENIED, *OF_OTHERS)


async def test_hidden_groups_are_not_listed(broker: Broker, client: RawKafka) -> None:
    await client.call_with_table(m.OffsetCommitRequest(5, b"g", topics=COMMIT), 5)
    assert len((await client.call_with_table(ListGroupsRequest(), 2)).groups) == 1
    broker.access = Access(Nothing())
    assert not (await client.call_with_table(ListGroupsRequest(), 2)).groups


async def test_hidden_topics_are_not_listed(broker: Broker, client: RawKafka) -> None:
    broker.access = Access(Nothing())
    reply = await client.call(m.MetadataRequest([]))
    assert isinstance(reply, m.MetadataReply)
    assert reply.brokers and not reply.topics


async def test_creating_a_topic_needs_its_own_permission(
    broker: Broker, open_client: OpenClient, client: RawKafka
) -> None:
    broker.access = Access(Nothing(Action.DESCRIBE))
    assert codes(await client.call(m.MetadataRequest([b"bar"]))) == [DENIED]
    broker.access = Access(Nothing(Action.DESCRIBE, Action.CREATE))
    assert codes(await client.call(m.MetadataRequest([b"bar"]))) == [Code.NONE]


async def test_a_missing_topic_looks_like_an_existing_topic(
    broker: Broker, client: RawKafka
) -> None:
    broker.access = Access(Nothing())
    assert codes(await client.call(fetch(b"bar", {0: (0, 1000)}))) == [DENIED]


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.__name__)
async def test_a_refusal_does_not_reveal_the_topics_existence(
    broker: Broker, client: RawKafka, kind: type
) -> None:
    broker.access = Access(Nothing())
    present = await client.call(SAMPLES[kind])
    await broker.topics.delete(FOO_NAME)
    assert await client.call(SAMPLES[kind]) == present


@pytest.mark.parametrize("kind", LATER, ids=lambda kind: kind.__name__)
async def test_a_later_refusal_does_not_reveal_the_topics_existence(
    broker: Broker, client: RawKafka, kind: type
) -> None:
    broker.access = Access(Nothing())
    present = await client.call_with_table(*LATER[kind])
    await broker.topics.delete(FOO_NAME)
    assert await client.call_with_table(*LATER[kind]) == present


async def test_a_topic_is_created_for_its_client(client, makers):
    for name in (b"one", b"two"):
        await client.call(m.MetadataRequest([name]))
    assert makers[-2:] == [("anonymous", "kafka 127.0.0.1")] * 2
