"""Requests that admin tools send by mistake: names twice, extreme numbers, names that are no text.

They come last: none of them changes what the other cases see.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    list_groups,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_for_leader_epoch,
)
from conformance.golden.case import MISSING, TOPIC, Build, Case, same

NOT_TEXT: Final = b"\xff\xfe"
LONG_NAME: Final = b"n" * 250
INT32_MAX: Final = 2**31 - 1
TOPIC_KIND: Final = 2
GROUP: Final = b"golden-group"


def _creation(*topics: create_topics.CreatableTopic, checked: bool = False) -> Build:
    return same(
        create_topics.CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=checked)
    )


def _topic(
    name: bytes = b"refused",
    count: int = 1,
    replicas: int = 1,
    *,
    at: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Sequence[tuple[bytes, bytes | None]] = (),
) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=replicas,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in at
        ],
        configs=[
            create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs
        ],
    )


def _creations() -> Iterator[Case]:
    yield Case("create a name twice", _creation(_topic(), _topic()))
    yield Case("create nothing", _creation())
    for count in (-1, -5, INT32_MAX):
        yield Case(f"check {count} partitions", _creation(_topic(count=count), checked=True), 1)
    for replicas in (-1, 0, -5, 32767):
        topic = _topic(replicas=replicas)
        yield Case(f"check {replicas} replicas", _creation(topic, checked=True), 1)
    for name in (b"", b".", b"..", LONG_NAME):
        note = f"check a name of {len(name)} characters, {name[:2].decode()!r}"
        yield Case(note, _creation(_topic(name), checked=True), 1)
    yield Case("check what exists", _creation(_topic(TOPIC), checked=True), 1)
    for note, count, places in (
        ("on a missing broker", -1, [(0, [7])]),
        ("beside a number of partitions", 1, [(0, [1])]),
        ("with a gap", -1, [(0, [1]), (2, [1])]),
        ("of a partition twice", -1, [(0, [1]), (0, [1])]),
        ("without brokers", -1, [(0, [])]),
        ("on a broker twice", -1, [(0, [1, 1])]),
        ("of a negative partition", -1, [(-1, [1])]),
        ("as usual", -1, [(0, [1])]),
    ):
        topic = _topic(count=count, replicas=-1, at=places)
        yield Case(f"check an assignment {note}", _creation(topic, checked=True), 1)
    for key, value in (
        (b"retention.ms", None),
        (b"retention.ms", b""),
        (b"retention.ms", NOT_TEXT),
        (b"retention.ms", b"-2"),
        (b"max.message.bytes", b"-1"),
        (b"max.compaction.lag.ms", b"0"),
        (b"message.timestamp.after.max.ms", b"-1"),
        (b"min.insync.replicas", b"0"),
        (b"flush.messages", b"0"),
        (b"cleanup.policy", b"compact,delete"),
        (b"cleanup.policy", b"shred"),
        (b"", b"1"),
        (NOT_TEXT, b"1"),
    ):
        topic = _topic(configs=[(key, value)])
        note = f"check the setting {key.decode(errors='replace')} of {value!r}"
        yield Case(note, _creation(topic, checked=True), 1)
    topic = _topic(configs=[(b"retention.ms", b"1"), (b"retention.ms", b"2")])
    yield Case("check a setting twice", _creation(topic, checked=True), 1)


def _deletions() -> Iterator[Case]:
    named = delete_topics.DeleteTopicState(name=b"missing")
    twice = delete_topics.DeleteTopicsRequest(
        topics=[named, named], topic_names=[b"missing"] * 2, timeout_ms=5000
    )
    yield Case("delete a name twice", same(twice))
    yield Case("delete nothing", same(delete_topics.DeleteTopicsRequest()))

    def by_id(version: int, ids: object) -> Struct:
        states = [delete_topics.DeleteTopicState(name=None, topic_id=bytes(range(16)))]
        return delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=5000)

    yield Case("delete a missing id", by_id, since=6)
    both = delete_topics.DeleteTopicState(name=b"missing", topic_id=bytes(range(16)))
    neither = delete_topics.DeleteTopicState(name=None)
    for note, state in (("both a name and an id", both), ("neither", neither)):
        request = delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=5000)
        yield Case(f"delete {note}", same(request), since=6)


def _growths() -> Iterator[Case]:
    def grown(count: int, places: Sequence[Sequence[int]] | None = None) -> Struct:
        return create_partitions.CreatePartitionsTopic(
            name=TOPIC,
            count=count,
            assignments=None
            if places is None
            else [create_partitions.CreatePartitionsAssignment(broker_ids=at) for at in places],
        )

    for note, topics in (
        ("of a name twice", [grown(3), grown(3)]),
        ("as many", [grown(2)]),
        ("none", [grown(0)]),
        ("a negative number", [grown(-1)]),
        ("on a missing broker", [grown(3, [[7]])]),
        ("without a broker", [grown(3, [[]])]),
        ("with too few assignments", [grown(4, [[1]])]),
        ("with too many assignments", [grown(3, [[1], [1]])]),
        ("on a broker twice", [grown(3, [[1, 1]])]),
        ("with no assignments", [grown(3, [])]),
    ):
        request = create_partitions.CreatePartitionsRequest(
            topics=topics, timeout_ms=1000, validate_only=True
        )
        yield Case(f"check partitions, {note}", same(request))


def _settings() -> Iterator[Case]:
    def changed(*changes: tuple[bytes, int, bytes | None], kind: int = TOPIC_KIND) -> Struct:
        configs = [
            incremental_alter_configs.AlterableConfig(name=name, config_operation=kind, value=value)
            for name, kind, value in changes
        ]
        return incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=TOPIC, configs=configs
        )

    retention = (b"retention.ms", 0, b"700000000")
    for note, resources in (
        ("twice", [changed(retention, retention)]),
        ("of a resource twice", [changed(retention), changed(retention)]),
        ("by appending to a number", [changed((b"retention.ms", 2, b"1"))]),
        ("by an unknown operation", [changed((b"retention.ms", 9, b"1"))]),
        ("to null", [changed((b"retention.ms", 0, None))]),
        ("by removing an absent value", [changed((b"cleanup.policy", 3, b"compact"))]),
        ("without a name", [changed((b"", 0, b"1"))]),
        ("of no resource", []),
    ):
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=resources, validate_only=True
        )
        yield Case(f"check a change {note}", same(request))
    wanted = describe_configs.DescribeConfigsResource(
        resource_type=TOPIC_KIND, resource_name=TOPIC, configuration_keys=[b"retention.bytes"]
    )
    twice = describe_configs.DescribeConfigsRequest(resources=[wanted, wanted])
    yield Case("settings of a topic twice", same(twice), since=1)
    illegal = describe_configs.DescribeConfigsResource(
        resource_type=TOPIC_KIND, resource_name=b"a b", configuration_keys=[]
    )
    request = describe_configs.DescribeConfigsRequest(resources=[illegal])
    yield Case("settings of an illegal name", same(request))
    broker = describe_configs.DescribeConfigsResource(
        resource_type=4, resource_name=b"one", configuration_keys=[]
    )
    request = describe_configs.DescribeConfigsRequest(resources=[broker])
    yield Case("settings of a broker without a number", same(request))


def _records() -> Iterator[Case]:
    for offset in (-2, -1):
        place = delete_records.DeleteRecordsPartition(partition_index=1, offset=offset)
        topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[place])
        body: Struct = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        yield Case(f"delete records below {offset}", same(body))
    place = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = delete_records.DeleteRecordsTopic(name=MISSING, partitions=[place])
    body = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
    yield Case("delete records of a missing topic", same(body))
    wanted = list_offsets.ListOffsetsPartition(partition_index=1, timestamp=-1)
    named = list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[wanted, wanted])
    body = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[named])
    yield Case("offsets of a partition twice", same(body))
    producers = describe_producers.TopicRequest(name=MISSING, partition_indexes=[0])
    body = describe_producers.DescribeProducersRequest(topics=[producers])
    yield Case("producers of a missing topic", same(body))
    epoch = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=7, current_leader_epoch=-1, leader_epoch=0
    )
    about = offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=[epoch])
    body = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[about])
    yield Case("end of an epoch of a missing partition", same(body))


def _groups() -> Iterator[Case]:
    missing = [b"missing-group"] * 2
    yield Case(
        "delete a group twice", same(delete_groups.DeleteGroupsRequest(groups_names=missing))
    )
    yield Case(
        "delete a group without a name", same(delete_groups.DeleteGroupsRequest(groups_names=[b""]))
    )
    yield Case(
        "describe a group twice", same(describe_groups.DescribeGroupsRequest(groups=missing))
    )
    yield Case(
        "describe a group without a name", same(describe_groups.DescribeGroupsRequest(groups=[b""]))
    )
    modern = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[b""])
    yield Case("describe a modern group without a name", same(modern))
    nonsense = list_groups.ListGroupsRequest(states_filter=[b"Nonsense"])
    yield Case("list groups in an unknown state", same(nonsense), since=4)
    typed = list_groups.ListGroupsRequest(types_filter=[b"Nonsense"])
    yield Case("list groups of an unknown type", same(typed), since=5)
    for note, group, offset, text in (
        ("without a group", b"", 1, b""),
        ("of a long text", b"other", 1, b"x" * 4097),
        ("of a negative position", b"other", -5, b""),
    ):

        def commit(
            version: int, ids: object, fields: tuple[bytes, int, bytes] = (group, offset, text)
        ) -> Struct:
            position = offset_commit.OffsetCommitRequestPartition(
                partition_index=7, committed_offset=fields[1], committed_metadata=fields[2]
            )
            named = offset_commit.OffsetCommitRequestTopic(name=MISSING, partitions=[position])
            return offset_commit.OffsetCommitRequest(
                group_id=fields[0], group_instance_id=None, topics=[named]
            )

        yield Case(f"commit {note}", commit, until=9)
    deleted = offset_delete.OffsetDeleteRequestTopic(
        name=MISSING, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
    )
    body = offset_delete.OffsetDeleteRequest(group_id=GROUP, topics=[deleted])
    yield Case("delete positions of a missing topic", same(body))


def _cluster() -> Iterator[Case]:
    names = [describe_user_scram_credentials.UserName(name=b"nobody")] * 2
    body: Struct = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=names)
    yield Case("keys of a user twice", same(body))
    names = [describe_user_scram_credentials.UserName(name=b"")]
    body = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=names)
    yield Case("keys of a user without a name", same(body))

    def key(**fields: object) -> alter_user_scram_credentials.ScramCredentialUpsertion:
        usual = {
            "name": b"new",
            "mechanism": 1,
            "iterations": 4096,
            "salt": b"salt",
            "salted_password": bytes(32),
        }
        return alter_user_scram_credentials.ScramCredentialUpsertion(**(usual | fields))

    gone = alter_user_scram_credentials.ScramCredentialDeletion(name=b"new", mechanism=1)
    for note, change in (
        ("twice", {"upsertions": [key(), key()]}),
        ("and delete", {"upsertions": [key()], "deletions": [gone]}),
        ("of an unknown mechanism", {"upsertions": [key(mechanism=9)]}),
        ("without a name", {"upsertions": [key(name=b"")]}),
        ("of too many rounds", {"upsertions": [key(iterations=INT32_MAX)]}),
        ("of no user", {}),
    ):
        body = alter_user_scram_credentials.AlterUserScramCredentialsRequest(**change)
        yield Case(f"change a key {note}", same(body))
    places = [elect_leaders.TopicPartitions(topic=MISSING, partitions=[0])]
    body = elect_leaders.ElectLeadersRequest(topic_partitions=places, timeout_ms=1000)
    yield Case("election of a missing topic", same(body))
    body = elect_leaders.ElectLeadersRequest(topic_partitions=[], timeout_ms=1000)
    yield Case("election of nothing", same(body))
    moved = alter_partition_reassignments.ReassignablePartition(partition_index=7, replicas=[1])
    topics = [alter_partition_reassignments.ReassignableTopic(name=TOPIC, partitions=[moved])]
    body = alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=topics)
    yield Case("reassignment of a missing partition", same(body))
    log_topics = [alter_replica_log_dirs.AlterReplicaLogDirTopic(name=MISSING, partitions=[0])]
    dirs = [alter_replica_log_dirs.AlterReplicaLogDir(path=b"/none", topics=log_topics)]
    body = alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=dirs)
    yield Case("move of a missing topic", same(body))
    named = [describe_log_dirs.DescribableLogDirTopic(topic=MISSING, partitions=[0])]
    body = describe_log_dirs.DescribeLogDirsRequest(topics=named)
    yield Case("directories of a missing topic", same(body))
    for note, limit, cursor in (
        ("without a limit", 0, None),
        ("from a cursor", 1, describe_topic_partitions.Cursor(topic_name=TOPIC, partition_index=1)),
        (
            "from a missing partition",
            1,
            describe_topic_partitions.Cursor(topic_name=TOPIC, partition_index=9),
        ),
        (
            "from a negative partition",
            1,
            describe_topic_partitions.Cursor(topic_name=TOPIC, partition_index=-1),
        ),
    ):
        body = describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=TOPIC)],
            response_partition_limit=limit,
            cursor=cursor,
        )
        yield Case(f"partitions {note}", same(body))


REFUSED_CASES: Final = (
    *_creations(),
    *_deletions(),
    *_growths(),
    *_settings(),
    *_records(),
    *_groups(),
    *_cluster(),
)
