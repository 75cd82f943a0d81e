"""The broker counts at least the memory that members of groups make it keep."""

import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.assignors import NOWHERE
from braidlog.protocols.kafka.classic_group import KafkaGroup
from braidlog.protocols.kafka.consumer_group import ConsumerGroup
from braidlog.protocols.kafka.consumer_member import ConsumerMember, GroupTopics, MemberWishes
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_coordinator import KEPT_BYTES_MAX, groups_of
from braidlog.protocols.kafka.kept_bytes import ENTRY_BYTES, MEMBER_BYTES_MAX
from braidlog.protocols.kafka.share_group import ShareGroup
from braidlog.protocols.kafka.share_sessions import ShareRefused, ShareSessions
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.protocols.kafka.wire.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import join_request

CLIENT: Final = (b"c", b"/h")
LONG: Final = bytes(MEMBER_BYTES_MAX + 1)
HALF: Final = b"h" * (MEMBER_BYTES_MAX // 2 + 1)


def beating(**changed: Any) -> ConsumerGroupHeartbeatRequest:
    fields: dict[str, Any] = {
        "group_id": b"g",
        "member_id": b"m",
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": [b"t"],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(**(fields | changed))


def share_beating(**changed: Any) -> ShareGroupHeartbeatRequest:
    fields = {"group_id": b"g", "member_id": b"m", "subscribed_topic_names": [b"t"]}
    return ShareGroupHeartbeatRequest(**(fields | changed))


def classic_with_many_protocols() -> KafkaGroup:
    """Return a group of a member with many short names of protocols."""
    group = KafkaGroup(b"g")
    protocols = {b"%d" % at: b"" for at in range(5000)}
    group.admit(join_request(protocols), CLIENT, 0.0)
    return group


def classic_with_many_members() -> KafkaGroup:
    group = KafkaGroup(b"g")
    for at in range(500):
        request = join_request({b"range": b"%1000d" % at}, group_instance_id=b"i%d" % at)
        group.admit(request, (b"client", b"/h%d" % at), 0.0)
    return group


def classic_with_promises() -> KafkaGroup:
    group = KafkaGroup(b"g")
    for _ in range(900):
        group.promise(b"c", 0.0, 10.0)
    return group


def modern_with_many_names() -> ConsumerGroup:
    group = ConsumerGroup(b"g")
    for at in range(3):
        names = frozenset(b"topic-%d-%d" % (at, number) for number in range(3000))
        group.join(b"m%d" % at, None, CLIENT, MemberWishes(names, rack_id=b"r%1000d" % at), 0.0)
    return group


def modern_with_a_pattern() -> ConsumerGroup:
    group = ConsumerGroup(b"g")
    member = group.join(b"m", None, CLIENT, MemberWishes(pattern=b"." * 900), 0.0)
    group.match(member, frozenset(b"topic-%d" % number for number in range(5000)), 0.0)
    return group


def with_many_partitions(group: ConsumerGroup) -> ConsumerGroup:
    topics = GroupTopics({b"t": bytes(16)}, {bytes(16): 10_000})
    for at in range(4):
        group.join(b"m%d" % at, None, CLIENT, MemberWishes(frozenset([b"t"])), 0.0)
    group.assign(topics, 0.0)
    for member in group.members.values():
        group.reconcile(member, NOWHERE, 0.0)
    return group


def share_group_that_had_many_topics() -> ShareGroup:
    """Return a group whose members were assigned other topics at each assignment."""
    group = ShareGroup(b"g")
    group.join(b"m", None, CLIENT, MemberWishes(frozenset([b"t"])), 0.0)
    for number in range(3000):
        topic_id = number.to_bytes(16)
        group.assign(GroupTopics({b"t": topic_id}, {topic_id: 1}), 10.0 * number)
    assert len(group.initialized) == 3000
    return group


CASES: dict[str, Callable[[], KafkaGroup | ConsumerGroup]] = {
    "classic, many protocols": classic_with_many_protocols,
    "classic, many members": classic_with_many_members,
    "classic, promised ids": classic_with_promises,
    "consumer protocol, many names": modern_with_many_names,
    "consumer protocol, pattern": modern_with_a_pattern,
    "consumer protocol, many partitions": lambda: with_many_partitions(ConsumerGroup(b"g")),
    "share group, many partitions": lambda: with_many_partitions(ShareGroup(b"g")),
    "share group, many former topics": share_group_that_had_many_topics,
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_count_is_not_below_the_memory(case: str) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        group = CASES[case]()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used <= group.size <= 8 * used


@pytest.mark.parametrize("case", CASES)
def test_a_group_without_members_keeps_its_name_and_topics_alone(case: str) -> None:
    group = CASES[case]()
    if isinstance(group, KafkaGroup):
        group.forget_promises(1e9)
        for member in list(group.members):
            group.leave(member, None, 0.0)
        assert group.size == len(b"g") + len(group.protocol_type)
        return
    for modern in list(group.members.values()):
        assert isinstance(modern, ConsumerMember)
        group.remove(modern, 0.0)
    assert group.topics == GroupTopics()
    topics = group.initialized if isinstance(group, ShareGroup) else frozenset()
    assert group.size == len(b"g") + ENTRY_BYTES * len(topics)


@pytest.mark.parametrize(
    "request_and_version",
    [
        (join_request(member_id=HALF, group_instance_id=HALF), 9),
        (join_request(group_instance_id=LONG), 9),
        (join_request(protocol_type=LONG), 9),
        (join_request({LONG: b""}), 9),
        (join_request({HALF: HALF}), 9),
        (beating(member_id=LONG), 1),
        (beating(instance_id=LONG), 1),
        (beating(rack_id=LONG), 1),
        (beating(subscribed_topic_names=[HALF, HALF + b"2"]), 1),
        (share_beating(member_id=LONG), 1),
        (share_beating(rack_id=LONG), 1),
        (share_beating(subscribed_topic_names=[HALF, HALF + b"2"]), 1),
    ],
)
async def test_names_of_a_member_have_a_limit(
    broker: Broker, client: RawKafka, request_and_version: tuple[Any, int]
) -> None:
    answer = await client.call_whole(*request_and_version)
    assert answer.error_code == Code.INVALID_REQUEST
    assert groups_of(broker, "public/default").names() == []


@pytest.mark.parametrize(
    ("joins", "says_more"),
    [
        (beating(), beating(member_epoch=1, subscribed_topic_names=[b"other"])),
        (beating(), beating(member_epoch=1, rack_id=b"rack")),
        (share_beating(), share_beating(member_epoch=1, subscribed_topic_names=[b"other"])),
        (share_beating(), share_beating(member_epoch=1, rack_id=b"rack")),
    ],
)
async def test_a_member_says_no_more_than_there_is_room_for(
    broker: Broker, client: RawKafka, joins: Any, says_more: Any
) -> None:
    assert (await client.call_whole(joins, 1)).error_code == Code.NONE
    table = groups_of(broker, "public/default")
    filling = table.get(b"filling")
    for at in range(KEPT_BYTES_MAX // (MEMBER_BYTES_MAX // 2)):
        request = join_request({b"range": HALF}, group_instance_id=b"%d" % at)
        filling.admit(request, CLIENT, trio.current_time())
    table.note_change(filling)
    answer = await client.call_whole(says_more, 1)
    assert answer.error_code == Code.CONSUMER_COORDINATOR_NOT_AVAILABLE
    table.forget(b"filling")
    assert (await client.call_whole(says_more, 1)).error_code == Code.NONE


def test_share_sessions_have_a_limit_in_bytes() -> None:
    sessions = ShareSessions(bytes_max=1_000_000)
    places = [(bytes(16), index) for index in range(1000)]
    first = sessions.open((b"g", b"1"), 1, "")
    sessions.change(first, places, [])
    sessions.change(first, places, places[10:])
    for at in range(2, 200):
        session = sessions.open((b"g", b"%d" % at), 1, "")
        try:
            sessions.change(session, places, [])
        except ShareRefused as refused:
            assert refused.code == Code.SHARE_SESSION_LIMIT_REACHED and session.is_ended
            break
    else:
        pytest.fail("the sessions took more than their limit")
    sessions.end(first)
    sessions.change(sessions.open((b"g", b"1"), 1, ""), places[10:20], [])
    sessions.end_of(1)
    sessions.change(sessions.open((b"g", b"1"), 1, ""), places, [])
