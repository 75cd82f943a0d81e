"""Members of the three kinds of groups: they join, heartbeat, read and leave.

A classic member and a modern member are alone in a group of their version, so that each version has
its good answers. The ids that brokers give to classic members, and the epochs of other members,
are in `ids`, by the group's name.
"""

from collections.abc import Iterator
from typing import Final

from braidlog.protocols.kafka.consumer_protocol import assignment_of, subscription_of
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    alter_share_group_offsets,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    delete_share_group_offsets,
    describe_groups,
    describe_share_group_offsets,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    offset_commit,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
)
from conformance.golden.case import MISSING, TOPIC, Build, Case, Ids, same

SESSION_MS: Final = 300_000
# Kafka reads the metadata, and never answers a join whose metadata it cannot read.
SUBSCRIPTION: Final = subscription_of([TOPIC])
ASSIGNMENT: Final = assignment_of({TOPIC: [0, 1]})
GROUP_KIND: Final = 32
SHARED: Final = b"golden-shared"
UNASSIGNED: Final = b"golden-unassigned"
SHARED_INDEX: Final = 1
ACCEPT, RENEW, UNKNOWN_TYPE = 1, 4, 9
LEAVES: Final = -1
CURRENT: Final = -9  # The epoch of the member's last answer.


def _classic(version: int) -> bytes:
    return b"joined-%d" % version


def _join(version: int, ids: Ids) -> Struct:
    offered = [join_group.JoinGroupRequestProtocol(name=b"range", metadata=SUBSCRIPTION)]
    return join_group.JoinGroupRequest(
        group_id=_classic(version),
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=ids.get(_classic(version), b""),
        group_instance_id=None,
        protocol_type=b"consumer",
        protocols=offered,
    )


def _sync(generation: int, protocol: bytes = b"range") -> Build:
    def build(version: int, ids: Ids) -> Struct:
        member = ids.get(_classic(version), b"")
        assignment = sync_group.SyncGroupRequestAssignment(member_id=member, assignment=ASSIGNMENT)
        return sync_group.SyncGroupRequest(
            group_id=_classic(version),
            generation_id=generation,
            member_id=member,
            group_instance_id=None,
            protocol_type=b"consumer",
            protocol_name=protocol,
            assignments=[assignment],
        )

    return build


def _heartbeat(generation: int) -> Build:
    return lambda version, ids: heartbeat.HeartbeatRequest(
        group_id=_classic(version),
        generation_id=generation,
        member_id=ids.get(_classic(version), b""),
        group_instance_id=None,
    )


def _commit(generation: int) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        position = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=b""
        )
        named = offset_commit.OffsetCommitRequestTopic(
            name=TOPIC, topic_id=ids.get(TOPIC, bytes(16)), partitions=[position]
        )
        return offset_commit.OffsetCommitRequest(
            group_id=_classic(version),
            generation_id_or_member_epoch=generation,
            member_id=ids.get(_classic(version), b""),
            group_instance_id=None,
            topics=[named],
        )

    return build


def _leave(version: int, ids: Ids) -> Struct:
    member = ids.get(_classic(version), b"")
    left = [leave_group.MemberIdentity(member_id=member, group_instance_id=None)]
    return leave_group.LeaveGroupRequest(group_id=_classic(version), member_id=member, members=left)


def _classic_members() -> Iterator[Case]:
    yield Case("join for an id", _join, since=4)
    yield Case("join", _join)
    yield Case("sync of an earlier generation", _sync(0))
    yield Case("sync of another protocol", _sync(1, b"other"), since=5)
    yield Case("sync as the leader", _sync(1))
    yield Case("heartbeat of a member", _heartbeat(1))
    yield Case("heartbeat of an earlier generation", _heartbeat(0))
    yield Case("commit as a member", _commit(1), since=1, until=9)
    yield Case("commit of an earlier generation", _commit(0), since=1, until=9)

    def described(version: int, ids: Ids) -> Struct:
        return describe_groups.DescribeGroupsRequest(groups=[_classic(version)])

    def deleted(version: int, ids: Ids) -> Struct:
        return delete_groups.DeleteGroupsRequest(groups_names=[_classic(version)])

    yield Case("describe a group with a member", described)
    yield Case("delete a group with a member", deleted)
    yield Case("leave as a member", _leave)
    yield Case("leave twice", _leave)
    yield Case("delete a group", deleted)


def _modern(note: str, epoch: int, **fields: object) -> Case:
    def build(version: int, ids: Ids) -> Struct:
        group = b"modern-%d" % version
        usual: dict[str, object] = {
            "group_id": group,
            "member_id": b"BAAAAAAAAAAAAAAAAAAAAA",
            "member_epoch": int(ids.get(group, b"0")) if epoch == CURRENT else epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": SESSION_MS if epoch == 0 else -1,
            "subscribed_topic_names": [TOPIC] if epoch == 0 else None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [] if epoch == 0 else None,
        }
        return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(**(usual | fields))

    return Case(f"modern heartbeat, {note}", build)


def _modern_members() -> Iterator[Case]:
    yield _modern("join", 0)
    yield _modern("as usual", CURRENT)
    yield _modern("later epoch", 99)
    yield _modern("negative epoch", -5)
    groups = [b"modern-0", b"modern-1"]
    body = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=groups)
    yield Case("describe modern groups with a member", same(body))
    yield _modern("leave", LEAVES)
    yield _modern("leave twice", LEAVES)


