"""Rows of Kafka's flexible versions (KIP-482): the requests of `rows_kafka.py`, written again by
the tables of the product.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from braidlog.protocols.kafka.codec import read, write
from braidlog.protocols.kafka.fields import FieldReader, Writer
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.tables import APIS, FLEXIBLE
from braidlog.protocols.kafka.wire import (
    alter_client_quotas,
    describe_producers,
    describe_topic_partitions,
)
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
from braidlog.protocols.kafka.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from braidlog.protocols.kafka.wire.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.protocols.kafka.wire.create_acls import AclCreation, CreateAclsRequest
from braidlog.protocols.kafka.wire.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from braidlog.protocols.kafka.wire.describe_acls import DescribeAclsRequest
from braidlog.protocols.kafka.wire.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from braidlog.protocols.kafka.wire.describe_cluster import DescribeClusterRequest
from braidlog.protocols.kafka.wire.describe_quorum import DescribeQuorumRequest
from braidlog.protocols.kafka.wire.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from braidlog.protocols.kafka.wire.elect_leaders import ElectLeadersRequest, TopicPartitions
from braidlog.protocols.kafka.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from braidlog.protocols.kafka.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from braidlog.protocols.kafka.wire.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from conformance.clients.raw import kafka
from conformance.hostile.mutation import KAFKA
from conformance.hostile.rows import CommandRow


def _find_coordinator(body: Any) -> None:
    body.coordinator_keys = [body.key]


# Puts the values of later fields into a request, by key.
LATER: Final[Mapping[int, Callable[[Any], None]]] = {10: _find_coordinator}
# Requests that no client of earlier releases sends, by key.
NEW: Final[Mapping[int, Struct]] = {
    68: ConsumerGroupHeartbeatRequest(
        group_id=b"modern",
        member_id=b"m",
        instance_id=b"i",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[b"hostile"],
        server_assignor=b"range",
        topic_partitions=[],
    ),
    69: ConsumerGroupDescribeRequest(group_ids=[b"modern"]),
    29: DescribeAclsRequest(resource_name_filter=b"x", operation=1, permission_type=1),
    30: CreateAclsRequest(creations=[AclCreation(resource_name=b"x", principal=b"User:x")]),
    31: DeleteAclsRequest(filters=[DeleteAclsFilter(resource_name_filter=b"x")]),
    60: DescribeClusterRequest(),
    47: OffsetDeleteRequest(
        group_id=b"g",
        topics=[
            OffsetDeleteRequestTopic(name=b"hostile", partitions=[OffsetDeleteRequestPartition()])
        ],
    ),
    43: ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=b"hostile", partitions=[0])]),
    45: AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(name=b"hostile", partitions=[ReassignablePartition(replicas=[1])])
        ]
    ),
    46: ListPartitionReassignmentsRequest(topics=None),
    34: AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=b"/x", topics=[AlterReplicaLogDirTopic(name=b"hostile", partitions=[0])]
            )
        ]
    ),
    55: DescribeQuorumRequest(),
    57: UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature=b"f")]),
    48: DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=b"user", match_type=2, match=None)]
    ),
    49: alter_client_quotas.AlterClientQuotasRequest(
        entries=[alter_client_quotas.AlterClientQuotasRequestEntryData()]
    ),
    50: DescribeUserScramCredentialsRequest(users=[UserName(name=b"u")]),
    51: AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=b"u", mechanism=1)],
        upsertions=[ScramCredentialUpsertion(name=b"u", mechanism=2)],
    ),
    61: describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name=b"hostile", partition_indexes=[0])]
    ),
    75: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=b"hostile")], cursor=None
    ),
}


def flexible_rows(known: Mapping[int, int], bodies: Mapping[int, bytes]) -> Iterator[CommandRow]:
    """Yield a row for each served version above those known, by key. `bodies` has a request of the
    highest known version.
    """
    for key, api in APIS.items():
        request = NEW.get(key) or api.request()
        if key in known:
            request = read(api.request, FieldReader(memoryview(bodies[key])), known[key])
        LATER.get(key, lambda body: None)(request)
        for version in range(known.get(key, -1) + 1, api.version_max + 1):
            name = f"{type(request).__name__} v{version}"
            yield CommandRow(name, _frame(key, version, request))


def _frame(key: int, version: int, request: Struct) -> bytes:
    out = Writer()
    write(out, request, version)
    head = struct.pack(">hhi", key, version, 7) + kafka.string(b"raw")
    head += b"\0" * ((key, version) in FLEXIBLE)
    return KAFKA.with_length(head + b"".join(map(bytes, out.parts())))
