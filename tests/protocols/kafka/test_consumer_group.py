"""The consumer protocol's group: epochs, assignment, hand-over of partitions; times are numbers."""

import random
from contextlib import AbstractContextManager

import pytest

from braidlog.protocols.kafka.assignors import NOWHERE, Places
from braidlog.protocols.kafka.classic_group import GROUP_MEMBERS_MAX, MemberRefused
from braidlog.protocols.kafka.consumer_group import (
    ASSIGN_S,
    SESSION_S,
    SMALL_MEMBERS,
    ConsumerGroup,
    State,
)
from braidlog.protocols.kafka.consumer_member import ConsumerMember, GroupTopics, MemberWishes
from braidlog.protocols.kafka.errors import Code

CLIENT = (b"c", b"/h")
TOPIC_ID = b"t" * 16
REBALANCE_S = 60.0


def topics(count: int = 4) -> GroupTopics:
    return GroupTopics({b"t": TOPIC_ID}, {TOPIC_ID: count})


def places(*indexes: int) -> Places:
    return frozenset((TOPIC_ID, index) for index in indexes)


def refused(code: Code) -> AbstractContextManager[object]:
    return pytest.raises(MemberRefused, match=f"^{code.name}$")


def join(
    group: ConsumerGroup,
    member_id: bytes,
    now: float = 0.0,
    *,
    instance: bytes | None = None,
    count: int = 4,
) -> ConsumerMember:
    wanted = MemberWishes(frozenset((b"t",)), rebalance_s=REBALANCE_S)
    member = group.join(member_id, instance, CLIENT, wanted, now)
    group.restart(member, now)
    group.assign(topics(count), now)
    group.reconcile(member, NOWHERE, now)
    return member


def beat(
    group: ConsumerGroup, member: ConsumerMember, owned: Places | None = None, now: float = 0.0
) -> bool:
    group.assign(group.topics, now)
    return group.reconcile(member, owned, now)


def test_the_first_member_gets_all_partitions() -> None:
    group = ConsumerGroup(b"g")
    member = join(group, b"1")
    assert member.assigned == places(0, 1, 2, 3)
    assert (member.epoch, group.state) == (group.epoch, State.STABLE)
    assert not beat(group, member, member.assigned)


def test_a_partition_moves_once_its_holder_has_given_it_up() -> None:
    group = ConsumerGroup(b"g")
    first = join(group, b"1")
    epoch = first.epoch
    second = join(group, b"2")
    assert (second.assigned, second.epoch) == (NOWHERE, group.target_epoch)
    assert group.state is State.RECONCILING
    assert beat(group, first)  # It hears what it may keep.
    assert (first.assigned, first.revoking) == (places(0, 1), places(2, 3))
    assert first.epoch == epoch  # Its commits are right until it has given up the others.
    assert not beat(group, first, places(0, 1, 2))
    assert not beat(group, second, NOWHERE)
    assert not group.has_its_share(second)
    assert not beat(group, first, places(0, 1))
    assert first.epoch == group.target_epoch
    assert beat(group, second)
    assert second.assigned == places(2, 3)
    assert not beat(group, second, places(2, 3))
    assert group.has_its_share(second)
    assert group.state is State.STABLE


def test_a_lost_answer_is_repeated_and_other_epochs_are_fenced() -> None:
    group = ConsumerGroup(b"g")
    first = join(group, b"1")
    epoch = first.epoch
    join(group, b"2")
    beat(group, first, places(0, 1))
    assert first.epoch == epoch + 1
    group.check_epoch(first, epoch, places(0, 1))
    for wrong, owned in ((epoch, None), (epoch, places(2)), (epoch + 2, places(0)), (9, None)):
        with refused(Code.FENCED_MEMBER_EPOCH):
            group.check_epoch(first, wrong, owned)


def test_a_member_that_joins_again_has_lost_its_partitions() -> None:
    group = ConsumerGroup(b"g")
    first = join(group, b"1")
    second = join(group, b"2")
    beat(group, first, places(0, 1))
    beat(group, second)
    join(group, b"1")
    assert first.assigned == places(0, 1)
    assert second.assigned == places(2, 3)


def test_a_leave_gives_the_partitions_to_the_others() -> None:
    group = ConsumerGroup(b"g")
    first, second = join(group, b"1"), join(group, b"2")
    beat(group, first, places(0, 1))
    beat(group, second)
    group.remove(first, 1.0)
    assert beat(group, second)
    assert second.assigned == places(0, 1, 2, 3)
    with refused(Code.UNKNOWN_MEMBER_ID):
        group.find(b"1")
    group.remove(second, 2.0)
    assert (group.state, group.size) == (State.EMPTY, len(b"g"))


def test_the_next_member_to_send_a_heartbeat_gets_what_another_has_left() -> None:
    group = ConsumerGroup(b"g")
    members = [join(group, b"%d" % number) for number in range(4)]
    for _ in range(2):  # Partitions are given up, then taken over.
        for member in members:
            beat(group, member, member.assigned, 1.0)
    leaver, *rest = members
    for member, now in zip(rest, (4.0, 2.0, 3.0), strict=True):
        beat(group, member, member.assigned, now)
    group.remove(leaver, 5.0)
    group.assign(group.topics, 5.0)
    assert [len(member.target) for member in rest] == [1, 2, 1]


def test_the_next_member_to_send_a_heartbeat_gives_up_partitions() -> None:
    group = ConsumerGroup(b"g")
    members = [join(group, b"%d" % number) for number in range(2)]
    for _ in range(2):
        for member, now in zip(members, (1.0, 2.0), strict=True):
            beat(group, member, member.assigned, now)
    join(group, b"2", 3.0)
    assert [len(member.target) for member in members] == [1, 2]


