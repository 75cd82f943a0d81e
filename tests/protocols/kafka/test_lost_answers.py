"""Every Kafka request with an effect, sent to another broker than the owner, while the owner's
answer is lost: the client's answer is true, and a repeat does no harm.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.commands import COMMANDS
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire import alter_configs, incremental_alter_configs
from braidlog.protocols.kafka.wire.alter_client_quotas import AlterClientQuotasRequest
from braidlog.protocols.kafka.wire.alter_configs import AlterConfigsRequest
from braidlog.protocols.kafka.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from braidlog.protocols.kafka.wire.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from braidlog.protocols.kafka.wire.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from braidlog.protocols.kafka.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest
from braidlog.protocols.kafka.wire.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.protocols.kafka.wire.create_acls import CreateAclsRequest
from braidlog.protocols.kafka.wire.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from braidlog.protocols.kafka.wire.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.protocols.kafka.wire.delete_acls import DeleteAclsRequest
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.delete_records import DeleteRecordsRequest
from braidlog.protocols.kafka.wire.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from braidlog.protocols.kafka.wire.delete_topics import DeleteTopicsRequest
from braidlog.protocols.kafka.wire.describe_acls import DescribeAclsRequest
from braidlog.protocols.kafka.wire.describe_client_quotas import DescribeClientQuotasRequest
from braidlog.protocols.kafka.wire.describe_cluster import DescribeClusterRequest
from braidlog.protocols.kafka.wire.describe_configs import DescribeConfigsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.describe_log_dirs import DescribeLogDirsRequest
from braidlog.protocols.kafka.wire.describe_producers import DescribeProducersRequest
from braidlog.protocols.kafka.wire.describe_quorum import DescribeQuorumRequest
from braidlog.protocols.kafka.wire.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
)
from braidlog.protocols.kafka.wire.describe_topic_partitions import DescribeTopicPartitionsRequest
from braidlog.protocols.kafka.wire.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from braidlog.protocols.kafka.wire.elect_leaders import ElectLeadersRequest
from braidlog.protocols.kafka.wire.fetch import FetchRequest
from braidlog.protocols.kafka.wire.find_coordinator import FindCoordinatorRequest
from braidlog.protocols.kafka.wire.heartbeat import HeartbeatRequest
from braidlog.protocols.kafka.wire.incremental_alter_configs import IncrementalAlterConfigsRequest
from braidlog.protocols.kafka.wire.init_producer_id import InitProducerIdRequest
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.protocols.kafka.wire.leave_group import LeaveGroupRequest
from braidlog.protocols.kafka.wire.list_config_resources import ListConfigResourcesRequest
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.list_offsets import ListOffsetsRequest
from braidlog.protocols.kafka.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from braidlog.protocols.kafka.wire.metadata import MetadataRequest
from braidlog.protocols.kafka.wire.offset_commit import OffsetCommitRequest
from braidlog.protocols.kafka.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from braidlog.protocols.kafka.wire.offset_fetch import OffsetFetchRequest
from braidlog.protocols.kafka.wire.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from braidlog.protocols.kafka.wire.sasl_authenticate import SaslAuthenticateRequest
from braidlog.protocols.kafka.wire.sasl_handshake import SaslHandshakeRequest
from braidlog.protocols.kafka.wire.share_acknowledge import ShareAcknowledgeRequest
from braidlog.protocols.kafka.wire.share_fetch import ShareFetchRequest
from braidlog.protocols.kafka.wire.share_group_describe import ShareGroupDescribeRequest
from braidlog.protocols.kafka.wire.share_group_heartbeat import ShareGroupHeartbeatRequest
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest
from braidlog.protocols.kafka.wire.update_features import UpdateFeaturesRequest
from conformance.cluster.unanswered_kinds import ChangeOutcome
from tests.broker.cluster.cut_links import Cutter, States, check_told, lossy
from tests.broker.cluster.nodes import topic_of
from tests.listeners import open_listeners
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, delete_records, message_set, produce
from tests.protocols.kafka.test_access import codes, later_codes
from tests.protocols.kafka.test_scram_users import upsertion

Request = tuple[object, int | None]  # The version of a request with a table.


def changes(topic: bytes, new: bytes) -> dict[type, Request]:
    """Return a request of each kind for another broker; `new` does not exist yet."""
    commit = {topic: {0: m.CommitTarget(1, b"at 1")}}
    retention = {"name": b"retention.ms", "value": b"60000"}
    about = {"resource_type": 2, "resource_name": topic}
    whole = alter_configs.AlterConfigsResource(
        **about, configs=[alter_configs.AlterableConfig(**retention)]
    )
    incremental = incremental_alter_configs.AlterConfigsResource(
        **about, configs=[incremental_alter_configs.AlterableConfig(**retention)]
    )
    return {
        OffsetCommitRequest: (m.OffsetCommitRequest(2, b"g", -1, b"", commit), 2),
        MetadataRequest: (m.MetadataRequest([new]), None),
        DeleteGroupsRequest: (DeleteGroupsRequest(groups_names=[b"idle"]), 1),
        CreateTopicsRequest: (
            CreateTopicsRequest(
                topics=[CreatableTopic(name=new, num_partitions=2, replication_factor=1)]
            ),
            4,
        ),
        DeleteTopicsRequest: (DeleteTopicsRequest(topic_names=[topic]), 3),
        OffsetDeleteRequest: (
            OffsetDeleteRequest(
                group_id=b"idle",
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic, partitions=[OffsetDeleteRequestPartition()]
                    )
                ],
            ),
            0,
        ),
        CreatePartitionsRequest: (
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=topic, count=3, assignments=None)]
            ),
            1,
        ),
        AlterConfigsRequest: (AlterConfigsRequest(resources=[whole]), 1),
        IncrementalAlterConfigsRequest: (
            IncrementalAlterConfigsRequest(resources=[incremental]),
            0,
        ),
    }


def at_the_owner_alone(topic: bytes) -> dict[type, Request]:
    """Return a request of each kind that only the owner accepts: the owner of the topic, or of the
    group's name.
    """
    protocols = [JoinGroupRequestProtocol(name=b"p", metadata=b"")]
    return {
        m.ProduceRequest: (produce(topic, {0: message_set(b"x")}), None),
        DeleteRecordsRequest: (delete_records(topic, 0, 1), 1),
        AlterUserScramCredentialsRequest: (
            AlterUserScramCredentialsRequest(upsertions=[upsertion(b"anna")]),
            0,
        ),
        JoinGroupRequest: (
            JoinGroupRequest(
                group_id=b"g",
                session_timeout_ms=9999,
                member_id=b"",
                protocol_type=b"c",
                protocols=protocols,
            ),
            3,
        ),
        SyncGroupRequest: (
            SyncGroupRequest(group_id=b"g", generation_id=1, member_id=b"m", assignments=[]),
            3,
        ),
        HeartbeatRequest: (HeartbeatRequest(group_id=b"g", generation_id=1, member_id=b"m"), 3),
        LeaveGroupRequest: (LeaveGroupRequest(group_id=b"g", member_id=b"m"), 1),
        ConsumerGroupHeartbeatRequest: (
            ConsumerGroupHeartbeatRequest(
                group_id=b"g",
                member_id=b"m",
                rebalance_timeout_ms=1000,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            ),
            1,
        ),
        ShareGroupHeartbeatRequest: (
            ShareGroupHeartbeatRequest(
                group_id=b"g", member_id=b"m", subscribed_topic_names=[topic]
            ),
            1,
        ),
        AlterShareGroupOffsetsRequest: (AlterShareGroupOffsetsRequest(group_id=b"g"), 0),
        DeleteShareGroupOffsetsRequest: (DeleteShareGroupOffsetsRequest(group_id=b"g"), 0),
    }


CHANGE_NOTHING = {
    *(FetchRequest, ListOffsetsRequest, OffsetFetchRequest, FindCoordinatorRequest),
    *(ApiVersionsRequest, InitProducerIdRequest, OffsetForLeaderEpochRequest),
    *(SaslHandshakeRequest, SaslAuthenticateRequest),
    *(DescribeGroupsRequest, ListGroupsRequest, DescribeConfigsRequest),
    *(ListConfigResourcesRequest,),
    *(ConsumerGroupDescribeRequest, DescribeClusterRequest),
    *(DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest),  # All are refused.
    *(DescribeLogDirsRequest, DescribeTopicPartitionsRequest, DescribeProducersRequest),
    *(DescribeClientQuotasRequest, AlterClientQuotasRequest, DescribeUserScramCredentialsRequest),
    *(ElectLeadersRequest, AlterReplicaLogDirsRequest, DescribeQuorumRequest),
    *(AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest),
    *(UpdateFeaturesRequest,),
    *(ShareGroupDescribeRequest, DescribeShareGroupOffsetsRequest),
    # A session and its records are the connection's, at the broker of the partition.
    *(ShareFetchRequest, ShareAcknowledgeRequest),
}
OF_ANOTHER_OWNER = (
    Code.NOT_LEADER_FOR_PARTITION,
    Code.NOT_COORDINATOR,
    Code.NOT_CONTROLLER,
)
TOLD = {
    Code.NONE: ChangeOutcome.DONE,
    Code.REQUEST_TIMED_OUT: ChangeOutcome.UNKNOWN,
    Code.COORDINATOR_LOAD_IN_PROGRESS: ChangeOutcome.UNKNOWN,  # The client repeats the commit.
    Code.LEADER_NOT_AVAILABLE: ChangeOutcome.UNKNOWN,  # The client requests the metadata again.
}


def test_every_request_with_an_effect_has_a_sample() -> None:
    sampled = {*changes(b"", b""), *at_the_owner_alone(b"")}
    assert sampled | CHANGE_NOTHING == {*COMMANDS}


class NearKafka:
    """A client of the broker that owns neither the catalogue nor the topic."""

    def __init__(self, client: RawKafka, topic: bytes, new: bytes) -> None:
        self._client = client
        self.requests = changes(topic, new)
        self.of_the_owner = at_the_owner_alone(topic)

    async def ask(self, request: Request) -> Code:
        """The code that the client gets."""
        body, version = request
        reply = await self._client.call(body, version)  # type: ignore[arg-type]
        codes_of = later_codes if version not in (None, 2) else codes
        (code,) = codes_of(reply)
        return Code(code)


@asynccontextmanager
async def prepared(
    path: Path, *, coordinates: bool
) -> AsyncIterator[tuple[NearKafka, States, Cutter]]:
    """Yield a client, the owner's state, and the cutter of the link to the owner.

    With `coordinates`, the client's broker coordinates all groups, otherwise the owner does.
    """
    async with lossy(path) as (asker, owner, cutter, _), open_listeners(asker.broker) as connect:
        name, new = (topic_of(owner.held, prefix) for prefix in ("tp", "new"))
        placement = asker.broker.placement
        other = placement.others()[0]
        placement.owner_of_name = lambda name: None if coordinates else other  # type: ignore
        topic = await owner.broker.topics.create(name, 2)
        await fill(owner.broker, name.topic.encode())
        subscription = owner.broker.subscriptions.open(topic, b"idle")
        subscription.commit(0, 1)
        client = RawKafka(await connect("kafka"))
        yield (
            NearKafka(client, name.topic.encode(), new.topic.encode()),
            States(owner.broker),
            cutter,
        )


async def fill(broker: Broker, topic: bytes) -> None:
    """Store two records in the first partition, through the owner's own listener."""
    async with open_listeners(broker) as connect:
        sent = produce(topic, {0: message_set(b"a", b"b")})
        assert codes(await RawKafka(await connect("kafka")).call(sent)) == [Code.NONE]


