"""Requests of Kafka's share groups, and further requests of other keys: those with a list or a kind
of resource that the first request of their key lacks.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    alter_share_group_offsets,
    consumer_group_heartbeat,
    create_topics,
    delete_share_group_offsets,
    describe_configs,
    describe_share_group_offsets,
    fetch,
    incremental_alter_configs,
    list_config_resources,
    metadata,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)

# Stands for the id of the topic `hostile`, which a connection asks for first. No text, so that the
# mutations of texts leave most ids alone.
TOPIC_ID: Final = bytes(range(0xE0, 0xF0))
HOSTILE: Final = b"hostile"
GROUP: Final = b"hostile-share"
MEMBER: Final = b"EAAAAAAAAAAAAAAAAAAAAA"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
TOPIC_KIND, BROKER_KIND, GROUP_KIND = 2, 4, 32
LEAVES: Final = -1
FETCH_SESSIONS: Final = 7  # The first version of Fetch that has sessions.
METADATA_BY_ID: Final = 10  # The first version of Metadata that takes ids.


def _heartbeat(epoch: int) -> share_group_heartbeat.ShareGroupHeartbeatRequest:
    return share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=MEMBER,
        member_epoch=epoch,
        rack_id=b"r",
        subscribed_topic_names=[HOSTILE],
    )


def _fetch(epoch: int, *types: int) -> share_fetch.ShareFetchRequest:
    batch = share_fetch.AcknowledgementBatch(
        first_offset=0, last_offset=max(len(types) - 1, 0), acknowledge_types=types
    )
    wanted = share_fetch.FetchPartition(acknowledgement_batches=[batch] if types else [])
    return share_fetch.ShareFetchRequest(
        group_id=GROUP,
        member_id=MEMBER,
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 16,
        max_records=3,
        batch_size=3,
        topics=[share_fetch.FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])],
        forgotten_topics_data=[share_fetch.ForgottenTopic(topic_id=TOPIC_ID, partitions=[1])],
    )


def _acknowledge(epoch: int, *types: int) -> share_acknowledge.ShareAcknowledgeRequest:
    batch = share_acknowledge.AcknowledgementBatch(
        first_offset=0, last_offset=len(types) - 1, acknowledge_types=types
    )
    named = share_acknowledge.AcknowledgePartition(acknowledgement_batches=[batch])
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id=MEMBER,
        share_session_epoch=epoch,
        is_renew_ack=RENEW in types,
        topics=[share_acknowledge.AcknowledgeTopic(topic_id=TOPIC_ID, partitions=[named])],
    )


def _group_settings(
    name: bytes, value: bytes
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    config = incremental_alter_configs.AlterableConfig(name=name, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=GROUP_KIND, resource_name=GROUP, configs=[config]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])


def _described() -> describe_share_group_offsets.DescribeShareGroupOffsetsRequest:
    topic = describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
        topic_name=HOSTILE, partitions=[0]
    )
    group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup
    groups = [group(group_id=GROUP, topics=[topic]), group(group_id=GROUP, topics=None)]
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=groups)


def _altered() -> alter_share_group_offsets.AlterShareGroupOffsetsRequest:
    place = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition()
    topic = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
        topic_name=HOSTILE, partitions=[place]
    )
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])


def _deleted() -> delete_share_group_offsets.DeleteShareGroupOffsetsRequest:
    topic = delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=HOSTILE)
    return delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])


# The first request of each key.
SHARES: Final[Mapping[int, Struct]] = {
    74: list_config_resources.ListConfigResourcesRequest(
        resource_types=[TOPIC_KIND, BROKER_KIND, GROUP_KIND]
    ),
    76: _heartbeat(0),
    77: share_group_describe.ShareGroupDescribeRequest(
        group_ids=[GROUP], include_authorized_operations=True
    ),
    78: _fetch(0),
    79: _acknowledge(1, ACCEPT),
    90: _described(),
    91: _altered(),
    92: _deleted(),
}


def _created() -> create_topics.CreateTopicsRequest:
    """Return a creation with assignments, which excludes a number of partitions."""
    place = create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    topic = create_topics.CreatableTopic(
        name=b"hostile-passing", num_partitions=-1, replication_factor=-1, assignments=[place]
    )
    return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def _forgetting() -> fetch.FetchRequest:
    """Return a fetch that begins a session and forgets a partition."""
    part = fetch.FetchPartition(partition_max_bytes=1 << 16)
    return fetch.FetchRequest(
        max_wait_ms=0,
        session_epoch=0,
        topics=[fetch.FetchTopic(topic=HOSTILE, topic_id=TOPIC_ID, partitions=[part])],
        forgotten_topics_data=[
            fetch.ForgottenTopic(topic=HOSTILE, topic_id=TOPIC_ID, partitions=[1])
        ],
    )


def _modern_heartbeat() -> consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
    held = consumer_group_heartbeat.TopicPartitions(topic_id=TOPIC_ID, partitions=[0])
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=b"modern", member_id=b"m", member_epoch=1, topic_partitions=[held]
    )


def more_requests() -> Iterator[tuple[str, Struct, int]]:
    """Yield (name, request, first version) of further requests."""
    for epoch in (0, 1, LEAVES):
        yield f"share heartbeat, epoch {epoch}", _heartbeat(epoch), 0
        yield f"share fetch, epoch {epoch}", _fetch(epoch, *([] if epoch == 0 else [ACCEPT])), 0
    for kind in (RELEASE, REJECT, RENEW):
        yield f"share acknowledgement of kind {kind}", _acknowledge(1, kind), 0
    yield "share acknowledgement of several kinds", _acknowledge(1, ACCEPT, 0, RELEASE), 0
    for name, value in (
        (b"share.auto.offset.reset", b"earliest"),
        (b"share.record.lock.duration.ms", b"15000"),
        (b"consumer.session.timeout.ms", b"45000"),
    ):
        yield f"group setting {name.decode()}", _group_settings(name, value), 0
    wanted = describe_configs.DescribeConfigsResource(
        resource_type=GROUP_KIND, resource_name=GROUP, configuration_keys=None
    )
    yield "settings of a group", describe_configs.DescribeConfigsRequest(resources=[wanted]), 0
    yield "fetch that forgets", _forgetting(), FETCH_SESSIONS
    yield "topic with assignments", _created(), 0
    yield "modern heartbeat with partitions", _modern_heartbeat(), 0
    named = metadata.MetadataRequestTopic(topic_id=TOPIC_ID, name=None)
    yield "metadata by id", metadata.MetadataRequest(topics=[named]), METADATA_BY_ID
