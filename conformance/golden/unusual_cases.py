"""Unusual requests that are valid: empty and null lists, everything at once, names twice, negative
numbers. Records that are null are left out: Kafka never answers such a Produce.
"""

from collections.abc import Iterator
from typing import Any, Final

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    alter_configs,
    alter_partition_reassignments,
    alter_share_group_offsets,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_share_group_offsets,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
)
from conformance.golden.asking import MISSING_ID
from conformance.golden.case import MISSING, TOPIC, Build, Case, Ids, same
from conformance.golden.group_cases import GROUP, modern_heartbeat
from conformance.golden.record_cases import PRODUCE_SINCE

GROUP_KIND: Final = 32
MEMBER: Final = b"HAAAAAAAAAAAAAAAAAAAAA"


def _metadata(topics: Any, **fields: object) -> Build:
    return same(metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False, **fields))


def _metadata_cases() -> Iterator[Case]:
    named = metadata.MetadataRequestTopic(name=TOPIC)
    yield Case("metadata of no topic", _metadata([]), since=1)
    yield Case("metadata of a topic twice", _metadata([named, named]), since=1)
    unnamed = metadata.MetadataRequestTopic(name=None)
    yield Case("metadata of neither a name nor an id", _metadata([unnamed]), since=10)
    yield Case("metadata of an empty name", _metadata([metadata.MetadataRequestTopic(name=b"")]), 4)

    def both(version: int, ids: Ids) -> Struct:
        topic = metadata.MetadataRequestTopic(name=TOPIC, topic_id=ids.get(TOPIC, MISSING_ID))
        return metadata.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)

    yield Case("metadata of a name and an id", both, since=12)

    def mixed(version: int, ids: Ids) -> Struct:
        by_id = metadata.MetadataRequestTopic(name=None, topic_id=ids.get(TOPIC, MISSING_ID))
        return metadata.MetadataRequest(topics=[named, by_id], allow_auto_topic_creation=False)

    yield Case("metadata of a name beside an id", mixed, since=12)


def _produce(topics: Any, acks: int = 1) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        data = [
            produce.TopicProduceData(
                name=name,
                topic_id=ids.get(name, MISSING_ID),
                partition_data=[
                    produce.PartitionProduceData(index=index, records=records)
                    for index, records in partitions
                ],
            )
            for name, partitions in topics
        ]
        return produce.ProduceRequest(
            transactional_id=None, acks=acks, timeout_ms=1000, topic_data=data
        )

    return build


def _produce_cases() -> Iterator[Case]:
    empty = memoryview(b"")
    yield Case("produce nothing", _produce([]), PRODUCE_SINCE)
    yield Case("produce to a topic without partitions", _produce([(TOPIC, [])]), PRODUCE_SINCE)
    yield Case("produce an empty set", _produce([(TOPIC, [(1, empty)])]), PRODUCE_SINCE)
    yield Case("produce an end of a batch", _produce([(TOPIC, [(1, memoryview(b"x" * 8))])]), 3)
    yield Case("produce to a negative partition", _produce([(TOPIC, [(-1, empty)])]), 3)


def _fetch(topics: Any, **fields: Any) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        wanted = [
            fetch.FetchTopic(
                topic=name,
                topic_id=ids.get(name, MISSING_ID),
                partitions=[
                    fetch.FetchPartition(
                        partition=index, fetch_offset=offset, partition_max_bytes=size
                    )
                    for index, offset, size in partitions
                ],
            )
            for name, partitions in topics
        ]
        usual: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000}
        return fetch.FetchRequest(**(usual | {"session_epoch": -1} | fields), topics=wanted)

    return build


def _fetch_cases() -> Iterator[Case]:
    yield Case("fetch nothing", _fetch([]), since=4)
    yield Case("fetch of a topic without partitions", _fetch([(TOPIC, [])]), since=4)
    yield Case("fetch of no bytes", _fetch([(TOPIC, [(1, 0, 0)])], max_bytes=0), since=4)
    yield Case("fetch at a negative offset", _fetch([(TOPIC, [(1, -1, 100)])]), since=4)
    yield Case("fetch of a negative partition", _fetch([(TOPIC, [(-1, 0, 100)])]), since=4)
    limits = {"max_wait_ms": -1, "min_bytes": -1}
    yield Case("fetch with negative limits", _fetch([(TOPIC, [(1, 0, 100)])], **limits), since=4)
    level = {"isolation_level": 1}
    yield Case("fetch of committed records", _fetch([(TOPIC, [(1, 0, 100)])], **level), since=4)
    session = {"session_id": 12345, "session_epoch": 7}
    yield Case("fetch of a missing session", _fetch([(TOPIC, [(1, 0, 100)])], **session), since=7)
    yield Case("fetch with an epoch alone", _fetch([], session_epoch=5), since=7)