def test_a_static_member_that_is_away_gets_nothing_more() -> None:
    group = ConsumerGroup(b"g")
    away = join(group, b"0", instance=b"i", count=3)
    others = [join(group, b"%d" % number, count=3) for number in (1, 2)]
    for _ in range(2):
        for member in (away, *others):
            beat(group, member, member.assigned, 1.0)
    beat(group, others[1], others[1].assigned, 2.0)
    group.go_away(away)
    group.remove(others[0], 3.0)
    group.assign(group.topics, 3.0)
    assert [len(member.target) for member in (away, others[1])] == [1, 2]


def test_dead_members_are_removed() -> None:
    group = ConsumerGroup(b"g")
    first, second = join(group, b"1"), join(group, b"2")
    beat(group, first, now=SESSION_S - 1)
    group.advance(SESSION_S)
    assert list(group.members) == [b"1"]
    assert second.member_id not in group.members


def test_a_member_that_gives_up_nothing_is_removed() -> None:
    group = ConsumerGroup(b"g")
    first, second = join(group, b"1"), join(group, b"2")
    assert beat(group, first, now=1.0)
    for now in (30.0, 60.0):
        beat(group, first, places(0, 1, 2, 3), now=now)
        beat(group, second, now=now)
        group.advance(now)
    group.advance(1.0 + REBALANCE_S)
    assert list(group.members) == [b"2"]
    assert beat(group, second, now=62.0)
    assert second.assigned == places(0, 1, 2, 3)


def test_a_static_member_that_goes_away_keeps_its_partitions() -> None:
    group = ConsumerGroup(b"g")
    first, static = join(group, b"1"), join(group, b"2", instance=b"i")
    beat(group, first, places(0, 1))
    beat(group, static)
    epoch = group.epoch
    with refused(Code.UNRELEASED_INSTANCE_ID):
        join(group, b"3", instance=b"i")
    group.go_away(static)
    assert not beat(group, first)
    back = join(group, b"3", instance=b"i")
    assert (back.assigned, group.epoch) == (places(2, 3), epoch)
    assert not beat(group, first)
    with refused(Code.FENCED_INSTANCE_ID):
        group.find(b"2", b"i")
    with refused(Code.UNKNOWN_MEMBER_ID):
        group.find(b"3", b"j")
    group.go_away(back)
    group.advance(2 * SESSION_S)
    assert not group.members


def test_more_partitions_are_assigned() -> None:
    group = ConsumerGroup(b"g")
    member = join(group, b"1", count=1)
    group.assign(topics(3), 1.0)
    assert beat(group, member)
    assert member.assigned == places(0, 1, 2)
    group.assign(GroupTopics(), 2.0)  # The topic is deleted.
    assert beat(group, member, NOWHERE)
    assert member.assigned == NOWHERE


def test_the_assignor_that_most_members_want_assigns() -> None:
    group = ConsumerGroup(b"g")
    for number, assignor in enumerate((None, b"range", b"uniform", b"range")):
        member = join(group, b"%d" % number)
        group.subscribe(member, MemberWishes(assignor=assignor))
    group.assign(topics(), 0.0)
    assert group.assignor == b"range"


def test_a_large_group_is_assigned_once_in_a_while() -> None:
    group = ConsumerGroup(b"g")
    for number in range(SMALL_MEMBERS + 1):
        join(group, b"%d" % number, count=100)
    epoch = group.target_epoch
    late = join(group, b"late", now=ASSIGN_S / 2, count=100)
    assert (group.target_epoch, late.assigned, group.state) == (epoch, NOWHERE, State.ASSIGNING)
    assert not group.wants_topics(ASSIGN_S / 2)
    group.assign(topics(100), ASSIGN_S)
    assert group.target_epoch == group.epoch


def test_a_group_has_a_size_limit() -> None:
    group = ConsumerGroup(b"g")
    for number in range(GROUP_MEMBERS_MAX):
        group.join(b"%d" % number, None, CLIENT, MemberWishes(frozenset()), 0.0)
    with refused(Code.GROUP_MAX_SIZE_REACHED):
        join(group, b"more")


def test_no_partition_ever_has_two_members() -> None:
    """Members come, go, die, lose answers and give up late; in the end all is shared out."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    group, now, count = ConsumerGroup(b"g"), 0.0, 7
    has: dict[bytes, Places] = {}  # What each client believes that it has.
    for step in range(3000):
        now += rng.random()
        is_calm = step > 2800
        if not is_calm and rng.random() < 0.02:
            count = rng.randrange(1, 12)
        group.advance(now)
        has = {name: owned for name, owned in has.items() if name in group.members}
        name = b"%d" % rng.randrange(5)
        member = group.members.get(name)
        if member is None:
            if not is_calm:
                has[name] = join(group, name, now, count=count).assigned
        elif not is_calm and rng.random() < 0.05:
            group.remove(member, now)
            del has[name]
        else:
            tells = rng.random() < 0.5
            group.assign(topics(count), now)
            if group.reconcile(member, has[name] if tells else None, now):
                has[name] |= member.assigned
            if rng.random() < 0.5:  # The client gives up what it has no more.
                has[name] &= member.assigned
        owned = [place for places_ in has.values() for place in places_]
        assert len(owned) == len(set(owned)), f"step {step}"
    for _ in range(4):
        for name, member in group.members.items():
            has[name] &= member.assigned
            group.reconcile(member, has[name], now)
            has[name] |= member.assigned
    assert group.state in (State.STABLE, State.EMPTY)
    if group.members:
        assert {place for places_ in has.values() for place in places_} == places(*range(count))
