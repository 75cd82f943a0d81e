"""The api keys that are served, with their structures and versions: up to the last version before
the flexible ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from braidlog.protocols.kafka.wire.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from braidlog.protocols.kafka.wire.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from braidlog.protocols.kafka.wire.create_topics import CreateTopicsRequest, CreateTopicsResponse
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from braidlog.protocols.kafka.wire.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from braidlog.protocols.kafka.wire.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
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
from braidlog.protocols.kafka.wire.metadata import MetadataRequest, MetadataResponse
from braidlog.protocols.kafka.wire.offset_commit import OffsetCommitRequest, OffsetCommitResponse
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
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest, SyncGroupResponse


@dataclass(frozen=True, slots=True)
class Api:
    """An API key: versions 0 to `version_max` are served."""

    version_max: int
    request: type[Struct]
    reply: type[Struct]


# The newest served version of each request; the request and its response.
SERVED_APIS: Sequence[tuple[int, type[Struct], type[Struct]]] = (
    (8, ProduceRequest, ProduceResponse),
    (11, FetchRequest, FetchResponse),
    (5, ListOffsetsRequest, ListOffsetsResponse),
    (8, MetadataRequest, MetadataResponse),
    (7, OffsetCommitRequest, OffsetCommitResponse),
    (5, OffsetFetchRequest, OffsetFetchResponse),
    (2, FindCoordinatorRequest, FindCoordinatorResponse),
    (5, JoinGroupRequest, JoinGroupResponse),
    (3, HeartbeatRequest, HeartbeatResponse),
    (3, LeaveGroupRequest, LeaveGroupResponse),
    (3, SyncGroupRequest, SyncGroupResponse),
    (4, DescribeGroupsRequest, DescribeGroupsResponse),
    (2, ListGroupsRequest, ListGroupsResponse),
    (1, SaslHandshakeRequest, SaslHandshakeResponse),
    (2, ApiVersionsRequest, ApiVersionsResponse),
    (4, CreateTopicsRequest, CreateTopicsResponse),
    (3, DeleteTopicsRequest, DeleteTopicsResponse),
    (1, DeleteRecordsRequest, DeleteRecordsResponse),
    (1, InitProducerIdRequest, InitProducerIdResponse),
    (3, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    (3, DescribeConfigsRequest, DescribeConfigsResponse),
    (1, AlterConfigsRequest, AlterConfigsResponse),
    (1, DescribeLogDirsRequest, DescribeLogDirsResponse),
    (1, SaslAuthenticateRequest, SaslAuthenticateResponse),
    (1, CreatePartitionsRequest, CreatePartitionsResponse),
    (1, DeleteGroupsRequest, DeleteGroupsResponse),
    (0, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
)

APIS: Mapping[int, Api] = {
    request.KEY: Api(newest, request, reply) for newest, request, reply in SERVED_APIS
}


# The requests that are answered, by api key and version.
SERVED = frozenset(
    (key, version) for key, api in APIS.items() for version in range(api.version_max + 1)
)


def is_served(api_key: int, version: int) -> bool:
    """Return True if requests of that key and version are answered."""
    return (api_key, version) in SERVED


def ranges() -> list[ApiVersion]:
    """Return the served versions of each key, for ApiVersions."""
    return [
        ApiVersion(api_key=key, max_version=api.version_max) for key, api in sorted(APIS.items())
    ]