@pytest.mark.slow
@pytest.mark.parametrize("kind", changes(b"", b""), ids=lambda kind: kind.__name__)
async def test_the_answer_after_a_lost_answer_is_true(tmp_path: Path, kind: type) -> None:
    async with prepared(tmp_path / "whole", coordinates=True) as (near, states, _):
        before = states.now()
        assert TOLD[await near.ask(near.requests[kind])] in (
            ChangeOutcome.DONE,
            ChangeOutcome.UNKNOWN,
        )
        after = states.now()
    async with prepared(tmp_path / "cut", coordinates=True) as (near, states, cutter):
        assert states.now() == before
        cutter.answers_to_lose = 1
        outcome = TOLD.get(await near.ask(near.requests[kind]), ChangeOutcome.NOT_DONE)
        assert cutter.lost == 1
        check_told(outcome, before, states.now(), after)
        if outcome is not ChangeOutcome.DONE:
            await near.ask(near.requests[kind])
        assert states.now() == after


@pytest.mark.parametrize("kind", at_the_owner_alone(b""), ids=lambda kind: kind.__name__)
async def test_owner_only_requests_are_refused_without_effect(tmp_path: Path, kind: type) -> None:
    async with prepared(tmp_path, coordinates=False) as (near, states, cutter):
        cutter.answers_to_lose, before = 1, states.now()
        code = await near.ask(near.of_the_owner[kind])
        assert code in OF_ANOTHER_OWNER
        assert states.now() == before and not cutter.lost