def _share_heartbeat(
    note: str, epoch: int, topics: list[bytes] | None = None, group: bytes = SHARED
) -> Case:
    def build(version: int, ids: Ids) -> Struct:
        return share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=b"CAAAAAAAAAAAAAAAAAAAAA",
            member_epoch=int(ids.get(group, b"0")) if epoch == CURRENT else epoch,
            subscribed_topic_names=topics,
        )

    return Case(f"share heartbeat, {note}", build)


def _reader(version: int) -> bytes:
    return b"DAAAAAAAAAAAAAAAAAAAA%d" % version


def _share_fetch(note: str, epoch: int, index: int = SHARED_INDEX) -> Case:
    def build(version: int, ids: Ids) -> Struct:
        wanted = share_fetch.FetchPartition(partition_index=index, acknowledgement_batches=[])
        topic = share_fetch.FetchTopic(topic_id=ids.get(TOPIC, bytes(16)), partitions=[wanted])
        return share_fetch.ShareFetchRequest(
            group_id=SHARED,
            member_id=_reader(version),
            share_session_epoch=epoch,
            max_wait_ms=5000,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=3,
            batch_size=3,
            topics=[topic],
        )

    return Case(f"share fetch, {note}", build, stays=True)


def _share_acknowledge(note: str, epoch: int, kind: int = ACCEPT, first: int = 0) -> Case:
    """Acknowledge a record of the batch of the version, from `first` on."""

    def build(version: int, ids: Ids) -> Struct:
        offset = 3 * (version - 1) + first
        ranges = [
            share_acknowledge.AcknowledgementBatch(
                first_offset=offset, last_offset=offset, acknowledge_types=[kind]
            )
        ]
        place = share_acknowledge.AcknowledgePartition(
            partition_index=SHARED_INDEX, acknowledgement_batches=ranges
        )
        topic = share_acknowledge.AcknowledgeTopic(
            topic_id=ids.get(TOPIC, bytes(16)), partitions=[place]
        )
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=SHARED,
            member_id=_reader(version),
            share_session_epoch=epoch,
            is_renew_ack=kind == RENEW,
            topics=[topic],
        )

    since = 2 if kind == RENEW else 0
    return Case(f"share acknowledge, {note}", build, since=since, stays=True)


def _share_positions() -> Iterator[Case]:
    for note, topics in (
        ("of all topics", None),
        ("of a topic", [(TOPIC, [SHARED_INDEX])]),
        ("of a missing topic", [(MISSING, [0])]),
    ):
        named = topics and [
            describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
                topic_name=name, partitions=indexes
            )
            for name, indexes in topics
        ]
        group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
            group_id=SHARED, topics=named
        )
        body = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[group])
        yield Case(f"share positions {note}", same(body))


def _share_deletion(note: str, group: bytes, names: list[bytes]) -> Case:
    topics = [
        delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
        for name in names
    ]
    body = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group_id=group, topics=topics)
    return Case(f"share deletion {note}", same(body))


def _share_moves(note: str) -> Iterator[Case]:
    for name in (MISSING, TOPIC):
        moved = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
                    partition_index=SHARED_INDEX, start_offset=1
                )
            ],
        )
        body: Struct = alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            group_id=SHARED, topics=[moved]
        )
        yield Case(f"share move in {name.decode()}, {note}", same(body))
        yield _share_deletion(f"in {name.decode()}, {note}", SHARED, [name])


def _share_join() -> Iterator[Case]:
    """Join first: Kafka prepares a share group's partitions while it answers other requests."""
    early = incremental_alter_configs.AlterableConfig(
        name=b"share.auto.offset.reset", value=b"earliest"
    )
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=GROUP_KIND, resource_name=SHARED, configs=[early]
    )
    body: Struct = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    yield Case("let a share group begin early", same(body))
    yield _share_heartbeat("join", 0, [TOPIC])


def _share_members() -> Iterator[Case]:
    yield _share_heartbeat("as usual", CURRENT)
    body: Struct = share_group_describe.ShareGroupDescribeRequest(group_ids=[SHARED])
    yield Case("describe a share group with a member", same(body))
    yield _share_fetch("first", 0)
    yield _share_acknowledge("a record", 1)
    yield _share_acknowledge("a record twice", 2)
    yield _share_acknowledge("a record that nobody holds", 3, first=1000)
    yield _share_acknowledge("an unknown type", 4, UNKNOWN_TYPE, 1)
    yield _share_acknowledge("renew", 5, RENEW, 1)
    yield _share_acknowledge("a later epoch", 99)
    yield _share_heartbeat("later epoch", 99)
    yield from _share_positions()
    yield from _share_moves("with a member")
    yield _share_heartbeat("leave", LEAVES)
    yield from _share_moves("without members")
    for names in ([MISSING], [TOPIC], [TOPIC, MISSING]):
        shown = " and ".join(name.decode() for name in names)
        yield _share_deletion(f"in {shown}, after the positions were deleted", SHARED, names)
    body = delete_groups.DeleteGroupsRequest(groups_names=[SHARED])
    yield Case("delete a share group", same(body))


def _unassigned_share_group() -> Iterator[Case]:
    """A share group whose member names a missing topic, and never has a partition."""
    yield _share_heartbeat("join without a partition", 0, [MISSING], UNASSIGNED)
    yield _share_heartbeat("leave without a partition", LEAVES, group=UNASSIGNED)
    for names in ([MISSING], [TOPIC], [TOPIC, MISSING]):
        shown = " and ".join(name.decode() for name in names)
        yield _share_deletion(f"in {shown}, of a group without a partition", UNASSIGNED, names)


MEMBER_CASES: Final = (
    *_share_join(),
    *_classic_members(),
    *_modern_members(),
    *_share_members(),
    *_unassigned_share_group(),
)
