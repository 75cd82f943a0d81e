"""Requests about replicas, leaders and controllers. A partition has a single replica, which the
broker places itself: there is nothing to elect or to move.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import BrokerError, PartitionNotFound
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.admin import (
    SUCCESS,
    Result,
    check_cluster,
    check_replicas,
    refusal,
    refusals_in,
)
from braidlog.protocols.kafka.api_versions import LEVELS
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code, CodeRefused
from braidlog.protocols.kafka.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from braidlog.protocols.kafka.wire.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from braidlog.protocols.kafka.wire.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from braidlog.protocols.kafka.wire.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from braidlog.protocols.kafka.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from braidlog.protocols.kafka.wire.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic

PARTITIONS_PER_TURN: Final = 500
ELECTIONS: Final = frozenset((0, 1))  # preferred, unclean
NO_QUORUM: Final = "there is no quorum of controllers: each broker keeps its own metadata"
FIXED_FEATURES: Final = "the versions of features cannot be changed"


def _partition(context: KafkaContext, name: bytes | None, index: int) -> Topic:
    """Return the topic of a partition: the right on the cluster covers all. Raises InvalidName,
    TopicNotFound, PartitionNotFound.
    """
    topic = context.broker.topics.get(context.names.topic_name(name))
    if not 0 <= index < len(topic.partitions):
        raise PartitionNotFound(f"{topic.name.topic} has no partition {index}")
    return topic


async def elect_leaders(context: KafkaContext, request: ElectLeadersRequest) -> KafkaAnswer:
    """Answer that no election is needed, for each partition that is named."""
    whole: Result = SUCCESS
    try:
        check_cluster(context)
        if request.election_type not in ELECTIONS:
            raise CodeRefused(Code.INVALID_REQUEST, f"no election of type {request.election_type}")
    except CodeRefused as error:
        whole = refusal(context, error)
    results = []
    for wanted in request.topic_partitions or ():
        partitions = []
        async for index in in_turns(wanted.partitions, PARTITIONS_PER_TURN):
            code, text = whole if whole[0] else _election(context, wanted.topic, index)
            partitions.append(
                PartitionResult(partition_id=index, error_code=code, error_message=text)
            )
        results.append(ReplicaElectionResult(topic=wanted.topic, partition_result=partitions))
    return KafkaAnswer(ElectLeadersResponse(error_code=whole[0], replica_election_results=results))


def _election(context: KafkaContext, name: bytes | None, index: int) -> Result:
    try:
        _partition(context, name, index)
    except BrokerError as error:
        return refusal(context, error)
    return Code.ELECTION_NOT_NEEDED, b"the only replica is the leader"


async def alter_reassignments(
    context: KafkaContext, request: AlterPartitionReassignmentsRequest
) -> KafkaAnswer:
    """Accept the present replica of each partition, and refuse all others."""
    reply = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    with refusals_in(context, reply):
        check_cluster(context)
        reply.responses = [
            ReassignableTopicResponse(
                name=wanted.name,
                partitions=[
                    _reassigned(context, wanted.name, partition)
                    async for partition in in_turns(wanted.partitions, PARTITIONS_PER_TURN)
                ],
            )
            for wanted in request.topics
        ]
    return KafkaAnswer(reply)


def _reassigned(
    context: KafkaContext, name: bytes | None, partition: ReassignablePartition
) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(
        partition_index=partition.partition_index, error_message=None
    )
    with refusals_in(context, result):
        _check_reassignment(context, name, partition)
    return result


def _check_reassignment(
    context: KafkaContext, name: bytes | None, wanted: ReassignablePartition
) -> None:
    """Check that a partition has the wanted replica already. Raises BrokerError, CodeRefused."""
    topic = _partition(context, name, wanted.partition_index)
    if wanted.replicas is None:
        raise CodeRefused(Code.NO_REASSIGNMENT_IN_PROGRESS, "no partition is being moved")
    check_replicas(context, wanted.replicas)
    owner = context.broker.placement.owner(topic.name)
    present = context.broker.placement.node_id if owner is None else owner.node_id
    if list(wanted.replicas) != [present]:
        text = "the brokers choose the place of a partition themselves"
        raise CodeRefused(Code.INVALID_REPLICA_ASSIGNMENT, text)


def list_reassignments(
    context: KafkaContext, request: ListPartitionReassignmentsRequest
) -> KafkaAnswer:
    """Answer that no partition is being moved."""
    reply = ListPartitionReassignmentsResponse(error_message=None)
    with refusals_in(context, reply):
        check_cluster(context)
    return KafkaAnswer(reply)


async def alter_log_dirs(context: KafkaContext, request: AlterReplicaLogDirsRequest) -> KafkaAnswer:
    """Accept the only data directory for partitions that exist, and refuse all others."""
    try:
        check_cluster(context)
        refused = Code.NONE
    except CodeRefused as error:
        refused, _ = refusal(context, error)
    ours = str(context.broker.data_dir).encode()
    codes: dict[bytes | None, list[AlterReplicaLogDirPartitionResult]] = {}
    async for path, name, index in in_turns(_placed(request), PARTITIONS_PER_TURN):
        code = refused or (Code.NONE if path == ours else Code.LOG_DIR_NOT_FOUND)
        if code == Code.NONE:
            try:
                _partition(context, name, index)
            except BrokerError as error:
                code = context.refused(error)
        codes.setdefault(name, []).append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        )
    results = [
        AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
        for name, partitions in codes.items()
    ]
    return KafkaAnswer(AlterReplicaLogDirsResponse(results=results))


def _placed(
    request: AlterReplicaLogDirsRequest,
) -> Iterator[tuple[bytes | None, bytes | None, int]]:
    """Yield (directory, topic, partition) of each wish."""
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield directory.path, topic.name, index


def describe_quorum(context: KafkaContext, request: DescribeQuorumRequest) -> KafkaAnswer:
    """Refuse, with a text that says why."""
    reply = DescribeQuorumResponse()
    with refusals_in(context, reply):
        check_cluster(context)
        raise CodeRefused(Code.UNSUPPORTED_VERSION, NO_QUORUM)
    return KafkaAnswer(reply)


def update_features(context: KafkaContext, request: UpdateFeaturesRequest) -> KafkaAnswer:
    """Refuse each change; to set a feature to its level is none."""
    reply = UpdateFeaturesResponse(error_message=None)
    with refusals_in(context, reply):
        check_cluster(context)
        for update in request.feature_updates:
            if LEVELS.get(update.feature or b"") != update.max_version_level:
                raise CodeRefused(Code.INVALID_UPDATE_VERSION, FIXED_FEATURES)
        reply.results = [
            UpdatableFeatureResult(feature=update.feature, error_message=None)
            for update in request.feature_updates
        ]
    return KafkaAnswer(reply)