def _offset_cases() -> Iterator[Case]:
    def wanted(*topics: Any, **fields: Any) -> Build:
        named = [
            list_offsets.ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics
        ]
        return same(list_offsets.ListOffsetsRequest(replica_id=-1, topics=named, **fields))

    def place(index: int, time_ms: int = -1) -> Any:
        return list_offsets.ListOffsetsPartition(partition_index=index, timestamp=time_ms)

    yield Case("offsets of nothing", wanted())
    yield Case("offsets of a topic without partitions", wanted((TOPIC, [])))
    yield Case("offsets of a negative partition", wanted((TOPIC, [place(-1)])))
    yield Case("offsets of an empty name", wanted((b"", [place(0)])))
    yield Case("offsets of a topic twice", wanted((TOPIC, [place(0)]), (TOPIC, [place(1)])))
    yield Case("offsets of committed records", wanted((TOPIC, [place(1)]), isolation_level=1), 2)
    yield Case("offsets at the greatest time", wanted((TOPIC, [place(0, 2**63 - 1)])))
    yield Case("offsets at time 0", wanted((TOPIC, [place(0, 0)])))
    epochs = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1)
    yield Case("end of no epoch", same(epochs))
    epoch = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=-1, leader_epoch=-1
    )
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=[epoch])
    epochs = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
    yield Case("end of a negative epoch", same(epochs))
    yield Case("delete no records", same(delete_records.DeleteRecordsRequest(timeout_ms=1000)))
    bare = delete_records.DeleteRecordsTopic(name=TOPIC)
    body: Struct = delete_records.DeleteRecordsRequest(topics=[bare], timeout_ms=1000)
    yield Case("delete records of no partition", same(body))
    yield Case("producers of nothing", same(describe_producers.DescribeProducersRequest()))
    bare_producers = describe_producers.TopicRequest(name=TOPIC)
    body = describe_producers.DescribeProducersRequest(topics=[bare_producers])
    yield Case("producers of no partition", same(body))


def _commit(topics: Any, **fields: Any) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        named = [
            offset_commit.OffsetCommitRequestTopic(
                name=name,
                topic_id=ids.get(name, MISSING_ID),
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=text
                    )
                    for index, offset, text in partitions
                ],
            )
            for name, partitions in topics
        ]
        usual: dict[str, Any] = {"group_id": GROUP, "group_instance_id": None}
        return offset_commit.OffsetCommitRequest(**(usual | fields), topics=named)

    return build


def _positions(topics: Any, groups: Any = (GROUP,), **fields: Any) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        old = topics and [
            offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics
        ]
        new = topics and [
            offset_fetch.OffsetFetchRequestTopics(
                name=name, topic_id=ids.get(name, MISSING_ID), partition_indexes=indexes
            )
            for name, indexes in topics
        ]
        wanted = [
            offset_fetch.OffsetFetchRequestGroup(
                group_id=group,
                member_id=None,
                member_epoch=-1,
                topics=topics if topics == [] else new,
            )
            for group in groups
        ]
        group_id = groups[0] if groups else b""
        return offset_fetch.OffsetFetchRequest(
            group_id=group_id, topics=topics if topics == [] else old, groups=wanted, **fields
        )

    return build


