"""Requests about groups and their positions: good and bad."""

from collections.abc import Iterator
from typing import Any, Final

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from conformance.golden.asking import MISSING_ID
from conformance.golden.case import MISSING, TOPIC, Build, Case, Ids, same

GROUP: Final = b"golden-group"


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


def modern_heartbeat(note: str, **fields: Any) -> Case:
    """Return a heartbeat of a member that joins, with other values for these fields."""
    usual: dict[str, Any] = {
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
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(**(usual | fields))
    return Case(f"modern heartbeat, {note}", same(request))


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
        yield modern_heartbeat(note, **fields)
    for group in (MISSING, GROUP):
        places = [offset_delete.OffsetDeleteRequestPartition(partition_index=n) for n in (1, 7)]
        topics = [offset_delete.OffsetDeleteRequestTopic(name=TOPIC, partitions=places)]
        body = offset_delete.OffsetDeleteRequest(group_id=group, topics=topics)
        yield Case(f"delete positions of {group.decode()}", same(body))
    yield Case(
        "delete a missing group", same(delete_groups.DeleteGroupsRequest(groups_names=[MISSING]))
    )


def _refused_groups() -> Iterator[Case]:
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


GROUP_CASES: Final = tuple(_groups())
REFUSED_GROUP_CASES: Final = tuple(_refused_groups())
