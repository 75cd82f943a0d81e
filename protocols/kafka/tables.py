"""What is served: each api key, its versions, and the fields of its requests and answers.

Up to the last version before the flexible ones. Layouts: Kafka protocol guide, "Kafka protocol
primitive types" and "Messages"; schemas of apache/kafka 3.9. Version 0 of most requests, and every
version of Produce, is read by hand in `decoding.py`.
"""

from collections.abc import Mapping, Sequence

from braidlog.protocols.kafka import messages as m
from braidlog.protocols.kafka.fields import (
    BOOL,
    I8,
    I16,
    I32,
    I64,
    NOTHING,
    RECORDS,
    TEXT,
    Api,
    Array,
    ByPartition,
    Field,
    ignored,
    table,
)
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
from braidlog.protocols.kafka.wire.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from braidlog.protocols.kafka.wire.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest, SyncGroupResponse

PRODUCE = Api(
    8,
    table(
        m.ProduceRequest,
        Field("transactional_id", TEXT, since=3),
        Field("acks", I16),
        Field("timeout_ms", I32),
        Field("topics", ByPartition(RECORDS)),
    ),
    table(
        m.ProduceReply,
        Field(
            "topics",
            ByPartition(
                table(
                    m.Produced,
                    Field("error", I16),
                    Field("base_offset", I64),
                    Field("append_ms", I64, since=2),
                    Field("log_start_offset", I64, since=5),
                    ignored(Array(NOTHING), since=8, value=()),  # Which records were wrong.
                    Field("message", TEXT, since=8),
                )
            ),
        ),
        ignored(I32, since=1),  # Throttle time.
    ),
)

FETCH = Api(
    11,
    table(
        m.FetchRequest,
        Field("replica_id", I32),
        Field("wait_ms_max", I32),
        Field("bytes_min", I32),
        Field("bytes_max", I32, since=3),
        ignored(I8, since=4),  # Isolation: there are no transactions.
        ignored(I32, since=7),  # Session id and epoch: sessions are declined.
        ignored(I32, since=7),
        Field(
            "topics",
            ByPartition(
                table(
                    m.FetchTarget,
                    ignored(I32, since=9),  # Leader epoch.
                    Field("offset", I64),
                    ignored(I64, since=5),  # Log start of a follower.
                    Field("bytes_max", I32),
                )
            ),
        ),
        ignored(ByPartition(NOTHING), since=7, value={}),  # Forgotten by the session.
        ignored(TEXT, since=11, value=b""),  # Rack.
    ),
    table(
        m.FetchReply,
        ignored(I32, since=1),  # Throttle time.
        ignored(I16, since=7),
        ignored(I32, since=7),  # Session 0: the client sends whole fetches.
        Field(
            "topics",
            ByPartition(
                table(
                    m.Fetched,
                    Field("error", I16),
                    Field("high_watermark", I64),
                    Field("high_watermark", I64, since=4),  # What is stable: no transactions.
                    Field("log_start_offset", I64, since=5),
                    ignored(Array(NOTHING, nullable=True), since=4, value=None),  # Aborted.
                    ignored(I32, since=11, value=-1),  # Replica to read from instead.
                    Field("parts", RECORDS),
                )
            ),
        ),
    ),
)

OFFSETS = Api(
    5,
    table(
        m.OffsetsRequest,
        Field("replica_id", I32),
        ignored(I8, since=2),  # Isolation.
        Field(
            "topics",
            ByPartition(
                table(
                    m.OffsetsTarget,
                    ignored(I32, since=4),  # Leader epoch.
                    Field("time_ms", I64),
                    Field("offsets_max", I32, until=0),
                )
            ),
        ),
    ),
    table(
        m.OffsetsReply,
        ignored(I32, since=2),  # Throttle time.
        Field(
            "topics",
            ByPartition(
                table(
                    m.OffsetsFound,
                    Field("error", I16),
                    Field("offsets", Array(I64), until=0),
                    Field("time_ms", I64, since=1),
                    Field("offset", I64, since=1),
                    ignored(I32, since=4, value=-1),  # Leader epoch.
                )
            ),
        ),
    ),
)

ADDRESS = (Field("node_id", I32), Field("host", TEXT), Field("port", I32))

METADATA = Api(
    8,
    table(
        m.MetadataRequest,
        Field("topics", Array(TEXT, nullable=True)),
        Field("auto_create", BOOL, since=4),
        ignored(BOOL, since=8),  # Whether to tell which operations are allowed.
        ignored(BOOL, since=8),
    ),
    table(
        m.MetadataReply,
        ignored(I32, since=3),  # Throttle time.
        Field(
            "brokers",
            Array(table(m.BrokerAddress, *ADDRESS, ignored(TEXT, since=1, value=None))),  # Rack.
        ),
        Field("cluster_id", TEXT, since=2),
        Field("controller_id", I32, since=1),
        Field(
            "topics",
            Array(
                table(
                    m.TopicMetadata,
                    Field("error", I16),
                    Field("name", TEXT),
                    ignored(BOOL, since=1, value=False),  # Whether it is the broker's own.
                    Field(
                        "partitions",
                        Array(
                            table(
                                m.PartitionMetadata,
                                Field("error", I16),
                                Field("index", I32),
                                Field("leader", I32),
                                ignored(I32, since=7, value=-1),  # Leader epoch.
                                Field("replicas", Array(I32)),
                                Field("isr", Array(I32)),
                                ignored(Array(I32), since=5, value=()),  # Offline replicas.
                            )
                        ),
                    ),
                    ignored(I32, since=8, value=-(2**31)),  # Operations: not told.
                )
            ),
        ),
        ignored(I32, since=8, value=-(2**31)),
    ),
)