def _position_cases() -> Iterator[Case]:
    yield Case("commit nothing", _commit([]), since=2)
    yield Case("commit to a topic without partitions", _commit([(TOPIC, [])]), since=2)
    yield Case("commit of null metadata", _commit([(TOPIC, [(1, 0, None)])]), since=2)
    yield Case("commit to a negative partition", _commit([(TOPIC, [(-1, 0, b"")])]), since=2)
    twice = [(TOPIC, [(1, 0, b"a"), (1, 1, b"b")])]
    yield Case("commit of a partition twice", _commit(twice), since=2)
    both = [(TOPIC, [(0, 0, b"")]), (TOPIC, [(1, 0, b"")])]
    yield Case("commit to a topic twice", _commit(both), since=2)
    yield Case("positions of no topic", _positions([]), since=1)
    yield Case("positions of no partition", _positions([(TOPIC, [])]), since=1)
    yield Case("positions of a partition twice", _positions([(TOPIC, [1, 1])]), since=1)
    yield Case("positions of a negative partition", _positions([(TOPIC, [-1])]), since=1)
    yield Case("positions of no group", _positions([(TOPIC, [0])], ()), since=8)
    yield Case("positions of groups twice", _positions([(TOPIC, [0])], (GROUP, GROUP)), since=8)
    yield Case("positions of an empty group", _positions([(TOPIC, [0])], (b"",)), since=1)
    yield Case("stable positions", _positions([(TOPIC, [0])], require_stable=True), since=7)
    gone = offset_delete.OffsetDeleteRequest(group_id=GROUP)
    yield Case("delete no positions", same(gone))
    bare = offset_delete.OffsetDeleteRequestTopic(name=TOPIC)
    yield Case(
        "delete positions of no partition",
        same(offset_delete.OffsetDeleteRequest(group_id=GROUP, topics=[bare])),
    )
    empty = offset_delete.OffsetDeleteRequest(group_id=b"", topics=[bare])
    yield Case("delete positions of an empty group", same(empty))


def _coordinator(keys: Any, kind: int = 0) -> Case:
    request = find_coordinator.FindCoordinatorRequest(
        key=keys[0] if keys else b"", key_type=kind, coordinator_keys=keys
    )
    return Case(f"coordinator of {[key.decode() for key in keys]} of kind {kind}", same(request), 1)


def _group_cases() -> Iterator[Case]:
    yield _coordinator([])
    yield _coordinator([b""])
    yield _coordinator([GROUP, GROUP])
    yield _coordinator([b"no-share-key"], 2)
    yield Case("describe no group", same(describe_groups.DescribeGroupsRequest()))
    yield Case("delete no group", same(delete_groups.DeleteGroupsRequest()))
    modern = consumer_group_describe.ConsumerGroupDescribeRequest()
    yield Case("describe no modern group", same(modern))
    twice = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[MISSING, MISSING])
    yield Case("describe a modern group twice", same(twice))
    yield Case("describe no share group", same(share_group_describe.ShareGroupDescribeRequest()))
    for names in ([MISSING], [GROUP], [b""], [MISSING, MISSING]):
        shown = share_group_describe.ShareGroupDescribeRequest(group_ids=names)
        yield Case(f"describe share groups {names}", same(shown))
    both = {"states_filter": [b"Stable", b"Empty", b"empty"], "types_filter": [b"classic"]}
    yield Case("list groups by states and a type", same(list_groups.ListGroupsRequest(**both)), 5)
    typed = list_groups.ListGroupsRequest(types_filter=[b"Classic", b"CLASSIC"])
    yield Case("list groups by a type twice", same(typed), since=5)
    member = {"group_id": b"", "member_id": b""}
    yield Case("heartbeat of nobody", same(heartbeat.HeartbeatRequest(**member)))
    yield Case("leave of nobody", same(leave_group.LeaveGroupRequest(**member)))
    about = {"group_id": GROUP, "member_id": b""}
    yield Case("leave of no member", same(leave_group.LeaveGroupRequest(**about)))
    pair = [leave_group.MemberIdentity(member_id=b"m", group_instance_id=b"i")] * 2
    yield Case(
        "leave of a member twice", same(leave_group.LeaveGroupRequest(**about, members=pair))
    )
    yield Case("sync of nobody", same(sync_group.SyncGroupRequest(**member)))
    join: dict[str, Any] = {"group_id": b"odd", "session_timeout_ms": 10_000, "member_id": b""}
    join |= {"group_instance_id": None, "rebalance_timeout_ms": 1000}
    offered = [join_group.JoinGroupRequestProtocol(name=b"range", metadata=b"")]
    for note, fields in (
        ("without a type", {"protocol_type": b"", "protocols": offered}),
        ("with a long session", {"session_timeout_ms": 1_800_001, "protocols": offered}),
        ("with a negative session", {"session_timeout_ms": -1, "protocols": offered}),
    ):
        request = join_group.JoinGroupRequest(**({"protocol_type": b"consumer"} | join | fields))
        yield Case(f"join {note}", same(request))


