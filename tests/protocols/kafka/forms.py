"""Short forms of Kafka's messages for tests: partitions are dicts of dicts, fields are positional.

`full` gives the generated structure of a form, and `short` the form of a structure.
"""

from collections.abc import Callable, Iterable
from typing import Any

from braidlog.protocols.kafka.by_partition import by_partition
from braidlog.protocols.kafka.context import BrokerAddress
from braidlog.protocols.kafka.messages import (
    ByPartition,
    ProduceRequest,
    Request,
    RequestBody,
)
from braidlog.protocols.kafka.schema import NO_UUID, Struct
from braidlog.protocols.kafka.wire import (
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from tests.protocols.kafka.short_messages import (
    CommitTarget,
    CommittedOffset,
    ConsumerMetadataReply,
    ConsumerMetadataRequest,
    EpochEnd,
    EpochEndsOf,
    EpochTarget,
    Fetched,
    FetchReply,
    FetchRequest,
    FetchTarget,
    MetadataReply,
    MetadataRequest,
    OffsetCommitReply,
    OffsetCommitRequest,
    OffsetFetchReply,
    OffsetFetchRequest,
    OffsetForLeaderEpochReply,
    OffsetForLeaderEpochRequest,
    OffsetsFound,
    OffsetsReply,
    OffsetsRequest,
    OffsetsTarget,
    PartitionMetadata,
    Produced,
    ProduceReply,
    TopicMetadata,
)

__all__ = [
    "BrokerAddress",
    "ByPartition",
    "CommitTarget",
    "CommittedOffset",
    "ConsumerMetadataReply",
    "ConsumerMetadataRequest",
    "EpochEnd",
    "EpochEndsOf",
    "EpochTarget",
    "FetchReply",
    "FetchRequest",
    "FetchTarget",
    "Fetched",
    "MetadataReply",
    "MetadataRequest",
    "OffsetCommitReply",
    "OffsetCommitRequest",
    "OffsetFetchReply",
    "OffsetFetchRequest",
    "OffsetForLeaderEpochReply",
    "OffsetForLeaderEpochRequest",
    "OffsetsFound",
    "OffsetsReply",
    "OffsetsRequest",
    "OffsetsTarget",
    "PartitionMetadata",
    "ProduceReply",
    "ProduceRequest",
    "Produced",
    "Reply",
    "Request",
    "RequestBody",
    "TopicMetadata",
    "full",
    "handled",
    "short",
]


Reply = Struct | ProduceReply | FetchReply
TOPIC_ID_BYTES = 16


def _topics(
    topics: ByPartition[Any], topic: type, make: Callable[[int, Any], object], name: str = "name"
) -> list[Any]:
    return [
        topic(**_named(key, name), partitions=[make(at, value) for at, value in parts.items()])
        for key, parts in topics.items()
    ]


def _named(key: bytes | None, name: str = "name") -> dict[str, bytes | None]:
    """Return the fields for a topic: a name of 16 bytes is also its id."""
    is_id = key is not None and len(key) == TOPIC_ID_BYTES
    return {name: key, "topic_id": key} if is_id else {name: key}


def _wrong(place: int, reason: bytes | None) -> object:
    make = produce.BatchIndexAndErrorMessage
    return make(batch_index=place, batch_index_error_message=reason)


def _key(topic: Any, name: str = "name") -> bytes | None:
    """Return the name of a topic, or its id if the version has no name."""
    topic_id: bytes = getattr(topic, "topic_id", NO_UUID)
    return getattr(topic, name) if topic_id == NO_UUID else topic_id  # type: ignore[no-any-return]


def _split(topics: Iterable[Any], read: Callable[[Any], Any], **names: str) -> ByPartition[Any]:
    name, index = names.get("name", "name"), names.get("index", "partition_index")
    return by_partition(
        (_key(topic, name), getattr(part, index), read(part))
        for topic in topics
        for part in topic.partitions
    )


def full(body: Any) -> Any:
    """Return the generated structure of a short form; any other message as it is."""
    make = FULL.get(type(body))
    return body if make is None else make(body)


def handled(body: Any) -> Any:
    """Return a request or reply as handlers know it: a Produce has a class of its own."""
    return body if isinstance(body, ProduceRequest) else full(body)


def short(body: Any, version: int = 0) -> Any:
    """Return the short form of a generated structure; any other message as it is."""
    make = SHORT.get(type(body))
    message = body if make is None else make(body)
    if isinstance(message, OffsetCommitRequest | OffsetFetchRequest):
        message.version = version
    return message


FULL: dict[type, Callable[[Any], Any]] = {
    ProduceRequest: lambda body: produce.ProduceRequest(
        transactional_id=body.transactional_id,
        acks=body.acks,
        timeout_ms=body.timeout_ms,
        topic_data=[
            produce.TopicProduceData(
                **_named(name),
                partition_data=[
                    produce.PartitionProduceData(index=index, records=data)
                    for index, data in parts.items()
                ],
            )
            for name, parts in body.topics.items()
        ],
    ),
    ProduceReply: lambda body: produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                **_named(name),
                partition_responses=[
                    produce.PartitionProduceResponse(
                        index=index,
                        error_code=part.error,
                        base_offset=part.base_offset,
                        log_append_time_ms=part.append_ms,
                        log_start_offset=part.log_start_offset,
                        error_message=part.message,
                        record_errors=[_wrong(*wrong) for wrong in part.wrong],
                    )
                    for index, part in parts.items()
                ],
            )
            for name, parts in body.topics.items()
        ]
    ),
    FetchRequest: lambda body: fetch.FetchRequest(
        replica_id=body.replica_id,
        max_wait_ms=body.wait_ms_max,
        min_bytes=body.bytes_min,
        max_bytes=body.bytes_max,
        topics=_topics(
            body.topics,
            fetch.FetchTopic,
            lambda index, part: fetch.FetchPartition(
                partition=index,
                fetch_offset=part.offset,
                partition_max_bytes=part.bytes_max,
                current_leader_epoch=part.epoch,
            ),
            "topic",
        ),
    ),
    FetchReply: lambda body: fetch.FetchResponse(
        responses=_topics(
            body.topics,
            fetch.FetchableTopicResponse,
            lambda index, part: fetch.PartitionData(
                partition_index=index,
                error_code=part.error,
                high_watermark=part.high_watermark,
                last_stable_offset=part.high_watermark,
                log_start_offset=part.log_start_offset,
                aborted_transactions=None,
                records=part.parts,
            ),
            "topic",
        )
    ),
    OffsetsRequest: lambda body: list_offsets.ListOffsetsRequest(
        replica_id=body.replica_id,
        topics=_topics(
            body.topics,
            list_offsets.ListOffsetsTopic,
            lambda index, part: list_offsets.ListOffsetsPartition(
                partition_index=index, timestamp=part.time_ms, max_num_offsets=part.offsets_max
            ),
        ),
    ),
    OffsetsReply: lambda body: list_offsets.ListOffsetsResponse(
        topics=_topics(
            body.topics,
            list_offsets.ListOffsetsTopicResponse,
            lambda index, part: list_offsets.ListOffsetsPartitionResponse(
                partition_index=index,
                error_code=part.error,
                old_style_offsets=part.offsets,
                timestamp=part.time_ms,
                offset=part.offset,
            ),
        )
    ),
    MetadataRequest: lambda body: metadata.MetadataRequest(
        topics=body.topics and [metadata.MetadataRequestTopic(name=name) for name in body.topics],
        allow_auto_topic_creation=body.auto_create,
    ),
    MetadataReply: lambda body: metadata.MetadataResponse(
        brokers=[
            metadata.MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port)
            for node in body.brokers
        ],
        cluster_id=body.cluster_id,
        controller_id=body.controller_id,
        topics=[
            metadata.MetadataResponseTopic(
                error_code=topic.error,
                name=topic.name,
                partitions=[
                    metadata.MetadataResponsePartition(
                        error_code=part.error,
                        partition_index=part.index,
                        leader_id=part.leader,
                        replica_nodes=part.replicas,
                        isr_nodes=part.isr,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    ),
    OffsetCommitRequest: lambda body: offset_commit.OffsetCommitRequest(
        group_id=body.group,
        generation_id_or_member_epoch=body.generation,
        member_id=body.consumer_id,
        group_instance_id=body.instance_id,
        topics=_topics(
            body.topics,
            offset_commit.OffsetCommitRequestTopic,
            lambda index, part: offset_commit.OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=part.offset,
                commit_timestamp=-1 if part.time_ms is None else part.time_ms,
                committed_metadata=part.metadata,
            ),
        ),
    ),
    OffsetCommitReply: lambda body: offset_commit.OffsetCommitResponse(
        topics=_topics(
            body.topics,
            offset_commit.OffsetCommitResponseTopic,
            lambda index, code: offset_commit.OffsetCommitResponsePartition(
                partition_index=index, error_code=code
            ),
        )
    ),
    OffsetFetchRequest: lambda body: offset_fetch.OffsetFetchRequest(
        group_id=body.group,
        topics=None
        if body.topics is None
        else [
            offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes))
            for name, indexes in body.topics.items()
        ],
    ),
    OffsetFetchReply: lambda body: offset_fetch.OffsetFetchResponse(
        topics=_topics(
            body.topics,
            offset_fetch.OffsetFetchResponseTopic,
            lambda index, part: offset_fetch.OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=part.offset,
                metadata=part.metadata,
                error_code=part.error,
            ),
        ),
        error_code=body.error,
    ),
    ConsumerMetadataRequest: lambda body: find_coordinator.FindCoordinatorRequest(
        key=body.group, key_type=body.key_type
    ),
    ConsumerMetadataReply: lambda body: find_coordinator.FindCoordinatorResponse(
        error_code=body.error,
        error_message=body.message,
        node_id=body.coordinator.node_id,
        host=body.coordinator.host,
        port=body.coordinator.port,
    ),
    OffsetForLeaderEpochRequest: lambda body: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=_topics(
            body.topics,
            offset_for_leader_epoch.OffsetForLeaderTopic,
            lambda index, part: offset_for_leader_epoch.OffsetForLeaderPartition(
                partition=index, leader_epoch=part.epoch
            ),
            "topic",
        )
    ),
}
SHORT: dict[type, Callable[[Any], Any]] = {
    produce.ProduceRequest: lambda body: ProduceRequest(
        body.acks,
        body.timeout_ms,
        by_partition(
            (_key(topic), part.index, memoryview(b"") if part.records is None else part.records)
            for topic in body.topic_data
            for part in topic.partition_data
        ),
        body.transactional_id or None,
    ),
    produce.ProduceResponse: lambda body: ProduceReply(
        by_partition(
            (
                _key(topic),
                row.index,
                Produced(
                    row.error_code,
                    row.base_offset,
                    row.log_append_time_ms,
                    row.log_start_offset,
                    row.error_message,
                    [(bad.batch_index, bad.batch_index_error_message) for bad in row.record_errors],
                ),
            )
            for topic in body.responses
            for row in topic.partition_responses
        )
    ),
    fetch.FetchRequest: lambda body: FetchRequest(
        body.replica_id,
        body.max_wait_ms,
        body.min_bytes,
        _split(
            body.topics,
            lambda part: FetchTarget(
                part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch
            ),
            name="topic",
            index="partition",
        ),
        body.max_bytes,
    ),
    fetch.FetchResponse: lambda body: FetchReply(
        _split(
            body.responses,
            lambda part: Fetched(
                part.error_code,
                part.high_watermark,
                [part.records] if part.records else [],
                len(part.records),
                part.log_start_offset,
            ),
            name="topic",
        )
    ),
    list_offsets.ListOffsetsRequest: lambda body: OffsetsRequest(
        body.replica_id,
        _split(body.topics, lambda part: OffsetsTarget(part.timestamp, part.max_num_offsets)),
    ),
    list_offsets.ListOffsetsResponse: lambda body: OffsetsReply(
        _split(
            body.topics,
            lambda part: OffsetsFound(
                part.error_code, part.old_style_offsets, part.timestamp, part.offset
            ),
        )
    ),
    metadata.MetadataRequest: lambda body: MetadataRequest(
        None if body.topics is None else [topic.name for topic in body.topics],
        body.allow_auto_topic_creation,
    ),
    metadata.MetadataResponse: lambda body: MetadataReply(
        [BrokerAddress(node.node_id, node.host, node.port) for node in body.brokers],
        [
            TopicMetadata(
                topic.error_code,
                topic.name,
                [
                    PartitionMetadata(
                        part.error_code,
                        part.partition_index,
                        part.leader_id,
                        part.replica_nodes,
                        part.isr_nodes,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in body.topics
        ],
        body.cluster_id,
        body.controller_id,
    ),
    offset_commit.OffsetCommitRequest: lambda body: OffsetCommitRequest(
        0,
        body.group_id,
        body.generation_id_or_member_epoch,
        body.member_id,
        _split(
            body.topics,
            lambda part: CommitTarget(
                part.committed_offset,
                part.committed_metadata,
                None if part.commit_timestamp == -1 else part.commit_timestamp,
            ),
        ),
        body.group_instance_id,
    ),
    offset_commit.OffsetCommitResponse: lambda body: OffsetCommitReply(
        _split(body.topics, lambda part: part.error_code)
    ),
    offset_fetch.OffsetFetchRequest: lambda body: OffsetFetchRequest(
        0,
        body.group_id,
        None
        if body.topics is None
        else {
            name: list(indexes)
            for name, indexes in by_partition(
                (topic.name, index, None)
                for topic in body.topics
                for index in topic.partition_indexes
            ).items()
        },
    ),
    offset_fetch.OffsetFetchResponse: lambda body: OffsetFetchReply(
        _split(
            body.topics,
            lambda part: CommittedOffset(part.committed_offset, part.metadata, part.error_code),
        ),
        body.error_code,
    ),
    find_coordinator.FindCoordinatorRequest: lambda body: ConsumerMetadataRequest(
        body.key, body.key_type
    ),
    find_coordinator.FindCoordinatorResponse: lambda body: ConsumerMetadataReply(
        body.error_code,
        BrokerAddress(body.node_id, body.host, body.port),
        body.error_message or None,
    ),
    offset_for_leader_epoch.OffsetForLeaderEpochResponse: lambda body: OffsetForLeaderEpochReply(
        [
            EpochEndsOf(
                topic.topic,
                [
                    EpochEnd(part.error_code, part.partition, part.end_offset, part.leader_epoch)
                    for part in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    ),
}