OFFSET_COMMIT = Api(
    7,
    table(
        m.OffsetCommitRequest,
        Field("group", TEXT),
        Field("generation", I32, since=1),
        Field("consumer_id", TEXT, since=1),
        Field("instance_id", TEXT, since=7),
        ignored(I64, since=2, until=4, value=-1),  # How long to keep it: for ever.
        Field(
            "topics",
            ByPartition(
                table(
                    m.CommitTarget,
                    Field("offset", I64),
                    ignored(I32, since=6),  # Leader epoch.
                    Field("time_ms", I64, since=1, until=1),
                    Field("metadata", TEXT),
                )
            ),
        ),
    ),
    table(
        m.OffsetCommitReply,
        ignored(I32, since=3),  # Throttle time.
        Field("topics", ByPartition(I16)),
    ),
)

OFFSET_FETCH = Api(
    5,
    table(
        m.OffsetFetchRequest,
        Field("group", TEXT),
        Field("topics", ByPartition(NOTHING, nullable=True)),
    ),
    table(
        m.OffsetFetchReply,
        ignored(I32, since=3),  # Throttle time.
        Field(
            "topics",
            ByPartition(
                table(
                    m.CommittedOffset,
                    Field("offset", I64),
                    ignored(I32, since=5, value=-1),  # Leader epoch.
                    Field("metadata", TEXT),
                    Field("error", I16),
                )
            ),
        ),
        Field("error", I16, since=2),
    ),
)

CONSUMER_METADATA = Api(
    2,
    table(m.ConsumerMetadataRequest, Field("group", TEXT), Field("key_type", I8, since=1)),
    table(
        m.ConsumerMetadataReply,
        ignored(I32, since=1),  # Throttle time.
        Field("error", I16),
        Field("message", TEXT, since=1),
        Field("coordinator", table(m.BrokerAddress, *ADDRESS)),
    ),
)

OFFSET_FOR_LEADER_EPOCH = Api(
    3,
    table(
        m.OffsetForLeaderEpochRequest,
        ignored(I32, since=3),  # Replica id.
        Field(
            "topics",
            ByPartition(
                table(
                    m.EpochTarget,
                    ignored(I32, since=2, value=-1),  # The leader's epoch that the client knows.
                    Field("epoch", I32),
                )
            ),
        ),
    ),
    table(
        m.OffsetForLeaderEpochReply,
        ignored(I32, since=2),  # Throttle time.
        Field(
            "topics",
            Array(
                table(
                    m.EpochEndsOf,
                    Field("name", TEXT),
                    Field(
                        "partitions",
                        Array(
                            table(
                                m.EpochEnd,
                                Field("error", I16),
                                Field("index", I32),
                                Field("epoch", I32, since=1),
                                Field("end_offset", I64),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)

# The newest version that is served of each request, and the response.
GENERATED: Sequence[tuple[int, type[Struct], type[Struct]]] = (
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
    (3, DescribeConfigsRequest, DescribeConfigsResponse),
    (1, AlterConfigsRequest, AlterConfigsResponse),
    (1, DescribeLogDirsRequest, DescribeLogDirsResponse),
    (1, SaslAuthenticateRequest, SaslAuthenticateResponse),
    (1, CreatePartitionsRequest, CreatePartitionsResponse),
    (1, DeleteGroupsRequest, DeleteGroupsResponse),
    (0, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
)

APIS: Mapping[int, Api] = {
    0: PRODUCE,
    1: FETCH,
    2: OFFSETS,
    3: METADATA,
    8: OFFSET_COMMIT,
    9: OFFSET_FETCH,
    10: CONSUMER_METADATA,
    23: OFFSET_FOR_LEADER_EPOCH,
    **{request.KEY: Api(newest, request, reply) for newest, request, reply in GENERATED},
}


# The requests that are answered, by api key and version.
SERVED = frozenset(
    (key, version) for key, api in APIS.items() for version in range(api.version_max + 1)
)


def is_served(api_key: int, version: int) -> bool:
    """Whether requests of that key and version are answered."""
    return (api_key, version) in SERVED


def ranges() -> list[ApiVersion]:
    """The versions served of each key, for ApiVersions."""
    return [
        ApiVersion(api_key=key, max_version=api.version_max) for key, api in sorted(APIS.items())
    ]