def _modern(note: str, **fields: Any) -> Case:
    return modern_heartbeat(note, **({"group_id": b"unusual", "member_id": MEMBER} | fields))


def _modern_cases() -> Iterator[Case]:
    yield _modern("no member id", member_id=b"")
    yield _modern("an empty instance", instance_id=b"")
    yield _modern("an empty rack", rack_id=b"")
    yield _modern("null topics", subscribed_topic_names=None)
    yield _modern("null partitions", topic_partitions=None)
    held = consumer_group_heartbeat.TopicPartitions(topic_id=MISSING_ID, partitions=[0])
    yield _modern("partitions at the start", topic_partitions=[held])
    yield _modern("a leave of a missing group", member_epoch=-1)
    yield _modern("a static leave without an instance", member_epoch=-2)
    yield _modern("an empty assignor", server_assignor=b"")
    for note, fields in (
        ("no member id", {"member_id": b""}),
        ("no group", {"group_id": b""}),
        ("an empty rack", {"rack_id": b""}),
        ("no topics", {"subscribed_topic_names": []}),
        ("null topics", {"subscribed_topic_names": None}),
        ("a negative epoch", {"member_epoch": -5}),
        ("a leave of a missing group", {"member_epoch": -1}),
    ):
        usual: dict[str, Any] = {"group_id": b"odd-share", "member_id": MEMBER}
        usual |= {"subscribed_topic_names": [TOPIC]}
        beat = share_group_heartbeat.ShareGroupHeartbeatRequest(**(usual | fields))
        yield Case(f"share heartbeat, {note}", same(beat))
    for epoch in (0, -1, 5):
        request: Struct = share_fetch.ShareFetchRequest(
            group_id=b"odd-share", member_id=MEMBER, share_session_epoch=epoch
        )
        yield Case(f"share fetch of nothing at epoch {epoch}", same(request))
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=b"odd-share", member_id=MEMBER, share_session_epoch=epoch
        )
        yield Case(f"share acknowledge of nothing at epoch {epoch}", same(request))
    request = share_fetch.ShareFetchRequest(group_id=b"", member_id=MEMBER)
    yield Case("share fetch without a group", same(request))
    request = share_fetch.ShareFetchRequest(group_id=b"odd-share", member_id=b"")
    yield Case("share fetch without a member", same(request))


def _share_position_cases() -> Iterator[Case]:
    described = describe_share_group_offsets.DescribeShareGroupOffsetsRequest
    group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup
    topic = describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic
    yield Case("share positions of no group", same(described()))
    for note, name, topics in (
        ("an empty group", b"", None),
        ("a missing group", MISSING, None),
        ("a missing group's topic", MISSING, [topic(topic_name=TOPIC, partitions=[0])]),
        ("no topic", MISSING, []),
    ):
        wanted = group(group_id=name, topics=topics)
        yield Case(f"share positions of {note}", same(described(groups=[wanted])))
    moved = alter_share_group_offsets.AlterShareGroupOffsetsRequest
    place = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(start_offset=0)
    moves = [
        alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
            topic_name=TOPIC, partitions=[place]
        )
    ]
    yield Case("share move of an empty group", same(moved(group_id=b"", topics=moves)))
    yield Case("share move of nothing", same(moved(group_id=MISSING)))
    gone = delete_share_group_offsets.DeleteShareGroupOffsetsRequest
    named = [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)]
    yield Case("share deletion of an empty group", same(gone(group_id=b"", topics=named)))
    yield Case("share deletion of a missing group", same(gone(group_id=MISSING, topics=named)))
    yield Case("share deletion of nothing", same(gone(group_id=MISSING)))


def _cluster_cases() -> Iterator[Case]:
    yield Case("directories of nothing", same(describe_log_dirs.DescribeLogDirsRequest(topics=[])))
    bare = describe_log_dirs.DescribableLogDirTopic(topic=TOPIC)
    yield Case(
        "directories of no partition", same(describe_log_dirs.DescribeLogDirsRequest(topics=[bare]))
    )
    election = elect_leaders.ElectLeadersRequest(topic_partitions=[], timeout_ms=1000)
    yield Case("election of no topic", same(election))
    listing = list_partition_reassignments.ListPartitionReassignmentsRequest(
        timeout_ms=1000, topics=[]
    )
    yield Case("reassignments of no topic", same(listing))
    moves = alter_partition_reassignments.AlterPartitionReassignmentsRequest(timeout_ms=1000)
    yield Case("reassignment of nothing", same(moves))
    pages = describe_topic_partitions.DescribeTopicPartitionsRequest
    twice = [describe_topic_partitions.TopicRequest(name=TOPIC)] * 2
    yield Case("partitions of a topic twice", same(pages(topics=twice, cursor=None)))
    for limit in (-1, 1):
        wanted = [describe_topic_partitions.TopicRequest(name=TOPIC)]
        request = pages(topics=wanted, response_partition_limit=limit, cursor=None)
        yield Case(f"partitions with a limit of {limit}", same(request))
    for strict in (False, True):
        quotas = describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=strict)
        yield Case(f"quotas of nothing, strict {strict}", same(quotas))


