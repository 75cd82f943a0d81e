"""The api keys that are served, with their structures and versions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from braidlog.protocols.kafka.wire.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from braidlog.protocols.kafka.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from braidlog.protocols.kafka.wire.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from braidlog.protocols.kafka.wire.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from braidlog.protocols.kafka.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from braidlog.protocols.kafka.wire.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from braidlog.protocols.kafka.wire.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from braidlog.protocols.kafka.wire.create_acls import CreateAclsRequest, CreateAclsResponse
from braidlog.protocols.kafka.wire.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from braidlog.protocols.kafka.wire.create_topics import CreateTopicsRequest, CreateTopicsResponse
from braidlog.protocols.kafka.wire.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from braidlog.protocols.kafka.wire.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from braidlog.protocols.kafka.wire.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from braidlog.protocols.kafka.wire.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from braidlog.protocols.kafka.wire.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from braidlog.protocols.kafka.wire.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from braidlog.protocols.kafka.wire.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from braidlog.protocols.kafka.wire.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from braidlog.protocols.kafka.wire.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from braidlog.protocols.kafka.wire.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from braidlog.protocols.kafka.wire.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from braidlog.protocols.kafka.wire.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from braidlog.protocols.kafka.wire.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from braidlog.protocols.kafka.wire.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from braidlog.protocols.kafka.wire.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from braidlog.protocols.kafka.wire.fetch import FetchRequest, FetchResponse
from braidlog.protocols.kafka.wire.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from braidlog.protocols.kafka.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from braidlog.protocols.kafka.wire.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from braidlog.protocols.kafka.wire.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest, JoinGroupResponse
from braidlog.protocols.kafka.wire.leave_group import LeaveGroupRequest, LeaveGroupResponse
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest, ListGroupsResponse
from braidlog.protocols.kafka.wire.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from braidlog.protocols.kafka.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from braidlog.protocols.kafka.wire.metadata import MetadataRequest, MetadataResponse
from braidlog.protocols.kafka.wire.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from braidlog.protocols.kafka.wire.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from braidlog.protocols.kafka.wire.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from braidlog.protocols.kafka.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from braidlog.protocols.kafka.wire.produce import ProduceRequest, ProduceResponse
from braidlog.protocols.kafka.wire.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from braidlog.protocols.kafka.wire.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from braidlog.protocols.kafka.wire.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from braidlog.protocols.kafka.wire.share_fetch import (
    ShareFetchRequest,
    ShareFetchResponse,
)
from braidlog.protocols.kafka.wire.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from braidlog.protocols.kafka.wire.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest, SyncGroupResponse
from braidlog.protocols.kafka.wire.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


@dataclass(frozen=True, slots=True)
class Api:
    """An API key: versions `version_min` to `version_max` are served."""

    version_min: int
    version_max: int
    request: type[Struct]
    reply: type[Struct]


# The newest served version of each request; the request and its response.
SERVED_APIS: Sequence[tuple[int, type[Struct], type[Struct]]] = (
    (13, ProduceRequest, ProduceResponse),
    (18, FetchRequest, FetchResponse),
    (11, ListOffsetsRequest, ListOffsetsResponse),
    (13, MetadataRequest, MetadataResponse),
    (10, OffsetCommitRequest, OffsetCommitResponse),
    (10, OffsetFetchRequest, OffsetFetchResponse),
    (6, FindCoordinatorRequest, FindCoordinatorResponse),
    (9, JoinGroupRequest, JoinGroupResponse),
    (4, HeartbeatRequest, HeartbeatResponse),
    (5, LeaveGroupRequest, LeaveGroupResponse),
    (5, SyncGroupRequest, SyncGroupResponse),
    (6, DescribeGroupsRequest, DescribeGroupsResponse),
    (5, ListGroupsRequest, ListGroupsResponse),
    (1, SaslHandshakeRequest, SaslHandshakeResponse),
    (4, ApiVersionsRequest, ApiVersionsResponse),
    (7, CreateTopicsRequest, CreateTopicsResponse),
    (6, DeleteTopicsRequest, DeleteTopicsResponse),
    (2, DeleteRecordsRequest, DeleteRecordsResponse),
    (5, InitProducerIdRequest, InitProducerIdResponse),
    (4, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    (4, DescribeConfigsRequest, DescribeConfigsResponse),
    (2, AlterConfigsRequest, AlterConfigsResponse),
    (5, DescribeLogDirsRequest, DescribeLogDirsResponse),
    (2, SaslAuthenticateRequest, SaslAuthenticateResponse),
    (3, CreatePartitionsRequest, CreatePartitionsResponse),
    (2, DeleteGroupsRequest, DeleteGroupsResponse),
    (1, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    (3, DescribeAclsRequest, DescribeAclsResponse),
    (3, CreateAclsRequest, CreateAclsResponse),
    (3, DeleteAclsRequest, DeleteAclsResponse),
    (2, DescribeClusterRequest, DescribeClusterResponse),
    (1, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    (1, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    (0, OffsetDeleteRequest, OffsetDeleteResponse),
    (2, ElectLeadersRequest, ElectLeadersResponse),
    (1, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    (0, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    (2, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    (2, DescribeQuorumRequest, DescribeQuorumResponse),
    (2, UpdateFeaturesRequest, UpdateFeaturesResponse),
    (1, DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    (1, AlterClientQuotasRequest, AlterClientQuotasResponse),
    (0, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
    (0, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
    (0, DescribeProducersRequest, DescribeProducersResponse),
    (0, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    (1, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse),
    (1, ShareGroupDescribeRequest, ShareGroupDescribeResponse),
    (2, ShareFetchRequest, ShareFetchResponse),
    (2, ShareAcknowledgeRequest, ShareAcknowledgeResponse),
    (1, DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse),
    (0, AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse),
    (0, DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse),
)

APIS: Mapping[int, Api] = {
    request.KEY: Api(request.VERSIONS[0], newest, request, reply)
    for newest, request, reply in SERVED_APIS
}


# The requests that are answered, by api key and version.
SERVED = frozenset(
    (key, version)
    for key, api in APIS.items()
    for version in range(api.version_min, api.version_max + 1)
)
# Those in which headers and structures end with tagged fields (KIP-482).
FLEXIBLE = frozenset(
    (key, version) for key, version in SERVED if version >= APIS[key].request.FLEXIBLE
)


def is_served(api_key: int, version: int) -> bool:
    """Return True if requests of that key and version are answered."""
    return (api_key, version) in SERVED


def ranges() -> list[ApiVersion]:
    """Return the served versions of each key, for ApiVersions."""
    return [
        ApiVersion(api_key=key, min_version=api.version_min, max_version=api.version_max)
        for key, api in sorted(APIS.items())
    ]
