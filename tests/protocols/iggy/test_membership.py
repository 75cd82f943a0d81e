"""Membership and dealing of consumer groups."""

import random

import pytest

from protocols.iggy.membership import Groups

TOPIC, NAME = 7, "grp"


def dealt(groups: Groups, partitions_count: int) -> dict[int, list[int]]:
    return {
        member.member_id: member.partitions
        for member in groups.members(TOPIC, NAME, partitions_count)
    }


def test_partition_i_goes_to_member_i_mod_m():
    groups = Groups()
    for member_id in (11, 22):
        groups.join(TOPIC, NAME, member_id)
    assert dealt(groups, 5) == {11: [0, 2, 4], 22: [1, 3]}


def test_member_takes_its_partitions_in_turn():
    groups = Groups()
    groups.join(TOPIC, NAME, 11)
    member = groups.member(TOPIC, NAME, 11, 3)
    assert [member.next_partition() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_current_partition_is_the_first_before_any_turn_and_the_last_taken_afterwards():
    groups = Groups()
    groups.join(TOPIC, NAME, 11)
    member = groups.member(TOPIC, NAME, 11, 2)
    assert member.current == 0
    assert (member.next_partition(), member.next_partition(), member.current) == (0, 1, 1)


def test_member_without_partition_has_no_turn():
    groups = Groups()
    for member_id in (11, 22, 33):
        groups.join(TOPIC, NAME, member_id)
    idle = groups.member(TOPIC, NAME, 33, 2)
    assert (idle.partitions, idle.current, idle.next_partition()) == ([], None, None)


def test_leaving_deals_anew_and_restarts_turns():
    groups = Groups()
    for member_id in (11, 22):
        groups.join(TOPIC, NAME, member_id)
    groups.member(TOPIC, NAME, 11, 4).next_partition()
    groups.leave(TOPIC, NAME, 22)
    member = groups.member(TOPIC, NAME, 11, 4)
    assert member.partitions == [0, 1, 2, 3]
    assert member.next_partition() == 0


def test_growing_topic_deals_anew():
    groups = Groups()
    groups.join(TOPIC, NAME, 11)
    assert dealt(groups, 1) == {11: [0]}
    assert dealt(groups, 3) == {11: [0, 1, 2]}


def test_joining_twice_neither_adds_nor_restarts():
    groups = Groups()
    groups.join(TOPIC, NAME, 11)
    groups.member(TOPIC, NAME, 11, 2).next_partition()
    groups.join(TOPIC, NAME, 11)
    assert groups.member(TOPIC, NAME, 11, 2).next_partition() == 1
    assert groups.joined(11) == [(TOPIC, NAME)]


def test_leaving_without_having_joined_is_no_fault():
    groups = Groups()
    groups.leave(TOPIC, NAME, 11)
    groups.leave_all(11)
    assert groups.members(TOPIC, NAME, 3) == []


def test_gone_connection_leaves_every_group():
    groups = Groups()
    for name in ("a", "b"):
        groups.join(TOPIC, name, 11)
        groups.join(TOPIC, name, 22)
    groups.leave_all(11)
    assert groups.joined(11) == []
    assert [member.member_id for member in groups.members(TOPIC, "a", 1)] == [22]
    assert groups.member(TOPIC, "b", 11, 1) is None


def test_dropped_group_has_no_members():
    groups = Groups()
    groups.join(TOPIC, NAME, 11)
    groups.join(TOPIC, "other", 11)
    groups.drop(TOPIC, NAME)
    assert groups.members(TOPIC, NAME, 1) == []
    assert groups.joined(11) == [(TOPIC, "other")]


@pytest.mark.parametrize("seed", range(20))
def test_every_partition_has_exactly_one_owner_whatever_happened(seed):
    chance = random.Random(seed)
    groups = Groups()
    inside: set[int] = set()
    for _ in range(60):
        member_id = chance.randrange(6)
        if chance.random() < 0.5:
            groups.join(TOPIC, NAME, member_id)
            inside.add(member_id)
        else:
            groups.leave(TOPIC, NAME, member_id)
            inside.discard(member_id)
        count = chance.randrange(1, 9)
        owners = dealt(groups, count)
        assert set(owners) == inside
        if inside:
            assert sorted(index for mine in owners.values() for index in mine) == list(range(count))
            sizes = [len(mine) for mine in owners.values()]
            assert max(sizes) - min(sizes) <= 1
