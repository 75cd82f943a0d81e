"""Groups change between the classic and the consumer protocol while they have members (KIP-848)."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.assignors import Places
from braidlog.protocols.kafka.classic_group import GroupState, KafkaGroup, MemberRefused
from braidlog.protocols.kafka.consumer_group import PROTOCOLS_TRIED, ConsumerGroup
from braidlog.protocols.kafka.consumer_member import GroupTopics, MemberWishes
from braidlog.protocols.kafka.consumer_protocol import assignment_of, subscription_of
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_coordinator import GroupCoordinator
from braidlog.protocols.kafka.migration import UPGRADE_BYTES_MAX, MigrationPolicy, upgraded
from braidlog.protocols.kafka.roster import KafkaMember
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.protocols.kafka.wire.join_group import JoinGroupResponse
from braidlog.storage.metadata.names import TopicName
from conformance.golden import migrating
from conformance.golden.migrating import MODERN, Dialogue, MigrationStep, shown
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.golden import VECTORS
from tests.protocols.kafka.talk import OpenClient, second_client

RECORDED = Path(VECTORS) / "migration-answers-4.3.1.tsv"
# The time between heartbeats is Braidlog's own, and each broker makes the name of a leader. A
# classic heartbeat makes a due assignment, which Kafka leaves to the next heartbeat of another
# member. A member that was removed may join again.
OWN_FIELDS = frozenset(("heartbeat_interval_ms", "client_host", "client_id", "rack_id", "leader"))
DIFFERENT = {
    "the first has to rejoin for that": {"error_code": Code.REBALANCE_IN_PROGRESS},
    "the modern member is unknown": {"error_code": Code.UNKNOWN_MEMBER_ID},
}
TOPIC_ID = b"t" * 16
TOPICS = GroupTopics({b"t": TOPIC_ID}, {TOPIC_ID: 4})
CLIENT = (b"c", b"/h")
WISHES = MemberWishes(frozenset((b"t",)), rebalance_s=60.0)


def compared(answer: Any) -> Any:
    """Return an answer without the fields that are Braidlog's own."""
    if isinstance(answer, list):
        return [compared(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    return {name: compared(value) for name, value in answer.items() if name not in OWN_FIELDS}


async def hold(client: RawKafka, steps: Dialogue, topic_id: bytes) -> dict[str, str]:
    """Hold a dialogue; return the answers."""
    answers: dict[str, str] = {}
    step: MigrationStep = next(steps)
    while True:
        answer = await client.call_whole(step.body, step.version)
        answers[step.note] = shown(step, answer, topic_id)
        try:
            step = steps.send(answer)
        except StopIteration:
            return answers


async def golden_topic(broker: Broker) -> bytes:
    topic = await broker.topics.create(TopicName("public", "default", migrating.TOPIC.decode()), 2)
    return id_of(topic)


async def test_every_answer_on_the_way_is_kafkas(broker: Broker, client: RawKafka) -> None:
    topic_id = await golden_topic(broker)
    answers = await hold(client, migrating.dialogue(topic_id), topic_id)
    lines = [line.split("\t") for line in RECORDED.read_text().splitlines()[1:]]
    assert answers.keys() == {note for note, _ in lines}
    for note, recorded in lines:
        wanted = json.loads(recorded) | DIFFERENT.get(note, {})
        ours = json.loads(answers[note])
        assert compared(ours) == compared(wanted), note


def classic_group(*members: KafkaMember) -> KafkaGroup:
    group = KafkaGroup(b"g")
    group.adopt(members, 3, 0.0, rebalances=False)
    return group


def classic_member(member_id: bytes, *indexes: int, metadata: bytes = b"") -> KafkaMember:
    assignment = assignment_of({b"t": indexes}) if indexes else b""
    protocols = {b"range": metadata or subscription_of([b"t"])}
    return KafkaMember(member_id, None, CLIENT, 10.0, 60.0, protocols, 10.0, assignment=assignment)


def places(*indexes: int) -> Places:
    return frozenset((TOPIC_ID, index) for index in indexes)


def upgrade(group: KafkaGroup, policy: MigrationPolicy = MigrationPolicy.UPGRADE) -> ConsumerGroup:
    return upgraded(group, policy, lambda names: TOPICS, 0.0)


def refused(code: Code) -> AbstractContextManager[object]:
    return pytest.raises(MemberRefused, match=f"^{code.name}$")


def test_members_keep_their_partitions_and_their_generation() -> None:
    modern = upgrade(classic_group(classic_member(b"1", 0, 1), classic_member(b"2", 2, 3)))
    assert (modern.epoch, modern.target_epoch) == (3, 3)
    assert {key: member.assigned for key, member in modern.members.items()} == {
        b"1": places(0, 1),
        b"2": places(2, 3),
    }
    assert not any(map(modern.must_rejoin, modern.members.values()))


def test_of_two_members_with_a_partition_the_first_has_it() -> None:
    modern = upgrade(classic_group(classic_member(b"1", 0, 9), classic_member(b"2", 0, 1)))
    assert [member.assigned for member in modern.members.values()] == [places(0), places(1)]


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_the_policy_may_forbid_an_upgrade(policy: MigrationPolicy) -> None:
    with refused(Code.GROUP_ID_NOT_FOUND):
        upgrade(classic_group(classic_member(b"1")), policy)


@pytest.mark.parametrize("metadata", [b"\0\0\0\0\0\1", b"x", b"x" * (UPGRADE_BYTES_MAX + 1)])
def test_metadata_that_cannot_be_used_forbids_an_upgrade(metadata: bytes) -> None:
    group = classic_group(classic_member(b"1", metadata=metadata))
    with refused(Code.GROUP_ID_NOT_FOUND):
        upgrade(group)
    assert list(group.members) == [b"1"]


def mixed_table(policy: MigrationPolicy) -> tuple[GroupCoordinator, ConsumerGroup]:
    """Return a table with a group of a classic member and a member of the consumer protocol."""
    table = GroupCoordinator(policy=policy)
    table.get(b"g").adopt([classic_member(b"1", 0, 1, 2, 3)], 3, 0.0, rebalances=False)
    modern = table.upgrade(b"g", lambda names: TOPICS)
    assert modern is not None
    modern.join(b"2", None, CLIENT, WISHES, trio.current_time())
    return table, modern


@pytest.mark.parametrize(
    ("policy", "is_classic"),
    [(MigrationPolicy.BIDIRECTIONAL, True), (MigrationPolicy.UPGRADE, False)],
)
async def test_the_policy_may_forbid_a_downgrade(
    policy: MigrationPolicy, is_classic: bool, autojump_clock: trio.testing.MockClock
) -> None:
    table, modern = mixed_table(policy)
    epoch = modern.epoch
    modern.remove(modern.members[b"2"], trio.current_time())
    table.note_modern_change(modern)
    group = table.find(b"g")
    assert (group is not None) is is_classic
    if group is not None:
        assert (group.generation, group.state) == (epoch, GroupState.PREPARING)
        assert table.find_modern(b"g") is None


async def test_the_last_modern_member_may_die(autojump_clock: trio.testing.MockClock) -> None:
    table, modern = mixed_table(MigrationPolicy.BIDIRECTIONAL)
    for _ in range(10):
        await trio.sleep(5)
        modern.heard(modern.members[b"1"], trio.current_time())
    group = table.find(b"g")
    assert group is not None
    assert list(group.members) == [b"1"]


async def test_a_classic_member_that_does_not_rejoin_is_removed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    _, modern = mixed_table(MigrationPolicy.BIDIRECTIONAL)
    classic = modern.members[b"1"]
    modern.assign(TOPICS, trio.current_time())
    assert modern.must_rejoin(classic)
    modern.await_step(classic, trio.current_time())
    for _ in range(13):
        await trio.sleep(5)
        modern.heard(classic, trio.current_time())
        modern.heard(modern.members[b"2"], trio.current_time())
        modern.advance(trio.current_time())
    assert list(modern.members) == [b"2"]


def test_a_member_with_very_many_protocols_costs_little() -> None:
    modern = upgrade(classic_group(classic_member(b"1")))
    usual = {b"%d" % number: b"" for number in range(PROTOCOLS_TRIED - 1)} | {b"range": b""}
    assert modern.supports(usual, b"2")
    assert not modern.supports({b"more": b""} | usual, b"2")


def test_a_static_member_comes_back_with_the_other_protocol() -> None:
    modern = ConsumerGroup(b"g")
    first = modern.join(b"1", b"i", CLIENT, WISHES, 0.0)
    modern.restart(first, 0.0)
    modern.assign(TOPICS, 0.0)
    modern.reconcile(first, frozenset(), 0.0)
    classic = upgrade(classic_group(classic_member(b"x"))).members[b"x"].classic
    second = modern.join(b"2", b"i", CLIENT, WISHES, 0.0, classic=classic)
    modern.reconcile(second, frozenset(), 0.0)
    assert second.assigned == places(0, 1, 2, 3)
    assert modern.is_left_to_classic
    assert modern.stands
    third = modern.join(b"3", b"i", CLIENT, WISHES, 0.0)
    assert (list(modern.members), third.target) == ([b"3"], places(0, 1, 2, 3))


async def test_a_join_that_waits_is_told_to_join_again(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    topic_id = await golden_topic(broker)
    other, third = await second_client(open_client), await second_client(open_client)
    await client.call_whole(migrating.join(b""), 3)
    answers: list[JoinGroupResponse] = []

    async def wait() -> None:
        answers.append(await other.call_whole(migrating.join(b""), 3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        reply = await third.call_whole(migrating.modern(0, topic_id, []), 1)
        assert (reply.error_code, reply.member_id) == (Code.NONE, MODERN)
    assert [answer.error_code for answer in answers] == [Code.REBALANCE_IN_PROGRESS]
