"""The requests, in order: a good one and bad ones of each key. Later cases build on earlier.

`TOPIC` has two partitions and three records with fixed times in the first; `GROUP` has a position.
Requests that name a topic by its id get the id from `ids`.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

from crc32c import crc32c

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    alter_configs,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from braidlog.storage.formats.kafka.records import varint_bytes
from conformance.golden.asking import MISSING_ID
from conformance.golden.case import MISSING, TOPIC, Build, Case, Ids, same
from conformance.golden.cluster_cases import CLUSTER_CASES
from conformance.golden.member_cases import MEMBER_CASES, SHARED_INDEX
from conformance.golden.refused_cases import REFUSED_CASES

GROUP = b"golden-group"
TIMES_MS: Final = (1_700_000_000_000, 1_700_000_000_500, 1_700_000_000_250)
PRODUCE_SINCE: Final = 3  # Kafka 4 lists versions 0 to 2, and closes the connection.


def batch(*, damaged: bool = False, time_ms: int = TIMES_MS[0]) -> bytes:
    """Return a record batch of three records."""
    records = b""
    for number, moment in enumerate(TIMES_MS):
        body = b"\0" + varint_bytes(moment - TIMES_MS[0]) + varint_bytes(number) + b"\2k\2v\0"
        records += varint_bytes(len(body)) + body
    last_ms = max(time_ms, max(TIMES_MS))
    head = struct.pack(">hiqqqhii", 0, 2, time_ms, last_ms, -1, -1, -1, 3)
    checksum = crc32c(records, crc32c(head)) ^ damaged
    prefix = struct.pack(">qiibI", 0, 9 + len(head) + len(records), -1, 2, checksum)
    return prefix + head + records


def _produce(topic: bytes, index: int = 0, acks: int = -1, data: bytes | None = None) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        sent = produce.PartitionProduceData(
            index=index, records=memoryview(batch() if data is None else data)
        )
        named = produce.TopicProduceData(
            name=topic, topic_id=ids.get(topic, MISSING_ID), partition_data=[sent]
        )
        return produce.ProduceRequest(
            transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[named]
        )

    return build


def _fetch(topic: bytes, index: int = 0, offset: int = 0, epoch: int = -1) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        wanted = fetch.FetchPartition(
            partition=index,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=100,
        )
        named = fetch.FetchTopic(
            topic=topic, topic_id=ids.get(topic, MISSING_ID), partitions=[wanted]
        )
        return fetch.FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1, topics=[named]
        )

    return build


def _offsets(topic: bytes, time_ms: int, index: int = 0, epoch: int = -1) -> Build:
    wanted = list_offsets.ListOffsetsPartition(
        partition_index=index, timestamp=time_ms, current_leader_epoch=epoch
    )
    named = list_offsets.ListOffsetsTopic(name=topic, partitions=[wanted])
    return lambda version, ids: list_offsets.ListOffsetsRequest(replica_id=-1, topics=[named])


def _commit(topic: bytes, member: bytes = b"", epoch: int = -1, group: bytes = GROUP) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        position = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=2, committed_metadata=b"note"
        )
        named = offset_commit.OffsetCommitRequestTopic(
            name=topic, topic_id=ids.get(topic, MISSING_ID), partitions=[position]
        )
        return offset_commit.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            group_instance_id=None,
            topics=[named],
        )

    return build


def _positions(group: bytes, topic: bytes | None, index: int = 0) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        old, new = None, None
        if topic is not None:
            old = [offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[index])]
            new = [
                offset_fetch.OffsetFetchRequestTopics(
                    name=topic, topic_id=ids.get(topic, MISSING_ID), partition_indexes=[index]
                )
            ]
        wanted_group = offset_fetch.OffsetFetchRequestGroup(
            group_id=group, member_id=None, member_epoch=-1, topics=new
        )
        return offset_fetch.OffsetFetchRequest(group_id=group, topics=old, groups=[wanted_group])

    return build


def _metadata(*names: bytes | None, by_id: bool = False) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        topics = [
            metadata.MetadataRequestTopic(name=name)
            if not by_id
            else metadata.MetadataRequestTopic(topic_id=ids.get(name or b"", MISSING_ID), name=None)
            for name in names
        ]
        return metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    return build


def _coordinator(kind: int) -> Build:
    return lambda version, ids: find_coordinator.FindCoordinatorRequest(
        key=GROUP, key_type=kind, coordinator_keys=[GROUP]
    )


def _join(group: bytes, member: bytes, session_ms: int = 10_000, protocols: int = 1) -> Build:
    offered = [join_group.JoinGroupRequestProtocol(name=b"range", metadata=b"")] * protocols
    return lambda version, ids: join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=1000,
        member_id=member,
        group_instance_id=None,
        protocol_type=b"consumer",
        protocols=offered,
    )


def _create(name: str, count: int = 1, replicas: int = 1, **configs: str) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        topic = create_topics.CreatableTopic(
            name=f"{name}-{version}".encode() if name == "made" else name.encode(),
            num_partitions=count,
            replication_factor=replicas,
            configs=[
                create_topics.CreatableTopicConfig(
                    name=key.replace("_", ".").encode(), value=value.encode()
                )
                for key, value in configs.items()
            ],
        )
        return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)

    return build


def _configs(kind: int, name: bytes, *keys: bytes) -> Build:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return lambda version, ids: describe_configs.DescribeConfigsRequest(resources=[resource])


def _alter(module: Any, kind: int, name: bytes, key: bytes, value: bytes | None) -> Build:
    setting = module.AlterableConfig(name=key, value=value)
    resource = module.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[setting]
    )
    request = getattr(module, "AlterConfigsRequest", None) or module.IncrementalAlterConfigsRequest
    return lambda version, ids: request(resources=[resource])


def _delete_topic(name: str) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        text = f"{name}-{version}".encode() if name == "made" else name.encode()
        return delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=text)],
            topic_names=[text],
            timeout_ms=5000,
        )

    return build


def _epoch(topic: bytes, epoch: int) -> Build:
    wanted = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=-1, leader_epoch=epoch
    )
    named = offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[wanted])
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[named])
    return same(request)


def _records() -> Iterator[Case]:
    yield Case("produce three records", _produce(TOPIC), PRODUCE_SINCE)
    yield Case("produce to a missing topic", _produce(MISSING), PRODUCE_SINCE)
    yield Case("produce to a missing partition", _produce(TOPIC, 7), PRODUCE_SINCE)
    yield Case(
        "produce with a wrong checksum", _produce(TOPIC, data=batch(damaged=True)), PRODUCE_SINCE
    )
    yield Case("produce with acks 5", _produce(TOPIC, 1, acks=5), PRODUCE_SINCE)
    yield Case(
        "produce a time out of range", _produce(TOPIC, data=batch(time_ms=2**62)), PRODUCE_SINCE
    )
    yield Case("fetch from the start", _fetch(TOPIC), since=4)
    yield Case("fetch at the end", _fetch(TOPIC, 1))
    yield Case("fetch beyond the end", _fetch(TOPIC, 1, offset=99_999))
    yield Case("fetch from a missing topic", _fetch(MISSING))
    yield Case("fetch from a missing partition", _fetch(TOPIC, 7))
    yield Case("fetch with a later epoch", _fetch(TOPIC, epoch=9), since=9)
    for note, moment in (
        ("latest", -1),
        ("earliest", -2),
        ("latest time", -3),
        ("earliest local", -4),
        ("latest tiered", -5),
        ("earliest pending", -6),
        ("unknown", -9),
        ("first", TIMES_MS[0]),
        ("middle", TIMES_MS[0] + 300),
        ("future", 4_000_000_000_000),
    ):
        yield Case(f"offsets, {note}", _offsets(TOPIC, moment, 1 if moment == -1 else 0))
    yield Case("offsets of a missing topic", _offsets(MISSING, -1))
    yield Case("offsets of a missing partition", _offsets(TOPIC, -1, 7))
    yield Case("offsets with a later epoch", _offsets(TOPIC, -1, epoch=9), since=4)
    yield Case("end of epoch 0", _epoch(TOPIC, 0))
    yield Case("end of a later epoch", _epoch(TOPIC, 9))
    yield Case("end of an epoch of a missing topic", _epoch(MISSING, 0))
    for note, index, offset in (("some", 0, 1), ("too many", 0, 99_999), ("none", 7, 0)):
        place = delete_records.DeleteRecordsPartition(partition_index=index, offset=offset)
        topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[place])
        body = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        yield Case(f"delete records, {note}", same(body))
    wanted = [describe_producers.TopicRequest(name=TOPIC, partition_indexes=[0, 7])]
    yield Case("producers", same(describe_producers.DescribeProducersRequest(topics=wanted)))


def _groups() -> Iterator[Case]:
    yield Case("commit without a member", _commit(TOPIC))
    yield Case("commit to a missing topic", _commit(MISSING))
    yield Case("commit of an unknown member", _commit(TOPIC, b"m", 3))
    yield Case("commit of a member of a missing group", _commit(TOPIC, b"m", 3, MISSING))
    yield Case("position", _positions(GROUP, TOPIC))
    yield Case("position never set", _positions(GROUP, TOPIC, 1))
    yield Case("position of a missing topic", _positions(GROUP, MISSING))
    yield Case("position of a missing group", _positions(MISSING, TOPIC))
    yield Case("all positions", _positions(GROUP, None), since=2)
    yield Case("coordinator", _coordinator(0))
    yield Case("coordinator of an unknown kind", _coordinator(9), since=1)
    yield Case("join without an id", _join(GROUP, b""), since=4)
    yield Case("join of an unknown member", _join(GROUP, b"m"))
    yield Case("join with a short session", _join(GROUP, b"", 1))
    yield Case("join without a group", _join(b"", b""))
    yield Case("join without protocols", _join(GROUP, b"", protocols=0))
    member = {"group_id": GROUP, "member_id": b"m"}
    yield Case("sync", same(sync_group.SyncGroupRequest(**member, generation_id=1)))
    yield Case("heartbeat", same(heartbeat.HeartbeatRequest(**member, generation_id=1)))
    left = [leave_group.MemberIdentity(member_id=b"m", group_instance_id=None)]
    yield Case("leave", same(leave_group.LeaveGroupRequest(**member, members=left)))
    for group in (GROUP, MISSING):
        body: Struct = describe_groups.DescribeGroupsRequest(groups=[group])
        yield Case(f"describe {group.decode()}", same(body))
        body = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[group])
        yield Case(f"describe {group.decode()} as modern", same(body))
    yield Case("list groups", same(list_groups.ListGroupsRequest()))
    filtered = list_groups.ListGroupsRequest(states_filter=[b"Stable"])
    yield Case("list groups by state", same(filtered), since=4)
    for note, fields in (
        ("unknown member", {"member_epoch": 5}),
        ("without a group", {"group_id": b""}),
        ("no timeout", {"rebalance_timeout_ms": -1}),
        ("unknown assignor", {"server_assignor": b"none"}),
    ):
        about: dict[str, Any] = {
            "group_id": b"modern",
            "member_id": b"AAAAAAAAAAAAAAAAAAAAAA",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": [TOPIC],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        }
        sent = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(**(about | fields))
        yield Case(f"modern heartbeat, {note}", same(sent))
    for group in (MISSING, GROUP):
        places = [offset_delete.OffsetDeleteRequestPartition(partition_index=n) for n in (1, 7)]
        topics = [offset_delete.OffsetDeleteRequestTopic(name=TOPIC, partitions=places)]
        body = offset_delete.OffsetDeleteRequest(group_id=group, topics=topics)
        yield Case(f"delete positions of {group.decode()}", same(body))
    yield Case(
        "delete a missing group", same(delete_groups.DeleteGroupsRequest(groups_names=[MISSING]))
    )


def _topics() -> Iterator[Case]:
    yield Case("metadata", _metadata(TOPIC))
    yield Case("metadata of a missing topic", _metadata(MISSING), since=4)
    yield Case("metadata of an illegal name", _metadata(b"a b"), since=4)
    yield Case("metadata by id", _metadata(TOPIC, by_id=True), since=12)
    yield Case("metadata of a missing id", _metadata(MISSING, by_id=True), since=12)
    for names in ((TOPIC,), (MISSING,)):
        wanted = [describe_topic_partitions.TopicRequest(name=name) for name in names]
        body: Struct = describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=wanted, response_partition_limit=1, cursor=None
        )
        yield Case(f"partitions of {names[0].decode()}", same(body))
    yield Case("create", _create("made"))
    yield Case("create what exists", _create("golden"))
    yield Case("create without partitions", _create("zero", 0))
    yield Case("create with three replicas", _create("three", 1, 3))
    yield Case("create an illegal name", _create("a b"))
    yield Case("create with an unknown setting", _create("bad", no_such="1"))
    yield Case("create with a nonsense value", _create("bad", retention_ms="soon"))
    yield Case("create with a nonsense type of time", _create("bad", message_timestamp_type="Now"))
    yield Case("create with a nonsense compression", _create("bad", compression_type="rar"))
    yield Case("delete", _delete_topic("made"))
    yield Case("delete a missing topic", _delete_topic("missing"))
    for note, name, count in (("fewer", TOPIC, 1), ("of a missing topic", MISSING, 5)):
        grown = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
        body = create_partitions.CreatePartitionsRequest(topics=[grown], timeout_ms=1000)
        yield Case(f"partitions, {note}", same(body))


def _settings() -> Iterator[Case]:
    yield Case("settings", _configs(2, TOPIC, b"retention.bytes", b"cleanup.policy"), since=1)
    yield Case("settings of times", _configs(2, TOPIC, b"message.timestamp.type"), since=1)
    yield Case("settings of a missing topic", _configs(2, MISSING))
    yield Case("settings of the broker", _configs(4, b"1", b"delete.topic.enable"), since=1)
    yield Case("settings of another broker", _configs(4, b"7"))
    yield Case("settings of an unknown kind", _configs(99, b"x"))
    for module, word in ((alter_configs, "alter"), (incremental_alter_configs, "change")):
        key = b"retention.ms"
        yield Case(f"{word} a setting", _alter(module, 2, TOPIC, key, b"600000000"))
        yield Case(f"{word} with nonsense", _alter(module, 2, TOPIC, key, b"soon"))
        yield Case(f"{word} with null", _alter(module, 2, TOPIC, key, None))
        yield Case(f"{word} an unknown setting", _alter(module, 2, TOPIC, b"no.such", b"1"))
        yield Case(f"{word} a missing topic", _alter(module, 2, MISSING, key, b"1"))
        yield Case(f"{word} an unknown kind", _alter(module, 99, TOPIC, key, b"1"))


CASES: Final = (
    *_topics(),
    *_records(),
    *_groups(),
    *_settings(),
    *CLUSTER_CASES,
    *REFUSED_CASES,
    Case("produce for a share group", _produce(TOPIC, SHARED_INDEX), PRODUCE_SINCE),
    *MEMBER_CASES,
)
