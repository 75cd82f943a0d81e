"""Rows of Kafka's flexible versions (KIP-482): the requests of `rows_kafka.py`, written again by
the tables of the product.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from braidlog.protocols.kafka.codec import read, write
from braidlog.protocols.kafka.fields import FieldReader, Writer
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.tables import APIS, FLEXIBLE
from braidlog.protocols.kafka.wire import (
    alter_client_quotas,
    delete_topics,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    metadata,
    offset_fetch,
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
from conformance.hostile.rows import CommandRow, ConnectionKind, SessionField
from conformance.hostile.rows_kafka_shares import HOSTILE, SHARES, TOPIC_ID, more_requests


def _produce(body: Any) -> None:
    body.topic_data[0].topic_id = TOPIC_ID


def _fetch(body: Any) -> None:
    body.topics[0].topic_id = TOPIC_ID


def _commit(body: Any) -> None:
    body.topics[0].topic_id = TOPIC_ID


def _committed(body: Any) -> None:
    topic = offset_fetch.OffsetFetchRequestTopics(
        name=HOSTILE, topic_id=TOPIC_ID, partition_indexes=[0]
    )
    group = offset_fetch.OffsetFetchRequestGroup
    body.groups = [
        group(group_id=b"hostile group", member_id=None, topics=[topic]),
        group(group_id=b"hostile group", member_id=None, topics=None),
    ]


def _find_coordinator(body: Any) -> None:
    body.coordinator_keys = [body.key]


def _list_groups(body: Any) -> None:
    body.states_filter, body.types_filter = [b"Stable", b"Empty"], [b"classic", b"share"]


def _delete_topics(body: Any) -> None:
    body.topics = [delete_topics.DeleteTopicState(name=b"hostile-passing")]


# Puts the values of later fields into a request, by key.
LATER: Final[Mapping[int, Callable[[Any], None]]] = {
    0: _produce,
    1: _fetch,
    8: _commit,
    9: _committed,
    10: _find_coordinator,
    16: _list_groups,
    20: _delete_topics,
}
# Requests that no client of earlier releases sends, by key.
NEW: Final[Mapping[int, Struct]] = {
    68: ConsumerGroupHeartbeatRequest(
        group_id=b"modern",
        member_id=b"m",
        instance_id=b"i",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[HOSTILE],
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
    55: describe_quorum.DescribeQuorumRequest(
        topics=[
            describe_quorum.DescribeQuorumRequestTopicData(
                topic_name=b"__cluster_metadata",
                partitions=[describe_quorum.DescribeQuorumRequestPartitionData()],
            )
        ]
    ),
    57: UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature=b"f")]),
    48: DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=b"user", match_type=2, match=None)]
    ),
    49: alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.AlterClientQuotasRequestEntryData(
                entity=[alter_client_quotas.EntityData(entity_type=b"user", entity_name=b"u")],
                ops=[alter_client_quotas.OpData(key=b"consumer_byte_rate", value=1e6)],
            )
        ]
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
    **SHARES,
}
METADATA, NAMES_BY_ID = 3, 12  # A version of Metadata whose answers have ids of topics.


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
    for name, request, since in more_requests():
        api = APIS[request.KEY]
        for version in range(max(since, request.VERSIONS[0]), api.version_max + 1):
            yield CommandRow(f"{name} v{version}", _frame(request.KEY, version, request))


def by_id(rows: Iterable[CommandRow]) -> ConnectionKind:
    """Return the connections whose frames have the id of the topic `hostile`: they ask for the id
    first.
    """
    topic = metadata.MetadataRequestTopic(name=HOSTILE)
    opening = _frame(METADATA, NAMES_BY_ID, metadata.MetadataRequest(topics=[topic]))
    name = bytes([len(HOSTILE) + 1]) + HOSTILE  # The id follows in the answer.
    session = SessionField(0, 0, len(TOPIC_ID), after=name, marker=TOPIC_ID)
    known = [row for row in rows if TOPIC_ID in row.frame]
    return ConnectionKind(KAFKA, [opening], ["metadata"], known, session)


def _frame(key: int, version: int, request: Struct) -> bytes:
    out = Writer()
    write(out, request, version)
    head = struct.pack(">hhi", key, version, 7) + kafka.string(b"raw")
    head += b"\0" * ((key, version) in FLEXIBLE)
    return KAFKA.with_length(head + b"".join(map(bytes, out.parts())))