def _setting(module: Any, changes: Any, name: bytes = b"settings", **fields: Any) -> Build:
    configs = [
        module.AlterableConfig(name=key, value=value, **extra) for key, value, extra in changes
    ]
    resource = module.AlterConfigsResource(
        resource_type=GROUP_KIND, resource_name=name, configs=configs
    )
    request = getattr(module, "AlterConfigsRequest", None) or module.IncrementalAlterConfigsRequest
    return same(request(resources=[resource], **fields))


def _described(kind: int, name: bytes, keys: Any, **fields: Any) -> Build:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return same(describe_configs.DescribeConfigsRequest(resources=[resource], **fields))


def _setting_cases() -> Iterator[Case]:
    session = b"consumer.session.timeout.ms"
    yield Case("settings of nothing", same(describe_configs.DescribeConfigsRequest()))
    yield Case("settings of a topic without a name", _described(2, b"", None), since=1)
    yield Case("settings of a group without a name", _described(GROUP_KIND, b"", None), since=1)
    yield Case("settings of a group", _described(GROUP_KIND, b"fresh", None), since=1)
    keys = [session, b"share.renew.acknowledge.enable", b"no.such"]
    yield Case("some settings of a group", _described(GROUP_KIND, b"fresh", keys), since=1)
    bounds = [
        b"group.consumer.min.session.timeout.ms",
        b"group.consumer.assignors",
        b"group.share.max.record.lock.duration.ms",
        b"group.streams.max.standby.replicas",
    ]
    yield Case("bounds of groups", _described(4, b"1", bounds), since=1)
    for module, word in ((alter_configs, "alter"), (incremental_alter_configs, "change")):
        for note, key, value in (
            ("a time", session, b"50000"),
            ("a short time", session, b"44999"),
            ("a long time", session, b"60001"),
            ("no time", session, b"0"),
            ("nonsense", session, b"soon"),
            ("null", session, None),
            ("a period", b"share.auto.offset.reset", b"by_duration:PT1H"),
            ("a negative period", b"share.auto.offset.reset", b"by_duration:-PT1H"),
            ("an unknown setting", b"no.such", b"1"),
        ):
            build = _setting(module, [(key, value, {})], validate_only=True)
            yield Case(f"{word} for a group: {note}", build)
        yield Case(f"{word} for a group: nothing", _setting(module, [], validate_only=True))
        unnamed = _setting(module, [(session, b"50000", {})], b"", validate_only=True)
        yield Case(f"{word} for a group without a name", unnamed)
        nothing = getattr(module, "AlterConfigsRequest", None)
        nothing = nothing or incremental_alter_configs.IncrementalAlterConfigsRequest
        yield Case(f"{word} of no resource", same(nothing()))
    for operation in (1, 2, 3):
        for key in (session, b"no.such"):
            changes = [(key, b"1", {"config_operation": operation})]
            build = _setting(incremental_alter_configs, changes, validate_only=True)
            yield Case(f"operation {operation} on {key.decode()} of a group", build)
    for kinds in ([], [2], [4], [GROUP_KIND], [2, 2, 4], [99], [-1]):
        listing = list_config_resources.ListConfigResourcesRequest(resource_types=kinds)
        yield Case(f"resources of kinds {kinds}", same(listing), since=1)
    yield Case("resources", same(list_config_resources.ListConfigResourcesRequest()), until=0)


UNUSUAL_CASES: Final = (
    *_metadata_cases(),
    *_produce_cases(),
    *_fetch_cases(),
    *_offset_cases(),
    *_position_cases(),
    *_group_cases(),
    *_modern_cases(),
    *_share_position_cases(),
    *_cluster_cases(),
    *_setting_cases(),
)
